"""The training set: rows in memory that are served as batches of augmented views."""

import zlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from colafier import _seeds
from colafier.evidence.config import EvidenceConfig
from colafier.evidence.labels import Labels
from colafier.evidence.out_of_fold import cross_fit
from colafier.methods.contract import Batch, DistributedContext, Pass
from colafier.nets import inference
from colafier.nets.normalize import Normalize
from colafier.training.views import Draws, View, make_views, render

BATCH_NORM_ROWS = 10_000  # are enough for mean and variance of each channel
MIN = 2  # rows per process in a short last batch; with fewer it is joined to the one before it


class TrainingSet:
    """A training set, which never holds the true labels; it implements `contract.TrainSet`.

    Order and views come from generators seeded with (seed, epoch, pass). So a resumed run needs no
    saved generator state, every process draws the same numbers, and all methods see the same
    batches for one seed.

    Args:
        x: Images (n, c, h, w) as bytes, or vectors (n, d) as floats; they are not changed.
        labels: Their labels. Held-out rows are chosen by the original labels if these are known,
            so that decisions of a person do not change which rows are held out.
        num_classes: Number of classes.
        view_names: Names of the views in a batch, in this order; a name may occur twice.
        batch_size: Rows in one step, over all processes.
        seed: Seed of the row order, the views and the holdout.
        flip: Whether a mirrored image keeps its class.
        normalize: The normalization; None: fitted on `x`.
        rank: Number of this process.
        world: Number of processes.
        device: Device of the batches; None: the CPU.
        out_of_fold: Out-of-fold predictions (n, c); None: they are made when first asked for.
        evidence: How they are made; None: the defaults.
        progress: Whether a terminal shows a bar while they are made.
    """

    def __init__(
        self,
        x: Tensor,
        labels: Labels,
        num_classes: int,
        *,
        view_names: tuple[str, ...],
        batch_size: int = 128,
        seed: int = 0,
        flip: bool = True,
        normalize: Normalize | None = None,
        rank: int = 0,
        world: int = 1,
        device: torch.device | None = None,
        out_of_fold: Tensor | None = None,
        evidence: EvidenceConfig | None = None,
        progress: bool = False,
    ) -> None:
        _check(x, labels, num_classes, batch_size)
        self.x = x
        self.n = len(x)
        self.row_shape = tuple(x.shape[1:])
        self.num_classes = num_classes
        self.observed, self.original = labels.observed, labels.original
        self.trusted, self.labeled = labels.trusted, labels.labeled
        self.view_names = tuple(view_names)
        self.batch_size = batch_size
        self.seed = seed
        self.normalize = Normalize.fit(x) if normalize is None else normalize
        self.rank, self.world = rank, world
        self.device = torch.device("cpu") if device is None else device
        self.out_of_fold_made = out_of_fold  # (n, c)
        self.evidence = evidence
        self.progress = progress
        self._distributed: DistributedContext | None = None
        self._views = make_views(self.view_names, self.row_shape, flip=flip)

    def place(
        self, rank: int, world: int, device: torch.device, distributed: DistributedContext
    ) -> None:
        """Share batches and predictions with other processes from now on."""
        self.rank, self.world, self.device, self._distributed = rank, world, device, distributed

    def describe(self) -> dict[str, int | str]:
        """Everything that the batches depend on; a run is resumed only if it is the same."""
        return {
            "rows": self.n,
            "classes": self.num_classes,
            "observed labels": zlib.crc32(self.observed.numpy().tobytes()),
            "views": " ".join(self.view_names),
            "batch size": self.batch_size,
            "data seed": self.seed,
        }

    def steps(self, part: Pass) -> int:
        """How many batches a pass has; none if there are fewer rows than processes."""
        return len(self._sizes(len(self._rows(part)), part))

    def batches(self, part: Pass, epoch: int, part_number: int) -> Iterator[Batch]:
        """This process's share of the batches of a pass.

        Args:
            part: The pass.
            epoch: Number of the epoch.
            part_number: Number of the pass within its epoch.
        """
        key = (self.seed, epoch, part_number)
        order = _generator(*key, "order")
        rows = self._rows(part)
        sizes = self._sizes(len(rows), part)
        rows = rows[torch.randperm(len(rows), generator=order)]
        paired = None
        if part.paired is not None and len(part.paired):
            paired = _Endless(part.paired.cpu(), order)
        first, second = self._generators(*key, "own"), self._generators(*key, "paired")
        start = 0
        for step, size in enumerate(sizes):
            progress = epoch + step / len(sizes)
            partner = None
            if paired is not None:
                partner = self._batch(paired(size), second, epoch, progress, part.tag)
            chosen = rows[start : start + size]
            yield self._batch(chosen, first, epoch, progress, part.tag, partner)
            start += size

    def holdout(self, fraction: float) -> Tensor:
        """Row numbers of a stratified share of the labeled rows; the same at each call.

        At least one row of each class is not held out.
        """
        if not 0 <= fraction < 1:
            raise ValueError(f"the fraction to hold out must be from 0 to below 1, not {fraction}")
        original = self.observed if self.original is None else self.original  # (n,)
        rows = (original >= 0).nonzero()[:, 0]  # (m,)
        rows = rows[torch.randperm(len(rows), generator=_generator(self.seed, "holdout"))]
        rows = rows[original[rows].argsort(stable=True)]  # by class, shuffled within
        counts = original[rows].bincount(minlength=self.num_classes)  # (c,)
        begin = counts.cumsum(0) - counts  # (c,)
        place = torch.arange(len(rows)) - begin[original[rows]]  # (m,) number within the class
        wanted = (counts * fraction).round().long().minimum((counts - 1).clamp(min=0))  # (c,)
        held = rows[place < wanted[original[rows]]]
        trained = self.labeled.clone()  # (n,) rows that are not held out
        trained[held] = False
        # decisions of a person may have moved all other rows of a class to other classes
        classes = torch.unique(self.observed[trained])
        return held[self.labeled[held] & torch.isin(self.observed[held], classes)].sort().values

    def predict(self, module: nn.Module, rows: Tensor | None = None) -> Tensor:
        """Probabilities (n or len(rows), c) of rows without augmentation, float32 on the CPU.

        All processes must call it with the same rows; each computes a share of them.
        """
        rows = torch.arange(self.n) if rows is None else rows.cpu()  # (m,)
        share = rows if self._distributed is None else rows.tensor_split(self.world)[self.rank]
        p = torch.empty(0, self.num_classes)  # (m, c)
        if len(share):
            p = inference.predict(module, self.x, self.normalize, share)
        return (
            p
            if self._distributed is None
            else self._distributed.all_gather(p.to(self.device)).cpu()
        )

    def update_batch_norm(self, module: nn.Module) -> None:
        """Give BatchNorm in a classifier the statistics of rows without augmentation.

        All processes use the same rows, at most `BATCH_NORM_ROWS` of them.
        """
        rows = torch.arange(0, self.n, 1 + (self.n - 1) // BATCH_NORM_ROWS)  # (m,)
        if len(rows) % inference.CHUNK == 1:
            rows = rows[:-1]  # a single row has no variance
        if len(rows):
            update_bn(inference.batches(module, self.x, self.normalize, rows), module)

    def out_of_fold(self) -> Tensor | None:
        """P(class | row) by small heads that never saw the row's own label (n, c); made once.

        Only for rows that are vectors; None for images, where this would take too long.
        """
        if self.out_of_fold_made is None and len(self.row_shape) == 1:
            self.out_of_fold_made = cross_fit(
                self.x,
                Labels(self.observed, self.original, self.trusted),
                self.num_classes,
                self.normalize,
                config=self.evidence,
                seed=self.seed,
                progress=self.progress,
            )
        return self.out_of_fold_made

    def _rows(self, part: Pass) -> Tensor:
        return self.labeled.nonzero()[:, 0] if part.rows is None else part.rows.cpu()

    def _sizes(self, n: int, part: Pass) -> list[int]:
        """Number of rows in each global batch; a very short last one joins the one before it."""
        if n < self.world:  # a process without rows has nothing to learn from
            return []
        size = part.batch_size or self.batch_size
        if size < self.world:
            raise ValueError(f"batches of {size} rows are too small for {self.world} processes")
        sizes = [size] * (n // size)
        rest = n % size
        if rest == 0 or part.drop_last:
            return sizes
        if sizes and rest < MIN * self.world:
            sizes[-1] += rest
            return sizes
        return [*sizes, rest]

    def _generators(self, *key: int | str) -> list[torch.Generator]:
        """One generator for each view, so that a view does not depend on the other views."""
        names = self.view_names
        return [_generator(*key, name, names[:i].count(name)) for i, name in enumerate(names)]

    def _batch(
        self,
        rows: Tensor,
        generators: list[torch.Generator],
        epoch: int,
        progress: float,
        tag: str,
        paired: Batch | None = None,
    ) -> Batch:
        """This process's share of a global batch; random numbers are drawn for the whole batch."""
        share = torch.arange(len(rows)).tensor_split(self.world)[self.rank]
        local = rows[share]  # (b,)
        x = self.x[local].to(self.device)
        views = []
        for name, generator in zip(self.view_names, generators, strict=True):
            draws = self._views[name].draw(len(rows), self.row_shape, generator)
            views.append(self._render(x, self._views[name], draws, share))
        y = self.observed[local].to(self.device)
        return Batch(local.to(self.device), y, tuple(views), epoch, progress, tag, paired)

    def _render(self, x: Tensor, view: View, draws: Draws, share: Tensor) -> Tensor:
        return render(
            x, view, {key: values[share] for key, values in draws.items()}, self.normalize
        )


class _Endless:
    """Rows in random order; when they are used up, they are repeated in a new order."""

    def __init__(self, rows: Tensor, generator: torch.Generator) -> None:
        self.rows = rows
        self.generator = generator
        self.waiting = rows[:0]

    def __call__(self, count: int) -> Tensor:
        while len(self.waiting) < count:
            again = self.rows[torch.randperm(len(self.rows), generator=self.generator)]
            self.waiting = torch.cat([self.waiting, again])
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken


def _generator(*key: int | str) -> torch.Generator:
    return torch.Generator().manual_seed(_seeds.derive(*key))


def _check(x: Tensor, labels: Labels, num_classes: int, batch_size: int) -> None:
    observed, trusted = labels.observed, labels.trusted
    if len(x) == 0 or observed.shape != (len(x),):
        raise ValueError(
            f"{len(x)} rows need one label each, but the labels have shape {tuple(observed.shape)}"
        )
    if observed.min() < -1 or observed.max() >= num_classes:
        low, high = int(observed.min()), int(observed.max())
        raise ValueError(
            f"labels must be 0 to {num_classes - 1}, or -1 for none; they are {low} to {high}"
        )
    if trusted.shape != observed.shape or trusted.dtype != torch.bool:
        raise ValueError("trusted must be a boolean mask with one entry per row")
    if batch_size < 1:
        raise ValueError(f"the batch size must be at least 1, not {batch_size}")
