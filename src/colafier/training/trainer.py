"""The loop: epochs of passes of batches, with figures, checkpoint and resume."""

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
    """A training set that is cut into batches."""

    def place(
        self, rank: int, world: int, device: torch.device, distributed: DistributedContext
    ) -> None:
        """Share batches with other processes."""

    def describe(self) -> dict[str, int | str]:
        """What decides the batches."""

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

    Stopped (Ctrl-C) and resumed gives exactly what an uninterrupted run gives.

    Args:
        method: Fresh from its constructor.
        train: The rows.
        make_net: Makes a fresh classifier.
        epochs: Epochs of the whole run, also when it is resumed.
        optimizer: What the method's optimizers start from.
        seed: Of the method's random numbers; the training set has its own.
        processes: Those that share the work, from `launch`; None: this one alone on the CPU.
        folder: Gets `metrics.jsonl` and `checkpoint.pt`; None: nothing is written.
        resume: Go on from the checkpoint in the folder if there is one; otherwise start over, and
            overwrite what an older run left there.
        warm_start: Checkpoint of a finished run on the same rows, to start from in place of new
            weights; `epochs` counts its epochs as well.
        score: Called on every process after each epoch; what it gives joins the epoch's figures.
        progress: Whether a terminal shows a bar.
        loggers: Get the figures of each epoch as well.
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
        raise KeyboardInterrupt(_farewell(checkpoint, len(history.epochs))) from None
    finally:
        journal.close(finished)
    return history


def _describe(
    method: Method, train: BatchedTrainSet, settings: OptimizerSettings, epochs: int, seed: int
) -> dict[str, Any]:
    """What a run is started with, before the method is set up: its attributes are its settings."""
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
    """Nets and tables from the seed, the same on every process."""
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
    """New weights, or those of a checkpoint: this run's, or that of a run before it."""
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
    """One epoch, and its figures."""
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
    """What is left of the run's rates: they fall over the run, or over the pass's own span."""
    begin, end = part.lr_span or (0, epochs)
    return cosine(max(epoch - begin, 0), end - begin, floor)


def _passes(
    method: Method, train: BatchedTrainSet, epoch: int, seed: int
) -> Iterator[tuple[int, Pass]]:
    """The passes of an epoch, numbered.

    Torch's own generator is seeded before each: shares of different sizes let processes draw
    differently often, and what a method decides between passes must be the same on all of them.
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
    """Means of terms over the rows of an epoch; what is not finite is left out."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = defaultdict(float)
        self.rows: dict[str, int] = defaultdict(int)

    def add(self, terms: Terms, loss: float, batch: Batch) -> None:
        """The terms of one step; those of a pass with a tag of its own are named after it."""
        prefix = "" if batch.tag == "train" else f"{batch.tag}/"
        named = {"loss": loss} | {name: float(term) for name, term in terms.items()}
        for name, value in named.items():
            if math.isfinite(value):
                self.sums[prefix + name] += value * len(batch)
                self.rows[prefix + name] += len(batch)

    def over(self, processes: Processes) -> dict[str, float]:
        """The means over all processes."""
        said = processes.all_gather_object((dict(self.sums), dict(self.rows)))
        names = dict.fromkeys(name for sums, _ in said for name in sums)
        return {
            name: sum(s.get(name, 0.0) for s, _ in said) / sum(r.get(name, 0) for _, r in said)
            for name in names
        }


class _Journal:
    """Where the figures of epochs go: a file that never holds an epoch twice, and loggers."""

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


def _farewell(checkpoint: Checkpoint, done: int) -> str:
    if checkpoint.exists():
        return (
            f"stopped after {done} whole epochs, which are in {checkpoint.path}; "
            "start again with resume to go on from there"
        )
    return f"stopped after {done} whole epochs; there is no checkpoint to resume from"
