"""The method contract: a method is a module, and only `loss` must be written.

Nothing here gives a method the true labels: only `colafier.training.metrics` has them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from colafier._validation import Range as Range
from colafier.methods.row_table import RowTable as RowTable


@dataclass(frozen=True)
class Batch:
    """The rows of one training step; with several processes, this process's share of them."""

    index: Tensor  # (b,) row numbers
    y: Tensor  # (b,) observed labels
    views: tuple[Tensor, ...]  # one (b, ...) tensor for each name in the method's `views`
    epoch: int
    progress: float  # epoch plus the finished fraction of the pass: 3.25 is a quarter into epoch 3
    tag: str = "train"  # of the pass that the batch belongs to
    paired: "Batch | None" = None  # rows drawn next to these, if the pass asks for them

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
    """One pass over rows of the training set; an epoch has one or several passes."""

    rows: Tensor | None = None  # row numbers; None: every labeled row
    paired: Tensor | None = None  # row numbers for `Batch.paired`; starts over when used up
    tag: str = "train"  # copied to each batch; names the pass in the log
    optimizers: tuple[str, ...] | None = None  # names of the optimizers that step; None: all
    restart: tuple[str, ...] = ()  # names of optimizers whose state is cleared first
    lr_scale: float | None = None  # fixed factor on the learning rate; None: the run's schedule
    lr_span: tuple[int, int] | None = None  # epochs that the schedule covers; None: the whole run
    batch_size: int | None = None  # None: the run's
    drop_last: bool = False  # whether a last batch that is not full is left out


@dataclass(frozen=True)
class Purified:
    """A method's result for the rows; every tensor has n rows in input order.

    Args:
        labels: The labels that the method believes (n,).
        quality: Quality of the observed labels (n,), from 0 (surely wrong) to 1.
        columns: More per-row results by name, each (n,).
        diagnostics: Figures that explain the result, for the record of the run.
        votes: Class that each part of the method predicts (n,), -1 for none, by its name.
        trajectory: Probability of the observed label in the course of training (n, t).
    """

    labels: Tensor
    quality: Tensor
    columns: dict[str, Tensor] = field(default_factory=dict)
    diagnostics: dict[str, float | int | str] = field(default_factory=dict)
    votes: dict[str, Tensor] = field(default_factory=dict)
    trajectory: Tensor | None = None

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
    """The training rows as a method may see them: without the truth, by construction.

    All tensors are on the CPU.
    """

    n: int
    num_classes: int
    row_shape: tuple[int, ...]  # (d,) of vectors, (channels, height, width) of images
    observed: Tensor  # (n,) labels that training starts from; -1: the row has none
    trusted: Tensor  # (n,) bool: a person decided this label
    labeled: Tensor  # (n,) bool: the row has a label
    original: Tensor | None  # (n,) labels that came with the data; None: the observed ones

    def holdout(self, fraction: float) -> Tensor:
        """Row numbers of a random share of the labeled rows, the same at every call."""

    def predict(self, module: nn.Module, rows: Tensor | None = None) -> Tensor:
        """Probabilities (n, c) of a classifier in eval mode, without augmentation.

        Args:
            module: Maps views to logits.
            rows: Row numbers, for the probabilities of these rows only.
        """

    def update_batch_norm(self, module: nn.Module) -> None:
        """Give BatchNorm in a classifier the statistics of rows without augmentation."""

    def out_of_fold(self) -> Tensor | None:
        """P(class | row) by small heads that never saw the row's own label (n, c).

        Only for rows that are vectors; None for images, where this would take too long.
        """


Terms = dict[str, Tensor]  # name -> scalar; the sum of those with a gradient is minimized


class Engine(Protocol):
    """Takes the optimizer step."""

    def minimize(
        self, loss: Callable[[Batch], Terms], batch: Batch, only: tuple[str, ...] = ()
    ) -> Terms:
        """Backward pass, mean gradient of all processes, optimizer step, commit of row tables.

        Args:
            loss: Computes the terms.
            batch: Rows to compute them from.
            only: Names of the optimizers that step; empty: all.
        """


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


MakeNet = Callable[[], Any]  # makes a new `nets.Classifier`, with random weights
MakeOptimizer = Callable[..., torch.optim.Optimizer]  # make(params, **overrides of the settings)
Passes = Iterator[Pass]


class Method(nn.Module):
    """Base class of all methods.

    Networks, copies of them and row tables are submodules, so checkpoints contain all of them. One
    paper is one file with one class, and the name of the file is its name on the command line.
    Arguments of the constructor are the hyper-parameters. They are keyword-only, are only stored,
    and declare their range (`rate: Annotated[float, Range(0, 1)] = 0.5`), which is checked when the
    method is built by its name.
    """

    reference: ClassVar[str] = ""  # authors, title and venue
    year: ClassVar[int] = 0
    num_nets: ClassVar[int] = 1
    needs_noise_rate: ClassVar[bool] = False  # a hyper-parameter `noise_rate` gets the true rate
    can_warm_start: ClassVar[bool] = True  # whether a finished run can be trained further

    # what the method chooses where a run leaves init, input_statistics, dtype or lr_floor open
    run_defaults: Mapping[str, Any] = MappingProxyType({})
    views: tuple[str, ...] = ("weak",)  # augmentations of each row: weak, strong or plain
    net: Any  # the classifier, which `setup` makes

    def __init__(self) -> None:
        super().__init__()
        self.distributed: DistributedContext = SingleProcess()

    @classmethod
    def preparation(cls, epochs: int) -> tuple[int, dict[str, Any]]:  # noqa: ARG003
        """Epochs before the deployed net starts, and hyper-parameters that fix their number.

        For methods whose first net only prepares the training of the deployed one. The benchmark
        adds these epochs to the run, so that all deployed nets train equally long.

        Args:
            epochs: Epochs of a run.
        """
        return 0, {}

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Build networks and tables for a run of this many epochs."""
        self.net = make_net()

    def reset_beliefs(self, train: TrainSet) -> None:
        """Prepare a finished run for more epochs, after a person has decided some of the rows.

        In row tables that know the trusted rows, these rows already hold the decisions.
        """

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """Named optimizers; `make(params, **overrides)` starts from the run's settings."""
        return {"net": make(self.parameters())}

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """The passes of one epoch, each run where it is yielded.

        So code before a `yield` prepares that pass, and code after it sees what was learned.
        """
        yield Pass()

    def loss(self, batch: Batch) -> Terms:
        """Named terms: those with a gradient are summed and minimized, the others only logged."""
        raise NotImplementedError

    def update(self, batch: Batch, engine: Engine) -> Terms:
        """One training step; override it to do something after the step, or to take two steps."""
        return engine.minimize(self.loss, batch)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the deployed classifier (b, c)."""
        logits: Tensor = self.deployed()(x)
        return logits

    def deployed(self) -> nn.Module:
        """The classifier to keep: a plain module without row tables."""
        net: nn.Module = self.net
        return net

    def members(self) -> list[nn.Module]:
        """The classifiers of a method one by one, for papers that score each of several nets."""
        return [self.deployed()]

    def all_gather(self, t: Tensor) -> Tensor:
        """Rows of all processes, in the order of the global batch, without gradient."""
        return self.distributed.all_gather(t)

    def local_slice(self, t: Tensor) -> Tensor:
        """This process's part of a tensor that was computed from gathered rows."""
        return self.distributed.local_slice(t)

    def resolved(self) -> dict[str, Any]:
        """Values that `setup` chose for hyper-parameters left open, for the record of the run."""
        return {}

    def rows_now(self) -> dict[str, Tensor]:
        """What the method holds about each row after an epoch, for the metrics.

        `labels` are the labels that it believes now. Every other value is a score of this epoch
        that is high where a label looks wrong. The scores are about the observed labels, or about
        those in `judged` if that is given.
        """
        return {}

    def purify(self, train: TrainSet, probabilities: Tensor) -> Purified:
        """The method's labels, and the quality of the observed ones; called once, after training.

        By default the labels are what the deployed classifier predicts.

        Args:
            train: The training rows.
            probabilities: What the deployed classifier predicts for all of them (n, c).
        """
        keep = train.trusted | ~train.labeled  # (n,)
        labels = torch.where(keep, train.observed, probabilities.argmax(1))  # (n,)
        known = train.observed.clamp(min=0)  # (n,) without the -1 of rows that have no label
        return Purified(labels, probabilities.gather(1, known[:, None])[:, 0])
