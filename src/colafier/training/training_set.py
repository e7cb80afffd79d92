"""Rows in memory, cut into batches of augmented views; every process draws the same numbers."""

import zlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from colafier import _seeds
from colafier.methods.contract import Batch, DistributedContext, Labels, Pass
from colafier.nets import inference
from colafier.nets.normalize import Normalize
from colafier.training.views import Draws, View, make_views, render

MIN = 2  # rows per process that a last batch must have to stand alone


class TrainingSet:
    """A training set (`flow.TrainSet`): it never holds the truth.

    Order and views come from generators seeded with (seed, epoch, pass), so a resumed run needs no
    saved generator, and every method sees the same batches for one seed.

    Args:
        x: Images (n, c, h, w) as bytes, or vectors (n, d) as floats; kept as they are.
        labels: Their labels. Rows to hold out are chosen by the original ones, where these are
            known: decisions do not change which rows are held out.
        num_classes: Number of classes.
        view_names: Views that a batch holds, in this order; a name may stand there twice.
        batch_size: Rows in one step, over all processes.
        seed: Of order, views and holdout.
        flip: Whether a mirrored image keeps its class.
        normalize: Fitted on `x` by default.
        rank: Number of this process.
        world: Number of processes.
        device: Where batches go.
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
        self._distributed: DistributedContext | None = None
        self._views = make_views(self.view_names, self.row_shape, flip=flip)

    def place(
        self, rank: int, world: int, device: torch.device, distributed: DistributedContext
    ) -> None:
        """Share batches and predictions with other processes from now on."""
        self.rank, self.world, self.device, self._distributed = rank, world, device, distributed

    def describe(self) -> dict[str, int | str]:
        """What decides the batches; a run is resumed only on the same."""
        return {
            "rows": self.n,
            "classes": self.num_classes,
            "observed labels": zlib.crc32(self.observed.numpy().tobytes()),
            "views": " ".join(self.view_names),
            "batch size": self.batch_size,
            "data seed": self.seed,
        }

    def steps(self, part: Pass) -> int:
        """How many batches a pass has; none where it has fewer rows than there are processes."""
        return len(self._sizes(len(self._rows(part)), part))

    def batches(self, part: Pass, epoch: int, part_number: int) -> Iterator[Batch]:
        """The batches of a pass, each process's share of them.

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
        own, beside = self._generators(*key, "own"), self._generators(*key, "paired")
        start = 0
        for step, size in enumerate(sizes):
            progress = epoch + step / len(sizes)
            partner = None
            if paired is not None:
                partner = self._batch(paired(size), beside, epoch, progress, part.tag)
            chosen = rows[start : start + size]
            yield self._batch(chosen, own, epoch, progress, part.tag, partner)
            start += size

    def holdout(self, fraction: float) -> Tensor:
        """Row numbers of a share of the labeled rows, by observed label; the same at each call.

        At least one row of each class stays outside.
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
        outside = self.labeled.clone()
        outside[held] = False
        learned = torch.unique(self.observed[outside])  # decisions may move all others of a class
        return held[self.labeled[held] & torch.isin(self.observed[held], learned)].sort().values

    def predict(self, module: nn.Module, rows: Tensor | None = None) -> Tensor:
        """Probabilities (n or len(rows), c) on rows without augmentation, float32 on the CPU.

        All processes must call it, with the same rows: each computes a share.
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

    def _rows(self, part: Pass) -> Tensor:
        return self.labeled.nonzero()[:, 0] if part.rows is None else part.rows.cpu()

    def _sizes(self, n: int, part: Pass) -> list[int]:
        """Rows of each global batch; a short last one joins the one before it."""
        if n < self.world:  # a process without rows has nothing to learn from
            return []
        size = part.batch_size or self.batch_size
        if size < self.world:
            raise ValueError(f"batches of {size} rows do not reach for {self.world} processes")
        sizes = [size] * (n // size)
        rest = n % size
        if rest == 0 or part.drop_last:
            return sizes
        if sizes and rest < MIN * self.world:
            sizes[-1] += rest
            return sizes
        return [*sizes, rest]

    def _generators(self, *key: int | str) -> list[torch.Generator]:
        """One for each view, so that a view's numbers do not depend on the views beside it."""
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
        """This process's share of a global batch; views are drawn for all of it."""
        share = torch.arange(len(rows)).tensor_split(self.world)[self.rank]
        own = rows[share]  # (b,)
        x = self.x[own].to(self.device)
        views = []
        for name, generator in zip(self.view_names, generators, strict=True):
            draws = self._views[name].draw(len(rows), self.row_shape, generator)
            views.append(self._render(x, self._views[name], draws, share))
        y = self.observed[own].to(self.device)
        return Batch(own.to(self.device), y, tuple(views), epoch, progress, tag, paired)

    def _render(self, x: Tensor, view: View, draws: Draws, share: Tensor) -> Tensor:
        return render(
            x, view, {key: values[share] for key, values in draws.items()}, self.normalize
        )


class _Endless:
    """Rows in a random order; when they are used up they come again in a new one."""

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
        raise ValueError(f"{len(x)} rows need one label each, there are {tuple(observed.shape)}")
    if observed.min() < -1 or observed.max() >= num_classes:
        low, high = int(observed.min()), int(observed.max())
        raise ValueError(
            f"labels must be 0 to {num_classes - 1}, or -1 for none; they are {low} to {high}"
        )
    if trusted.shape != observed.shape or trusted.dtype != torch.bool:
        raise ValueError("trusted must be a boolean mask with one entry per row")
    if batch_size < 1:
        raise ValueError(f"the batch size must be at least 1, not {batch_size}")
