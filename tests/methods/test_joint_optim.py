"""What is special to JointOptim: its terms, when labels are replaced, and the second stage."""

from typing import Any

import pytest
import torch
from in_phases import assert_minimizes
from torch import Tensor, nn

from colafier.evidence.labels import Labels
from colafier.methods._class_prior import prior_loss
from colafier.methods.contract import Batch
from colafier.methods.joint_optim import JointOptim
from colafier.nets import net_factory
from colafier.training.distributed import Processes
from colafier.training.engine import Engine
from colafier.training.optimizers import OptimizerSettings
from colafier.training.training_set import TrainingSet

ROWS, CLASSES = 12, 3


def ready(epochs: int = 12, trusted: Tensor | None = None, **settings: Any) -> Any:
    """A method set up for some rows, these rows, and an engine that commits but moves nothing."""
    torch.manual_seed(0)
    observed = torch.arange(ROWS) % CLASSES
    x = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(1))
    train = TrainingSet(
        x, Labels(observed, trusted=trusted), CLASSES, view_names=("weak",), batch_size=ROWS
    )
    method = JointOptim(**settings)
    method.setup(net_factory("mlp", (5,), CLASSES), train, epochs)
    return method, train, Engine(method, OptimizerSettings(lr=0.0), Processes())


def run_pass(method: JointOptim, train: TrainingSet, engine: Engine, epoch: int) -> Batch:
    """One epoch, which is one batch."""
    (part,) = method.passes(epoch, train)
    engine.begin_pass(part)
    (batch,) = train.batches(part, epoch, 0)
    method.update(batch, engine)
    return batch


def test_terms_of_the_first_stage_row_by_row() -> None:
    method, train, _ = ready(prior_weight=1.2, entropy_weight=0.8)
    method.targets.values = torch.rand(ROWS, CLASSES).softmax(1)
    batch = next(iter(train.batches(next(method.passes(0, train)), 0, 0)))
    p = method.net(batch.x).softmax(1)
    q = method.targets[batch.index]
    ce = entropy = prior = torch.zeros(())
    for c in range(CLASSES):
        mean = torch.zeros(())
        for i in range(ROWS):
            ce = ce - q[i, c] * p[i, c].log() / ROWS
            entropy = entropy - p[i, c] * p[i, c].log() / ROWS
            mean = mean + p[i, c] / ROWS
        prior = prior + (1 / CLASSES / mean).log() / CLASSES
    assert_minimizes(method, batch, ce + 1.2 * prior + 0.8 * entropy)
    terms = method.loss(batch)
    assert terms["entropy"].item() == pytest.approx(0.8 * entropy.item(), rel=1e-4)
    assert terms["prior"].item() == pytest.approx(1.2 * prior.item(), rel=1e-3)


def test_labels_are_the_observed_ones_until_they_are_the_mean_of_the_last_predictions() -> None:
    method, train, engine = ready(label_start=4, first_stage=9, window=3)
    observed = nn.functional.one_hot(train.observed, CLASSES).float()
    predictions = []
    for epoch in range(9):
        assert torch.equal(method.targets.values, observed) == (epoch < 4)
        with torch.no_grad():
            method.net.head.bias += torch.randn(CLASSES)  # so that predictions differ by epoch
        batch = run_pass(method, train, engine, epoch)
        p = torch.empty(ROWS, CLASSES)
        p[batch.index] = method.net(batch.x).softmax(1).detach()
        predictions.append(p)
        if epoch >= 3:
            torch.testing.assert_close(method.targets.values, torch.stack(predictions[-3:]).mean(0))
    torch.testing.assert_close(method.targets.values.sum(1), torch.ones(ROWS))


def test_the_second_stage_begins_with_a_fresh_net_and_leaves_labels_alone() -> None:
    method, train, engine = ready(epochs=12, first_stage=6)
    for epoch in range(6):
        run_pass(method, train, engine, epoch)
    with torch.no_grad():
        method.net.head.bias += 1.0
    labels = method.targets.values.clone()
    parts = []
    for epoch in range(6, 12):
        parts += method.passes(epoch, train)
        if epoch == 6:
            start = method.fresh.state_dict()
            assert all(torch.equal(v, start[k]) for k, v in method.net.state_dict().items())
            assert method.net.head.bias is not method.fresh.head.bias
    assert [part.restart for part in parts] == [("net",)] + 5 * [()]
    assert [part.lr_scale for part in parts] == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])
    batch = next(iter(train.batches(parts[-1], 11, 0)))
    engine.begin_pass(parts[-1])
    assert set(method.update(batch, engine)) == {"ce"}
    assert torch.equal(method.targets.values, labels)


def test_the_first_stage_has_the_rate_of_the_run_throughout() -> None:
    method, train, _ = ready(epochs=12, first_stage=6)
    parts = [part for epoch in range(6) for part in method.passes(epoch, train)]
    assert [part.lr_scale for part in parts] == [1.0] * 6


def test_the_fresh_net_is_another_draw() -> None:
    method, _, _ = ready()
    assert not torch.equal(method.net.head.weight, method.fresh.head.weight)


def test_trusted_rows_keep_their_label_and_others_take_the_prediction() -> None:
    method, train, engine = ready(trusted=torch.arange(ROWS) < 5, label_start=1)
    with torch.no_grad():
        method.net.head.bias += torch.tensor([0.0, 0.0, 30.0])
    run_pass(method, train, engine, 0)
    labels = method.purify(train, train.predict(method.deployed())).labels
    assert torch.equal(labels[:5], train.observed[:5])
    assert (labels[5:] == 2).all()


def test_stages_are_scaled_to_the_run() -> None:
    assert ready(epochs=320)[0].resolved() == {
        "label_start": 70,
        "first_stage": 200,
        "window": 10,
    }
    assert ready(epochs=64)[0].resolved() == {"label_start": 14, "first_stage": 40, "window": 2}
    method, train, engine = ready(epochs=1)
    run_pass(method, train, engine, 0)
    assert method.resolved()["first_stage"] == 1


def test_a_window_is_never_longer_than_what_was_predicted() -> None:
    assert ready(window=8, label_start=2)[0].resolved()["window"] == 2


class Two:
    """The first of two processes, with a share of the rows; the other's are known."""

    def __init__(self, others: Tensor) -> None:
        self.others = others

    def all_gather(self, t: Tensor) -> Tensor:
        return torch.cat([t.detach(), self.others.detach()])

    def local_slice(self, t: Tensor) -> Tensor:
        return t[: len(t) - len(self.others)]


def test_the_prior_of_shares_has_the_slope_of_the_whole_batch() -> None:
    method, _, _ = ready()
    logits = torch.randn(6, CLASSES, requires_grad=True)
    whole = prior_loss(method, logits.softmax(1))
    (expected,) = torch.autograd.grad(whole, logits)
    found = torch.zeros_like(expected)
    for own in (torch.arange(2), torch.arange(2, 6)):
        p = logits.softmax(1)
        rest = torch.tensor([i for i in range(6) if i not in own])
        method.distributed = Two(p[rest])
        value = prior_loss(method, p[own])
        assert value.item() == pytest.approx(whole.item(), rel=1e-5)
        found += torch.autograd.grad(value, logits)[0] * len(own) / 6  # as the engine weighs it
    torch.testing.assert_close(found, expected)


def test_the_prior_of_a_class_that_is_never_predicted_is_finite() -> None:
    method, _, _ = ready()
    logits = torch.tensor([[0.0, -1e4, 0.0]], requires_grad=True)
    loss = prior_loss(method, logits.softmax(1))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()
