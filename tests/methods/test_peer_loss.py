"""Peer loss row by row, its schedule, and where peers' labels come from."""

from math import inf
from typing import Any

import pytest
import torch
from in_phases import assert_minimizes
from torch import Tensor

from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch
from colafier.methods.peer_loss import PeerLoss
from colafier.nets import net_factory
from colafier.training.training_set import TrainingSet

N = 20
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
OBSERVED = torch.arange(N) % 3


def ready(
    observed: Tensor = OBSERVED, epochs: int = 300, **settings: Any
) -> tuple[PeerLoss, Batch]:
    torch.manual_seed(0)
    method = PeerLoss(**settings)
    train = TrainingSet(X, Labels(observed), 4, view_names=method.views, batch_size=N)
    method.setup(net_factory("mlp", (4,), 4), train, epochs)
    (part,) = method.passes(0, train)
    return method, next(iter(train.batches(part, 0, 0)))


def at(batch: Batch, epoch: int) -> Batch:
    return Batch(batch.index, batch.y, batch.views, epoch, float(epoch))


def test_loss_row_by_row() -> None:
    method, batch = ready()
    torch.manual_seed(3)
    peers = torch.multinomial(OBSERVED.bincount(minlength=4).float(), N, replacement=True).tolist()
    p = method.net(batch.x).softmax(1)
    own = peer = torch.zeros(())
    for i, y in enumerate(batch.y.tolist()):
        own = own - (p[i, y] + 1e-5).log() / N
        peer = peer - (p[i, peers[i]] + 1e-5).log() / N
    torch.manual_seed(3)
    middle = at(batch, 65)  # of the phase from 1 to 2
    assert_minimizes(method, middle, (own - 1.5 * peer) / 2.5)


def test_warm_up_is_cross_entropy() -> None:
    method, batch = ready()
    terms = method.loss(at(batch, 19))
    ce = torch.nn.functional.cross_entropy(method.net(batch.x), batch.y)
    torch.testing.assert_close(terms["ce"], ce, rtol=1e-3, atol=1e-3)
    assert float(terms["peer"].detach()) == 0


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (
            "uniform",
            {0: 0, 19: 0, 30: 0.05, 39: 0.095, 40: 1, 90: 2, 140: 2.5, 240: 3.3, 270: 3.81},
        ),
        ("sparse", {0: 0, 20: 0, 30: 0.5, 40: 1, 90: 2, 140: 5, 240: 10, 270: 13}),
    ],
)
def test_alpha_follows_the_authors_schedule(schedule: Any, expected: dict[int, float]) -> None:
    method, _ = ready(schedule=schedule, max_weight=inf)
    assert {epoch: method.weight_at(epoch) for epoch in expected} == pytest.approx(expected)


def test_the_schedule_is_scaled_and_ends_where_alpha_may_go() -> None:
    method, _ = ready(epochs=48)
    assert method.resolved() == {"warmup": 20, "phase_ends": [22, 27, 32, 42, 52]}
    alphas = [method.weight_at(epoch) for epoch in range(48)]
    assert alphas == sorted(alphas)
    assert alphas[27:] == [2.0] * 21


def test_plain_training_takes_no_more_than_half_of_the_run() -> None:
    method, _ = ready(epochs=15)
    assert method.resolved() == {"warmup": 7, "phase_ends": [8, 9, 10, 13, 16]}


def test_a_run_that_is_shorter_than_the_schedule_has_its_order() -> None:
    method, _ = ready(epochs=2)
    assert [method.weight_at(epoch) for epoch in range(2)] == [0.0, 2.0]


def test_peers_labels_are_drawn_like_the_observed_ones() -> None:
    observed = torch.tensor([0] * 12 + [2] * 4 + [-1] * 4)
    method, _ = ready(observed)
    torch.testing.assert_close(method.shares, torch.tensor([0.75, 0.0, 0.25, 0.0]))
