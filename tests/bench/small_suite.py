"""A suite that runs in seconds, and made-up records of any suite."""

from pathlib import Path
from typing import Any

from colafier.bench.results import Results
from colafier.bench.suite import Run, Suite, load_suite

TEXT = """
title = "Small"
seeds = [1, 2]
optional_seeds = [3]
methods = ["ce", "gce"]

[data.digits]
noises = ["symmetric:0.5", "pair:0.2"]
source = "digits"
limit = 60
net = "linear"
epochs = 1
batch_size = 32

[data.digits.by_noise.pair]
gce = { power = 0.5 }
"""


def small_suite(folder: Path, text: str = TEXT) -> Suite:
    """The suite, from a file in the folder."""
    path = folder / "small.toml"
    path.write_text(text, encoding="utf-8")
    return load_suite(str(path))


def made_up(run: Run, score: float, **changes: Any) -> dict[str, Any]:
    """A record of a run, with this score for test accuracy and labels."""
    scores = ("test_accuracy", "test_accuracy_last10", "oracle_top3", "labels_right_after",
              "audit_labels_right_after")  # fmt: skip
    return {
        "part": run.part,
        "entry": run.entry.name,
        "noise": {"name": run.noise, "true_rate": 0.4, "sha256": ""},
        "seed": run.settings.seed,
        "settings": run.digest(),
        **dict.fromkeys(scores, score),
        "labels_right_before": 0.6,
        "seconds": 3.0,
        "run_seconds": 4.0,
        "hardware": {"cpu": "a CPU", "cores": 2, "threads": 1, "device": "cpu", "gpu": None},
        "versions": {"torch": "2"},
        "commit": "0123456789abcdef+changes",
    } | changes


def write(results: Results, runs: list[Run], scores: dict[str, float]) -> None:
    """Write records of these runs, with a score for each entry, a bit more for later seeds."""
    for run in runs:
        results.append(made_up(run, scores[run.entry.name] + 0.01 * run.settings.seed))
