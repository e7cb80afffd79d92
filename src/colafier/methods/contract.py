"""The method contract: a method is a module, and only `loss` must be written.

Nothing here holds the true labels: only `colafier.training.metrics` is given them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from colafier.methods.row_table import RowTable as RowTable


@dataclass(frozen=True, init=False, eq=False)  # tensors have no plain equality
class Labels:
    """The labels of n rows as class numbers, -1 where a row has none; on the CPU.

    Args:
        observed: What training starts from (n,).
        original: What came with the data (n,), where trusted rows hold something else in
            `observed`; None: nothing is known about what trusted rows had.
        trusted: Rows whose label a person decided, as a boolean mask; None: no row.
    """

    observed: Tensor  # (n,)
    original: Tensor | None  # (n,)
    trusted: Tensor  # (n,) bool

    def __init__(
        self, observed: Tensor, original: Tensor | None = None, trusted: Tensor | None = None
    ) -> None:
        nobody = torch.zeros(len(observed), dtype=torch.bool)
        object.__setattr__(self, "observed", observed.long().cpu())
        object.__setattr__(self, "original", None if original is None else original.long().cpu())
        object.__setattr__(self, "trusted", nobody if trusted is None else trusted.cpu())

    @property
    def labeled(self) -> Tensor:
        """Rows that have a label at all (n,)."""
        return self.observed >= 0

    @property
    def doubtful(self) -> Tensor:
        """Rows with a label that nobody decided (n,)."""
        return self.labeled & ~self.trusted

    def __len__(self) -> int:
        return len(self.observed)


@dataclass(frozen=True)
class Batch:
    """Rows that are learned from in one step; of several processes, the share of this one."""

    index: Tensor  # (b,) row numbers
    y: Tensor  # (b,) observed labels
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

    rows: Tensor | None = None  # row numbers; None: every labeled row
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
    quality: Tensor  # (n,) in [0, 1], low where the observed label is suspicious
    columns: dict[str, Tensor] = field(default_factory=dict)  # name -> (n,) more per-row results
    diagnostics: dict[str, float | int | str] = field(
        default_factory=dict
    )  # why it decided as it did
    votes: dict[str, Tensor] = field(default_factory=dict)  # who -> (n,) class it sees, -1: none
    trajectory: Tensor | None = None  # (n, t) probability of the observed label during training

    def cpu(self) -> "Purified":
        """The same on the CPU."""
        return replace(
            self,
            labels=self.labels.cpu(),
            quality=self.quality.cpu(),
            columns={name: column.cpu() for name, column in self.columns.items()},
            votes={name: classes.cpu() for name, classes in self.votes.items()},
            trajectory=None if self.trajectory is None else self.trajectory.cpu(),
        )


class TrainSet(Protocol):
    """The rows as a method may see them: without the truth, by construction."""

    n: int
    num_classes: int
    observed: Tensor  # (n,) labels that came with the data
    trusted: Tensor  # (n,) bool: a person decided this label
    labeled: Tensor  # (n,) bool: rows that have a label at all
    original: (
        Tensor | None
    )  # (n,) labels before decisions, where trusted rows hold these in `observed`

    def holdout(self, fraction: float) -> Tensor:
        """Row numbers of a random share of the labeled rows, the same at each call."""

    def predict(self, module: nn.Module, rows: Tensor | None = None) -> Tensor:
        """Probabilities (n or len(rows), c) of a classifier in eval mode, without augmentation."""


Terms = dict[str, Tensor]  # name -> scalar; the sum of those with a gradient is minimised


class Engine(Protocol):
    """Takes the optimizer step."""

    def minimize(
        self, loss: Callable[[Batch], Terms], batch: Batch, only: tuple[str, ...] = ()
    ) -> Terms:
        """Backward, average over processes, step (`only` these optimizers), commit staged rows."""


class DistributedContext(Protocol):
    """The processes that share each batch."""

    def all_gather(self, t: Tensor) -> Tensor:
        """Rows of all processes, in the order of the global batch, without gradient."""

    def local_slice(self, t: Tensor) -> Tensor:
        """This process's part of a tensor that has the rows of the last `all_gather`."""


class SingleProcess:
    """One process: its batch is the whole batch."""

    def all_gather(self, t: Tensor) -> Tensor:
        """The rows themselves, without gradient."""
        return t.detach()

    def local_slice(self, t: Tensor) -> Tensor:
        """The rows themselves."""
        return t


MakeNet = Callable[[], Any]  # makes a fresh `nets.Classifier`, which stands below this module
MakeOptimizer = Callable[..., torch.optim.Optimizer]
Passes = Iterator[Pass]


class Method(nn.Module):
    """Base of all methods: networks, copies and row tables are submodules, so they are all saved.

    One paper is one file in `colafier.methods`, with one class whose CLI word is the file's name.
    Constructor arguments are its hyper-parameters, keyword-only, and are only stored.
    """

    reference: ClassVar[str] = ""  # authors, title, venue and year
    year: ClassVar[int] = 0
    num_nets: ClassVar[int] = 1
    needs_noise_rate: ClassVar[bool] = False
    can_warm_start: ClassVar[bool] = True  # whether a finished run can be trained for more epochs
    features_defaults: ClassVar[dict[str, Any]] = {}  # hyper-parameters on features of a net

    views: tuple[str, ...] = ("weak",)
    net: Any  # whatever `setup` builds

    def __init__(self) -> None:
        super().__init__()
        self.distributed: DistributedContext = SingleProcess()

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Build networks and tables for a run of this many epochs."""
        self.net = make_net()

    def reset_beliefs(self, train: TrainSet) -> None:
        """A finished run goes on, with rows that a person has decided since.

        Row tables of trusted rows already hold what was decided.
        """

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """Named optimizers; `make(params, **overrides)` starts from the run's settings."""
        return {"net": make(self.parameters())}

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """The walks of one epoch; code before a `yield` is its begin, code after it its end."""
        yield Pass()

    def loss(self, batch: Batch) -> Terms:
        """Named terms; those with a gradient are summed and minimized, others only logged."""
        raise NotImplementedError

    def update(self, batch: Batch, engine: Engine) -> Terms:
        """One step; replaced only for what comes after it, or for two steps."""
        return engine.minimize(self.loss, batch)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (b, c) of the classifier that is deployed."""
        logits: Tensor = self.deployed()(x)
        return logits

    def deployed(self) -> nn.Module:
        """The classifier to keep: a plain module without row tables."""
        net: nn.Module = self.net
        return net

    def members(self) -> list[nn.Module]:
        """The single classifiers of a method with several, for papers that score each."""
        return [self.deployed()]

    def all_gather(self, t: Tensor) -> Tensor:
        """Rows of all processes, in the order of the global batch, without gradient."""
        return self.distributed.all_gather(t)

    def local_slice(self, t: Tensor) -> Tensor:
        """This process's part of something computed from gathered rows."""
        return self.distributed.local_slice(t)

    def resolved(self) -> dict[str, Any]:
        """After `setup`: what hyper-parameters that leave a choice open came to, for the record."""
        return {}

    def rows_now(self) -> dict[str, Tensor]:
        """Per-row values to be scored after each epoch.

        `labels`: what the method believes now. `judged`: the labels that this epoch's scores are
        about. Every other key is a score of this epoch that is high for wrong labels.
        """
        return {}

    def purify(self, train: TrainSet, probabilities: Tensor) -> Purified:
        """The method's labels and scores; by default the deployed classifier's predictions.

        Args:
            train: The rows.
            probabilities: Of the deployed classifier for all rows (n, c).
        """
        observed = train.observed.to(probabilities.device)
        keep = (train.trusted | ~train.labeled).to(probabilities.device)
        known = observed.clamp(min=0)  # rows without a label hold -1
        quality = probabilities.gather(1, known[:, None])[:, 0]
        labels = torch.where(keep, observed, probabilities.argmax(1))
        return Purified(labels, quality)
