"""What is special to PENCIL: the step of the labels, the stages and their rates."""

from typing import Any

import pytest
import torch
from in_phases import assert_terms
from torch import Tensor, nn

from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch
from colafier.methods.pencil import Pencil
from colafier.nets import net_factory
from colafier.training.distributed import Processes
from colafier.training.engine import Engine
from colafier.training.optimizers import OptimizerSettings
from colafier.training.training_set import TrainingSet

ROWS, CLASSES = 20, 10


def ready(epochs: int = 16, trusted: Tensor | None = None, **settings: Any) -> Any:
    """A method set up for some rows, these rows, and an engine that commits but moves no net."""
    torch.manual_seed(0)
    observed = torch.arange(ROWS) % CLASSES
    x = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(1))
    train = TrainingSet(
        x, Labels(observed, trusted=trusted), CLASSES, view_names=("weak",), batch_size=ROWS
    )
    method = Pencil(**settings)
    method.setup(net_factory("mlp", (5,), CLASSES), train, epochs)
    return method, train, Engine(method, OptimizerSettings(lr=0.0), Processes())


def run_pass(method: Pencil, train: TrainingSet, engine: Engine, epoch: int) -> Batch:
    """One epoch, which is one batch."""
    (part,) = method.passes(epoch, train)
    engine.begin_pass(part)
    (batch,) = train.batches(part, epoch, 0)
    method.update(batch, engine)
    return batch


@pytest.mark.parametrize("double", [False, True])
def test_the_step_of_the_labels_is_the_closed_form(double: bool) -> None:
    """That is u += lambda / (B C) (p - q) - lambda alpha / B slope; by the paper it is q - e."""
    method, _, _ = ready(
        label_rate=600.0, observed_weight=0.4, label_steps=1, double_softmax=double
    )
    u, log_p = torch.randn(ROWS, CLASSES), torch.randn(ROWS, CLASSES).log_softmax(1)
    y = torch.randint(CLASSES, (ROWS,))
    expected = torch.empty_like(u)
    for i in range(ROWS):
        q, p = u[i].softmax(0), log_p[i].exp()
        e = nn.functional.one_hot(y[i], CLASSES)
        slope = q - e
        if double:  # through the softmax of q, then through that of u
            outer = q.softmax(0) - e
            slope = q * (outer - (q * outer).sum())
        expected[i] = u[i] + 600 / (128 * CLASSES) * (p - q) - 600 * 0.4 / 128 * slope
    torch.testing.assert_close(method._moved(u, log_p, y), expected, rtol=1e-4, atol=1e-4)


def test_several_steps_are_one_after_the_other() -> None:
    one, several = ready(label_steps=1)[0], ready(label_steps=3)[0]
    u, log_p = torch.randn(ROWS, CLASSES), torch.randn(ROWS, CLASSES).log_softmax(1)
    y = torch.zeros(ROWS, dtype=torch.long)
    expected = one._moved(one._moved(one._moved(u, log_p, y), log_p, y), log_p, y)
    torch.testing.assert_close(several._moved(u, log_p, y), expected)


def test_losses_of_the_stages_row_by_row() -> None:
    method, train, _ = ready(first_stage=2, second_stage=3, entropy_weight=0.7)
    method.label_logits.values = torch.randn(ROWS, CLASSES)
    batch = next(iter(train.batches(next(method.passes(0, train)), 0, 0)))
    p = method.net(batch.x).softmax(1)
    q = method.label_logits[batch.index].softmax(1)
    ce = divergence = entropy = torch.zeros(())
    for i, y in enumerate(batch.y):
        ce = ce - p[i, y].log() / ROWS
        for c in range(CLASSES):
            divergence = divergence + p[i, c] * (p[i, c] / q[i, c]).log() / (ROWS * CLASSES)
            entropy = entropy - p[i, c] * p[i, c].log() / (ROWS * CLASSES)
    expected = {
        1: {"ce": ce},
        2: {"compatibility": divergence, "entropy": 0.7 * entropy},
        5: {"compatibility": divergence},
    }
    for epoch, slow in expected.items():
        terms = method.loss(Batch(batch.index, batch.y, batch.views, epoch, float(epoch)))
        assert_terms(method.net, terms, slow)


def test_labels_move_in_the_second_stage_only() -> None:
    method, train, engine = ready(first_stage=2, second_stage=2)
    moved = []
    for epoch in range(6):
        before = method.label_logits.values.clone()
        run_pass(method, train, engine, epoch)
        moved.append(not torch.equal(method.label_logits.values, before))
    assert moved == [False, False, True, True, False, False]


def test_stages_steps_and_rates_of_the_authors() -> None:
    method, train, _ = ready(epochs=320)
    assert method.resolved() == {"first_stage": 70, "second_stage": 130, "label_steps": 1}
    scales = [next(method.passes(epoch, train)).lr_scale for epoch in (0, 199, 200, 240, 280, 319)]
    assert scales == pytest.approx([1, 1, 1, 0.1, 0.01, 0.01])
    assert ready(epochs=40)[0].resolved()["label_steps"] == 8


@pytest.mark.parametrize("double", [True, False])
def test_a_sure_net_wins_over_a_label_with_the_term_of_the_code_only(double: bool) -> None:
    method, train, engine = ready(
        first_stage=0, second_stage=12, observed_weight=0.15, double_softmax=double
    )
    with torch.no_grad():
        method.net.head.bias[3] += 30.0
    for epoch in range(12):
        run_pass(method, train, engine, epoch)
    labels = method.purify(train, train.predict(method.deployed())).labels
    assert torch.equal(labels, torch.full((ROWS,), 3) if double else train.observed)


def test_trusted_rows_keep_their_label() -> None:
    method, train, engine = ready(
        trusted=torch.arange(ROWS) < 8, first_stage=0, second_stage=9, observed_weight=0.0
    )
    with torch.no_grad():
        method.net.head.bias[3] += 30.0
    for epoch in range(9):
        run_pass(method, train, engine, epoch)
    labels = method.purify(train, train.predict(method.deployed())).labels
    assert torch.equal(labels[:8], train.observed[:8])
    assert (labels[8:] == 3).all()


def test_labels_that_are_very_sure_stay_finite() -> None:
    method, train, _ = ready(first_stage=0)
    method.label_logits.values = 300 * nn.functional.one_hot(train.observed, CLASSES).float()
    batch = next(iter(train.batches(next(method.passes(0, train)), 0, 0)))
    assert all(torch.isfinite(term) for term in method.loss(batch).values())
    _, staged = method.label_logits.take_staged()
    assert torch.isfinite(staged).all()
