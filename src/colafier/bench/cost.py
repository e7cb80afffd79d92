"""What a suite will cost, from the time of a few steps of each of its methods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from colafier.audit.pipeline import train_method
from colafier.bench.entries import Entry
from colafier.bench.execute import images_and_rows
from colafier.bench.suite import Run
from colafier.benchmark_data.sources import Source
from colafier.evidence.labels import Labels
from colafier.training.distributed import Processes, launch
from colafier.workflows.settings import Settings, resolve

SMALL_BATCH = 4  # rows in a measured step without a GPU, where a full step takes long
GPU_STEPS = 5  # in each measured epoch; without a GPU one
EPOCHS = 2  # the first is not counted: it is warm-up, of the method and of the GPU
DAY = 24 * 3600.0


@dataclass(frozen=True)
class Cost:
    """An estimate of the time that runs take."""

    seconds: float  # of all runs, one after the other
    runs: int
    device: str
    batch_size: int  # of the measured steps

    def __str__(self) -> str:
        return (
            f"{self.runs} runs take about {self.seconds / 3600:,.0f} hours one after the other on "
            f"this device ({self.device}). This is an estimate: steps of {self.batch_size} rows of "
            "each method were measured, and their time per row was multiplied by rows and epochs. "
            "Scoring and the audit of the labels add about a tenth."
        )


def estimate(runs: Sequence[Run], advance: Callable[[int], None] = lambda _: None) -> Cost:
    """Measure a few steps of each different entry and net, and multiply.

    Args:
        runs: All runs ahead.
        advance: Called with the number of entries that were just measured.
    """
    measured: dict[tuple[str, str, str], float] = {}
    total, batch_size, device = 0.0, SMALL_BATCH, ""
    for run in runs:
        rows = images_and_rows(run.settings)[1]
        kind = (run.part, run.entry.name, run.settings.net)
        if kind not in measured:
            job = partial(_measure, _Steps(run.entry, run.settings, rows))
            measured[kind], batch_size, device = launch(job)
            advance(1)
        total += measured[kind] * len(rows.x) * run.settings.epochs
    return Cost(total, len(runs), device, batch_size)


@dataclass
class _Steps:
    """What is measured; not frozen, because Fabric refuses frozen dataclasses as arguments."""

    entry: Entry
    settings: Settings
    rows: Source


def _measure(steps: _Steps, processes: Processes) -> tuple[float, int, str]:
    """Seconds per row in the last epoch, rows in a step, and the device."""
    settings, rows = steps.settings, steps.rows
    on_gpu = processes.device.type == "cuda"
    batch_size = settings.batch_size if on_gpu else SMALL_BATCH
    n = GPU_STEPS * batch_size if on_gpu else batch_size
    shorter: dict[str, Any] = {"method": settings.method, "net": settings.net}
    shorter |= {"epochs": EPOCHS, "batch_size": batch_size, "dtype": settings.dtype}
    # without the suite's epochs of warm-up, so that the method scales its own to the few epochs
    config = resolve(None, shorter, steps.entry.hyper)
    labels = Labels(torch.arange(n) % rows.num_classes)  # any labels will do
    trained = train_method(rows.x[:n], labels, rows.num_classes, config, processes=processes)
    return trained.history.series("seconds")[-1] / n, batch_size, str(processes.device)
