"""Generalized cross entropy, and which rows its truncated form prunes, and when."""

from typing import Any

import pytest
import torch
from torch import Tensor

from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch
from colafier.methods.gce import GeneralizedCrossEntropy
from colafier.nets import net_factory
from colafier.training.training_set import TrainingSet

N = 24
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(0))
OBSERVED = torch.arange(N) % 3


def ready(
    observed: Tensor = OBSERVED, trusted: Tensor | None = None, epochs: int = 12, **settings: Any
) -> tuple[GeneralizedCrossEntropy, TrainingSet]:
    torch.manual_seed(0)
    method = GeneralizedCrossEntropy(**settings)
    train = TrainingSet(
        X, Labels(observed, trusted=trusted), 3, view_names=method.views, batch_size=N
    )
    method.setup(net_factory("mlp", (4,), 3), train, epochs)
    return method, train


def first_batch(method: GeneralizedCrossEntropy, train: TrainingSet, epoch: int) -> Batch:
    (part,) = method.passes(epoch, train)
    return next(iter(train.batches(part, epoch, 0)))


def slow(method: GeneralizedCrossEntropy, batch: Batch, kept: set[int]) -> float:
    p = method.net(batch.x).softmax(1).tolist()
    total = 0.0
    for i, (row, label) in enumerate(zip(batch.index.tolist(), batch.y.tolist(), strict=True)):
        total += (1 - p[i][label] ** 0.7) / 0.7 if row in kept else 0.0
    return total / len(batch)


def test_loss_row_by_row() -> None:
    method, train = ready()
    batch = first_batch(method, train, 11)
    loss = float(method.loss(batch)["gce"].detach())
    assert loss == pytest.approx(slow(method, batch, set(range(N))), rel=1e-5)


def test_truncated_learns_only_from_rows_whose_label_is_likely() -> None:
    method, train = ready(truncated=True, threshold=0.34, first_pruning=1, interval=1)
    before = first_batch(method, train, 0)
    assert method.kept.values.all()
    p = train.predict(method.net)
    kept = {i for i in range(N) if float(p[i, OBSERVED[i]]) > 0.34}
    assert 0 < len(kept) < N
    batch = first_batch(method, train, 1)
    assert set(method.kept.values.nonzero()[:, 0].tolist()) == kept
    loss = float(method.loss(batch)["gce"].detach())
    assert loss == pytest.approx(slow(method, batch, kept), rel=1e-5)
    assert loss < float(method.loss(before)["gce"].detach())


def test_a_pruned_row_may_come_back() -> None:
    method, train = ready(truncated=True, threshold=0.34, first_pruning=0, interval=1)
    method.kept.values.zero_()
    first_batch(method, train, 0)
    assert method.kept.values.any()


def test_prunings_are_scaled_from_the_authors_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    method, train = ready(truncated=True, epochs=60)
    assert method.resolved() == {"first_pruning": 20, "interval": 5}
    prunings: list[int] = []
    monkeypatch.setattr(method, "_prune", lambda _: prunings.append(epoch))
    for epoch in range(60):
        list(method.passes(epoch, train))
    assert prunings == [20, 25, 30, 35, 40, 45, 50, 55]


def test_without_truncation_nothing_is_pruned() -> None:
    method, train = ready(threshold=0.9, first_pruning=0, interval=1)
    first_batch(method, train, 3)
    assert method.kept.values.all()


def test_if_no_label_is_likely_enough_all_rows_count() -> None:
    method, train = ready(truncated=True, threshold=1.0, first_pruning=0)
    first_batch(method, train, 0)
    assert method.kept.values.all()


def test_trusted_rows_are_never_pruned_and_rows_without_label_never_kept() -> None:
    trusted = torch.arange(N) < 6
    observed = torch.where(torch.arange(N) >= 20, -1, OBSERVED)
    method, train = ready(observed, trusted, truncated=True, threshold=0.999, first_pruning=0)
    first_batch(method, train, 0)
    assert torch.equal(method.kept.values.bool(), trusted)
