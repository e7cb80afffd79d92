"""What flows between the packages: batches, passes, purified labels, and two protocols.

Nothing here holds the true labels; they go to `colafier.train.metrics` by another door.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Batch:
    """Rows that are learned from in one step; of several processes, the share of this one."""

    index: Tensor  # (b,) row numbers
    y: Tensor  # (b,) given labels
    views: tuple[Tensor, ...]  # one (b, ...) tensor for each name in the method's `views`
    epoch: int
    progress: (
        float  # epoch plus the fraction of the pass that is done: 3.25 is a quarter into epoch 3
    )
    tag: str = "train"
    paired: "Batch | None" = None

    @property
    def x(self) -> Tensor:
        """The first view."""
        return self.views[0]

    def to(self, device: torch.device) -> "Batch":
        """A copy of this batch on a device."""
        return replace(
            self,
            index=self.index.to(device),
            y=self.y.to(device),
            views=tuple(view.to(device) for view in self.views),
            paired=self.paired.to(device) if self.paired is not None else None,
        )

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Pass:
    """One walk over rows of the training set; an epoch is one or several of them."""

    rows: Tensor | None = None  # row numbers; None: every labelled row
    paired: Tensor | None = None  # row numbers drawn beside them, restarted when used up
    tag: str = "train"
    optimizers: tuple[str, ...] | None = None  # names of those that step; None: all
    restart: tuple[str, ...] = ()  # names of optimizers whose state is cleared first
    lr_scale: float | None = None  # of the optimizers' rates; None: as the run's falls
    lr_span: tuple[int, int] | None = None  # epochs over which that falls; None: the whole run
    batch_size: int | None = None  # None: the run's
    drop_last: bool = False


@dataclass(frozen=True)
class Purified:
    """What a method says about the rows after training; every tensor has n rows in input order."""

    labels: Tensor  # (n,) the labels that the method believes
    quality: Tensor  # (n,) in [0, 1], low where the given label is suspicious
    columns: dict[str, Tensor] = field(default_factory=dict)  # name -> (n,) more per-row results
    notes: dict[str, float | int | str] = field(default_factory=dict)  # why it decided as it did
    opinions: dict[str, Tensor] = field(default_factory=dict)  # who -> (n,) class it sees, -1: none
    course: Tensor | None = None  # (n, t) probability of the given label as the training went on


class TrainSet(Protocol):
    """The rows as a method may see them: without the truth, by construction."""

    n: int
    num_classes: int
    given: Tensor  # (n,) labels that came with the data
    trusted: Tensor  # (n,) bool: a person decided this label
    labelled: Tensor  # (n,) bool: rows that have a label at all
    came: Tensor | None  # (n,) labels before decisions, where trusted rows hold these in `given`

    def holdout(self, fraction: float) -> Tensor:
        """Row numbers of a random share of the labelled rows, the same at each call."""

    def predict(self, module: nn.Module, rows: Tensor | None = None) -> Tensor:
        """Probabilities (n or len(rows), c) of a classifier in eval mode, without augmentation."""


Terms = dict[str, Tensor]  # name -> scalar; the sum of those with a gradient is minimised


class Engine(Protocol):
    """Takes the optimizer step."""

    def minimize(
        self, loss: Callable[[Batch], Terms], batch: Batch, only: tuple[str, ...] = ()
    ) -> Terms:
        """Backward, average over processes, step (`only` these optimizers), commit staged rows."""


class Peers(Protocol):
    """The processes that share each batch."""

    def gather(self, t: Tensor) -> Tensor:
        """Rows of all processes, in the order of the global batch, without gradient."""

    def own(self, t: Tensor) -> Tensor:
        """This process's part of a tensor that has the rows of the last `gather`."""


class Alone:
    """One process: its batch is the whole batch."""

    def gather(self, t: Tensor) -> Tensor:
        """The rows themselves, without gradient."""
        return t.detach()

    def own(self, t: Tensor) -> Tensor:
        """The rows themselves."""
        return t


MakeNet = Callable[[], Any]  # makes a fresh `nets.Classifier`, which stands below this module
MakeOptimizer = Callable[..., torch.optim.Optimizer]
Passes = Iterator[Pass]
