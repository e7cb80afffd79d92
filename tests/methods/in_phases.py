"""For tests of methods that train in phases: rows, epochs, losses to compare, two processes."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch, Method, Terms
from colafier.nets import net_factory
from colafier.training.distributed import Processes
from colafier.training.engine import Engine
from colafier.training.optimizers import OptimizerSettings
from colafier.training.training_set import TrainingSet

ROWS, CLASSES = 60, 3
OBSERVED = torch.arange(ROWS) % CLASSES
Kind = TypeVar("Kind", bound=Method)


def ready(
    method: Kind, epochs: int = 6, observed: Tensor = OBSERVED, trusted: Tensor | None = None
) -> tuple[Kind, TrainingSet]:
    """The method after `setup`, and its rows, which are one batch."""
    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(1)) + OBSERVED[:, None]
    labels = Labels(observed, trusted=trusted)
    rows = TrainingSet(x, labels, CLASSES, view_names=method.views, batch_size=ROWS)
    torch.manual_seed(0)
    method.setup(net_factory("mlp", rows.row_shape, CLASSES), rows, epochs)
    return method, rows


def run_pass(method: Method, rows: TrainingSet, epochs: Sequence[int]) -> None:
    """Train for these epochs, as the trainer does."""
    engine = Engine(method, OptimizerSettings(), Processes())
    for epoch in epochs:
        for part in method.passes(epoch, rows):
            engine.begin_pass(part)
            for batch in rows.batches(part, epoch, 0):
                method.update(batch, engine)


def confident(classes: Tensor, sure: float) -> Tensor:
    """Predictions (n, c) with this probability of these classes, and the rest spread evenly."""
    one = torch.nn.functional.one_hot(classes, CLASSES).float()
    return sure * one + (1 - sure) / (CLASSES - 1) * (1 - one)


def act(
    method: Method, net: Any, rows: TrainingSet, script: Sequence[Tensor], epoch: int = 0
) -> None:
    """Epochs without training: after each, the net predicts what the script has for it.

    The bias of the net's head is the number of its place in the script.
    """

    def predict(module: Any, some: Tensor | None = None) -> Tensor:
        p = script[int(module.head.bias[0].item())]  # (n, c)
        return p if some is None else p[some]

    rows.predict = predict  # type: ignore[assignment, method-assign]
    for place in range(len(script)):
        for _ in method.passes(epoch + place, rows):
            torch.nn.init.constant_(net.head.bias, place)


def batch_at(method: Method, rows: TrainingSet, epoch: int) -> Batch:
    """The first batch of an epoch."""
    return next(iter(rows.batches(next(iter(method.passes(epoch, rows))), epoch, 0)))


def share_of(batch: Batch, rows: slice) -> Batch:
    """What one of several processes gets of a batch."""
    views = tuple(view[rows] for view in batch.views)
    return Batch(batch.index[rows], batch.y[rows], views, batch.epoch, batch.progress)


class FakeDistributed:
    """One of two processes; what the other one gathers was recorded before."""

    def __init__(self, others: list[Tensor], first: bool) -> None:
        self.others = others
        self.first = first

    def all_gather(self, t: Tensor) -> Tensor:
        other = self.others.pop(0)
        return torch.cat([t.detach(), other] if self.first else [other, t.detach()])

    def local_slice(self, t: Tensor) -> Tensor:
        raise NotImplementedError


class Recorder:
    """A single process that records what it gathers."""

    def __init__(self) -> None:
        self.gathered: list[Tensor] = []

    def all_gather(self, t: Tensor) -> Tensor:
        self.gathered.append(t.detach())
        return t.detach()

    def local_slice(self, t: Tensor) -> Tensor:
        return t


def gradient(method: Method, batch: Batch) -> Tensor:
    """Of the deployed classifier, flat."""
    return slope(method, learned(method.loss(batch)))


def learned(terms: Terms) -> Tensor:
    """What the engine minimizes."""
    return torch.stack([term for term in terms.values() if term.requires_grad]).sum()


def slope(method: Method, loss: Tensor) -> Tensor:
    """Of a loss in the deployed classifier, flat."""
    method.zero_grad()
    loss.backward()
    parameters = method.deployed().parameters()
    return torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])


def assert_minimizes(
    method: Method, batch: Batch, slow: Tensor, rtol: float = 1e-3, atol: float = 1e-5
) -> None:
    """That this is the loss of a batch, as written down row by row: in its value and its slope."""
    expected = slope(method, slow)
    loss = learned(method.loss(batch))
    torch.testing.assert_close(loss.detach(), slow.detach(), rtol=rtol, atol=atol)
    torch.testing.assert_close(slope(method, loss), expected, rtol=rtol, atol=atol)


def assert_terms(
    net: nn.Module, terms: Mapping[str, Tensor], slow: Mapping[str, Tensor], atol: float = 1e-6
) -> None:
    """That each term is as written down row by row, in its value and in its slope for a net."""
    torch.testing.assert_close(terms, slow, rtol=1e-4, atol=1e-6)
    parameters = list(net.parameters())
    for name, term in terms.items():
        found, expected = (
            torch.autograd.grad(value, parameters, retain_graph=True)
            for value in (term, slow[name])
        )
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=atol)


def joint_gradient(method: Method, batch: Batch, cut: int) -> Tensor:
    """What two processes learn that share a batch, averaged over rows as the engine does."""
    shares = [share_of(batch, slice(0, cut)), share_of(batch, slice(cut, len(batch)))]
    gathered = []
    for share in shares:
        method.distributed = Recorder()
        method.loss(share)
        gathered.append(method.distributed.gathered)
    total = torch.zeros(())
    for i, share in enumerate(shares):
        method.distributed = FakeDistributed(gathered[1 - i], first=i == 0)
        total = total + gradient(method, share) * len(share) / len(batch)
    return total
