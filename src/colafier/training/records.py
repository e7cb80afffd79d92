"""The history of a run's epochs, and its record: results, settings, hardware and versions."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from colafier import __version__

PACKAGES = ("torch", "numpy", "scikit-learn", "lightning-fabric")


@dataclass
class History:
    """The figures of each epoch so far, in order."""

    epochs: list[dict[str, Any]] = field(default_factory=list)

    def series(self, name: str) -> list[float]:
        """One figure over the epochs that have it."""
        return [epoch[name] for epoch in self.epochs if epoch.get(name) is not None]

    @property
    def seconds(self) -> float:
        """Training time of all epochs."""
        return float(sum(self.series("seconds")))

    @property
    def skipped_steps(self) -> int:
        """Steps that were skipped because loss or gradient was not finite."""
        return int(sum(self.series("skipped_steps")))


def run_record(
    *,
    method: str,
    noise: Mapping[str, Any],
    seed: int,
    history: History,
    final: Mapping[str, Any],
    config: Mapping[str, Any],
    resolved: Mapping[str, Any] | None = None,
    diagnostics: Mapping[str, Any] | None = None,
    device: str = "cpu",
    processes: int = 1,
) -> dict[str, Any]:
    """The record of a run: everything that is needed to judge it and to repeat it.

    Args:
        method: Name of the method.
        noise: The manifest of the label noise, with its true rate.
        seed: Seed of the run.
        history: The result of `trainer.fit`.
        final: Scores of the purified labels, from `Metrics.final`.
        config: The settings.
        resolved: The values of settings that were left open, such as a default that depends on
            the length of the run.
        diagnostics: Figures that explain the method's decisions.
        device: Where it ran, such as `cuda:0`.
        processes: Number of processes.
    """
    return {
        "method": method,
        "noise": dict(noise),
        "seed": seed,
        "epochs": len(history.epochs),
        **summary(history.series("test_accuracy")),
        **final,
        "skipped_steps": history.skipped_steps,
        "seconds": history.seconds,
        "hardware": hardware(device, processes),
        "versions": versions(),
        "commit": commit(),
        "config": dict(config),
        "resolved": dict(resolved or {}),
        "diagnostics": dict(diagnostics or {}),
    }


def summary(accuracies: Sequence[float]) -> dict[str, float | None]:
    """Test accuracies for result tables; `oracle_` figures choose epochs by the test set."""
    best = sorted(accuracies, reverse=True)
    return {
        "test_accuracy": accuracies[-1] if accuracies else None,
        "test_accuracy_last10": _mean(accuracies[-10:]),
        "test_accuracy_last5": _mean(accuracies[-5:]),
        "oracle_best": best[0] if best else None,
        "oracle_top3": _mean(best[:3]),  # the paper's metric
    }


def hardware(device: str = "cpu", processes: int = 1) -> dict[str, Any]:
    """The machine that the run used."""
    return {
        "cpu": cpu_name(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
        "gpu": torch.cuda.get_device_name(device) if device.startswith("cuda") else None,
        "processes": processes,
    }


def cpu_name() -> str:
    """The name of the CPU as the system gives it, or else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    found = {name: metadata.version(name) for name in PACKAGES}
    return {"colafier": __version__, "python": platform.python_version(), **found}


def commit() -> str | None:
    """The commit of a source checkout, with `+changes` if it was edited; None otherwise."""
    package = Path(__file__).parents[1]

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if not git("ls-files", "--", "__init__.py"):
            return None  # the package is installed inside some other repository
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
