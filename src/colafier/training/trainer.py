"""The training loop, `fit`: epochs, passes and batches, with figures, checkpoints and resume."""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, is_dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, Protocol

import torch

from colafier import _seeds
from colafier._io import append_json_line, write_json_lines
from colafier._progress import EpochBar
from colafier.core.schedules import cosine
from colafier.methods.contract import (
    Batch,
    DistributedContext,
    MakeNet,
    Method,
    Pass,
    Terms,
    TrainSet,
)
from colafier.training.checkpoint import Checkpoint
from colafier.training.distributed import Processes
from colafier.training.engine import Engine
from colafier.training.loggers import Logger
from colafier.training.optimizers import OptimizerSettings
from colafier.training.records import History

log = logging.getLogger(__name__)

Score = Callable[[Method, int], dict[str, float]]
METRICS = "metrics.jsonl"


class BatchedTrainSet(TrainSet, Protocol):
    """A training set that gives batches."""

    def place(
        self, rank: int, world: int, device: torch.device, distributed: DistributedContext
    ) -> None:
        """Share batches with other processes from now on."""

    def describe(self) -> dict[str, int | str]:
        """Everything that the batches depend on."""

    def steps(self, part: Pass) -> int:
        """How many batches a pass has."""

    def batches(self, part: Pass, epoch: int, part_number: int) -> Iterator[Batch]:
        """The batches of a pass."""


def fit(
    method: Method,
    train: BatchedTrainSet,
    make_net: MakeNet,
    *,
    epochs: int,
    optimizer: OptimizerSettings | None = None,
    seed: int = 0,
    processes: Processes | None = None,
    folder: Path | None = None,
    resume: bool = False,
    warm_start: Path | None = None,
    score: Score | None = None,
    progress: bool = True,
    loggers: Sequence[Logger] = (),
) -> History:
    """Train a method; every process of a run calls this in the same way.

    A run that is stopped (Ctrl-C) and resumed gives exactly the result of an uninterrupted run.

    Args:
        method: The method, fresh from its constructor.
        train: The training set.
        make_net: Makes a classifier with new weights.
        epochs: Epochs of the whole run, including those before a resume.
        optimizer: The run's optimizer settings, which the method may override.
        seed: Seed of the method's random numbers; the training set has a seed of its own.
        processes: The processes of the run, from `launch`; None: this one alone, on the CPU.
        folder: Where `metrics.jsonl` and `checkpoint.pt` are written; None: nothing is written.
        resume: Resume from the checkpoint in the folder if there is one. Otherwise training starts
            over and overwrites the files of an older run.
        warm_start: Checkpoint of a finished run on the same rows, to start from in place of new
            weights; `epochs` includes the epochs of that run.
        score: Called on every process after each epoch; its figures are added to the epoch's.
        progress: Whether to show a progress bar in a terminal.
        loggers: Additional loggers for the figures of each epoch.
    """
    if epochs < 1:
        raise ValueError(f"a run needs at least one epoch, not {epochs}")
    settings = OptimizerSettings() if optimizer is None else optimizer
    processes = Processes() if processes is None else processes
    run = _describe(method, train, settings, epochs, seed)
    engine = _prepare(method, train, make_net, settings, epochs, seed, processes)
    checkpoint = Checkpoint(folder, run, processes)
    history = _begin(method, train, engine, checkpoint, resume, warm_start)
    journal = _Journal(folder, loggers if processes.first else (), history, processes.first)
    bar = EpochBar(epochs, len(history.epochs), progress and processes.first)
    rates = partial(_run_scale, epochs=epochs, floor=settings.lr_floor)
    finished = False
    try:
        with bar:
            for epoch in range(len(history.epochs), epochs):
                figures = _epoch(method, train, engine, epoch, rates, seed, bar, score)
                checkpoint.save(method, engine, [*history.epochs, figures])
                history.epochs.append(figures)
                journal.write(figures)
                bar.epoch(epoch, figures)
        finished = True
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_stop_message(checkpoint, len(history.epochs))) from None
    finally:
        journal.close(finished)
    return history


def _describe(
    method: Method, train: BatchedTrainSet, settings: OptimizerSettings, epochs: int, seed: int
) -> dict[str, Any]:
    """The settings of a run. Before a method is set up, its attributes are its settings."""
    plain = (int, float, str, tuple, NoneType)
    hyper = {
        name: str(value)
        for name, value in vars(method).items()
        if (isinstance(value, plain) or is_dataclass(value))
        and name[0] != "_"
        and name != "training"
    }
    return {
        "method": type(method).__name__,
        **hyper,
        **{f"optimizer {name}": value for name, value in asdict(settings).items()},
        **train.describe(),
        "epochs": epochs,
        "seed": seed,
    }


def _prepare(
    method: Method,
    train: BatchedTrainSet,
    make_net: MakeNet,
    settings: OptimizerSettings,
    epochs: int,
    seed: int,
    processes: Processes,
) -> Engine:
    """Set up nets and tables from the seed, the same on every process."""
    torch.manual_seed(seed)
    train.place(processes.rank, processes.size, processes.device, processes)
    method.distributed = processes
    method.setup(make_net, train, epochs)
    method.to(processes.device)
    return Engine(method, settings, processes)


def _begin(
    method: Method,
    train: BatchedTrainSet,
    engine: Engine,
    checkpoint: Checkpoint,
    resume: bool,
    warm_start: Path | None,
) -> History:
    """Start from new weights, from this run's checkpoint, or from that of an earlier run."""
    if resume and checkpoint.exists():
        return History(checkpoint.load(method, engine))
    checkpoint.remove()
    if warm_start is None:
        return History()
    history = History(checkpoint.load(method, engine, warm_start))
    method.reset_beliefs(train)
    method.to(engine.processes.device)
    return history


def _epoch(
    method: Method,
    train: BatchedTrainSet,
    engine: Engine,
    epoch: int,
    rates: Callable[[Pass, int], float],
    seed: int,
    bar: EpochBar,
    score: Score | None,
) -> dict[str, Any]:
    """Train and score one epoch; returns its figures."""
    begin = time.perf_counter()
    skipped = engine.skipped_steps
    means = _Means()
    for number, part in _passes(method, train, epoch, seed):
        steps = train.steps(part)
        if steps == 0 and engine.processes.first:
            log.warning("epoch %d: the pass %r has no rows and is skipped", epoch, part.tag)
        method.train()
        engine.begin_pass(part, rates(part, epoch))
        for step, batch in enumerate(train.batches(part, epoch, number)):
            terms = method.update(batch, engine)
            loss = engine.take_loss()
            means.add(terms, loss, batch)
            bar.step(epoch, part.tag, step + 1, steps, loss)
        engine.end_pass()
    figures: dict[str, Any] = {"epoch": epoch, **means.over(engine.processes)}
    figures["skipped_steps"] = engine.skipped_steps - skipped
    trained = time.perf_counter()
    if score is not None:
        figures.update(score(method, epoch))
    scored = time.perf_counter()
    return figures | {"seconds": trained - begin, "scoring_seconds": scored - trained}


def _run_scale(part: Pass, epoch: int, epochs: int, floor: float) -> float:
    """Factor on the learning rates, which fall over the run or over the `lr_span` of the pass."""
    begin, end = part.lr_span or (0, epochs)
    return cosine(max(epoch - begin, 0), end - begin, floor)


def _passes(
    method: Method, train: BatchedTrainSet, epoch: int, seed: int
) -> Iterator[tuple[int, Pass]]:
    """The passes of an epoch, numbered.

    Torch's default generator is seeded before each pass. Processes with different numbers of rows
    draw different amounts of random numbers, but what a method decides between passes must be the
    same on all of them.
    """
    passes = method.passes(epoch, train)
    number = 0
    while True:
        torch.manual_seed(_seeds.derive(seed, epoch, number, "pass"))
        part = next(passes, None)
        if part is None:
            return
        yield number, part
        number += 1


class _Means:
    """Means of terms over the rows of an epoch; values that are not finite are left out."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = defaultdict(float)
        self.rows: dict[str, int] = defaultdict(int)

    def add(self, terms: Terms, loss: float, batch: Batch) -> None:
        """Add the terms of one step; a tag other than `train` becomes a prefix of their names."""
        prefix = "" if batch.tag == "train" else f"{batch.tag}/"
        named = {"loss": loss} | {name: float(term) for name, term in terms.items()}
        for name, value in named.items():
            if math.isfinite(value):
                self.sums[prefix + name] += value * len(batch)
                self.rows[prefix + name] += len(batch)

    def over(self, processes: Processes) -> dict[str, float]:
        """The means over all processes."""
        totals = processes.all_gather_object((dict(self.sums), dict(self.rows)))
        names = dict.fromkeys(name for sums, _ in totals for name in sums)
        return {
            name: sum(s.get(name, 0.0) for s, _ in totals) / sum(r.get(name, 0) for _, r in totals)
            for name in names
        }


class _Journal:
    """Writes the figures of each epoch to loggers and to a file that never has an epoch twice."""

    def __init__(
        self, folder: Path | None, loggers: Sequence[Logger], history: History, writes: bool
    ) -> None:
        self.path = folder / METRICS if folder is not None and writes else None
        self.loggers = loggers
        if self.path is not None:
            write_json_lines(self.path, history.epochs)

    def write(self, figures: dict[str, Any]) -> None:
        """Record an epoch."""
        if self.path is not None:
            append_json_line(self.path, figures)
        numbers = {k: v for k, v in figures.items() if isinstance(v, int | float) and k != "epoch"}
        for logger in self.loggers:
            logger.log_metrics(numbers, step=figures["epoch"])

    def close(self, finished: bool) -> None:
        """Close the loggers."""
        for logger in self.loggers:
            logger.finalize("success" if finished else "failed")


def _stop_message(checkpoint: Checkpoint, done: int) -> str:
    if checkpoint.exists():
        return (
            f"stopped after {done} whole epochs, which are saved in {checkpoint.path}; "
            "resume the run to continue from there"
        )
    return f"stopped after {done} whole epochs; there is no checkpoint to resume from"
