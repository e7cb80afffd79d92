"""ELR's targets and loss, from its paper."""

from math import log
from typing import Any

import pytest
import torch

from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch
from colafier.methods.elr import EarlyLearning
from colafier.methods.row_table import RowTable
from colafier.nets import net_factory
from colafier.training.training_set import TrainingSet

N = 10
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
OBSERVED = torch.arange(N) % 3


def ready(**settings: Any) -> tuple[EarlyLearning, Batch]:
    torch.manual_seed(0)
    method = EarlyLearning(**settings)
    train = TrainingSet(X, Labels(OBSERVED), 3, view_names=method.views, batch_size=N)
    method.setup(net_factory("mlp", (4,), 3), train, 5)
    (part,) = method.passes(0, train)
    return method, next(iter(train.batches(part, 0, 0)))


def commit(method: EarlyLearning) -> None:
    for table in method.modules():
        if isinstance(table, RowTable) and (staged := table.take_staged()):
            table.commit(*staged)
            table.begin_pass()


def visit(method: EarlyLearning, batch: Batch) -> dict[str, float]:
    terms = {name: float(term.detach()) for name, term in method.loss(batch).items()}
    commit(method)
    return terms


def certain(method: EarlyLearning, label: int) -> None:
    """The net is as confident of one class as numbers allow."""
    with torch.no_grad():
        method.net.head.weight.zero_()
        method.net.head.bias.copy_(100.0 * torch.eye(3)[label])


def test_targets_and_loss_row_by_row_over_two_visits() -> None:
    method, batch = ready()
    slow = [[0.0] * 3 for _ in range(N)]
    for _ in range(2):
        p = method.net(batch.x).softmax(1).tolist()  # nothing here is near 0 or 1
        expected = {"ce": 0.0, "elr": 0.0}
        for i, (row, label) in enumerate(zip(batch.index.tolist(), batch.y.tolist(), strict=True)):
            slow[row] = [0.7 * t + 0.3 * q for t, q in zip(slow[row], p[i], strict=True)]
            agreement = sum(t * q for t, q in zip(slow[row], p[i], strict=True))
            expected["ce"] -= log(p[i][label]) / N
            expected["elr"] += 3 * log(1 - agreement) / N
        assert visit(method, batch) == pytest.approx(expected, rel=1e-5)
        torch.testing.assert_close(method.targets.values, torch.tensor(slow))
        with torch.no_grad():
            method.net.head.bias += torch.tensor([0.5, -0.5, 0.0])


def test_the_first_target_is_a_share_of_the_clamped_prediction() -> None:
    method, batch = ready(momentum=0.9)
    certain(method, 1)
    visit(method, batch)
    p = torch.tensor([1e-4, 1 - 1e-4, 1e-4])
    torch.testing.assert_close(method.targets.values, (0.1 * p / p.sum()).expand(N, 3))


def test_the_net_learns_with_targets_held_fixed() -> None:
    method, batch = ready()
    method.targets.values = torch.rand(N, 3).softmax(1)
    p = method.net(batch.x).softmax(1)
    targets = (0.7 * method.targets[batch.index] + 0.3 * p).detach()
    expected = {
        "ce": -p.log()[torch.arange(N), batch.y].mean(),
        "elr": 3 * (1 - (targets * p).sum(1)).log().mean(),
    }
    parameters = list(method.net.parameters())
    for name, term in method.loss(batch).items():
        found, slow = (
            torch.autograd.grad(value, parameters, retain_graph=True)
            for value in (term, expected[name])
        )
        torch.testing.assert_close(found, slow, rtol=1e-4, atol=1e-6)


def test_the_loss_may_be_negative_and_is_bounded() -> None:
    method, batch = ready()
    certain(method, 0)
    for _ in range(60):
        terms = visit(method, batch)
    # 1 - <t, p> is 1e-4 for each class when both are as sure as the clamp lets them be
    assert terms["elr"] == pytest.approx(3 * log(3e-4), rel=1e-2)


def test_without_weight_it_is_cross_entropy() -> None:
    method, batch = ready(weight=0.0)
    terms = visit(method, batch)
    ce = torch.nn.functional.cross_entropy(method.net(batch.x), batch.y)
    assert sum(terms.values()) == pytest.approx(float(ce.detach()))
