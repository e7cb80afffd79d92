"""How high the class-prior floor should be: CoLafier on digits with several values of it.

    python benchmarks/class_prior_floor.py                # half an hour of one core

Classes are balanced, or five of the ten keep only a quarter of their rows (`rare`). Prints a JSON
line after each run, then a Markdown table: labels right after, and in brackets test accuracy, both
as the mean over the seeds. The test set is always balanced.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch

from colafier._io import to_json
from colafier.workflows.experiment import Task, prepare, train
from colafier.workflows.settings import resolve

CASES = ("pair:0.42", "symmetric:0.75", "rare, symmetric:0.4")
SHARES = (0.7, 0.8, 0.85)
KEPT = 0.25  # of the rows of a rare class


def with_rare_classes(task: Task, seed: int) -> Task:
    """The task without most of the rows of the second half of the classes."""
    assert task.truth is not None
    drawn = torch.rand(len(task.truth), generator=torch.Generator().manual_seed(seed))  # (n,)
    kept = (task.truth < task.source.num_classes // 2) | (drawn < KEPT)  # (n,)
    source = replace(task.source, x=task.source.x[kept], labels=task.source.labels[kept])
    return replace(task, source=source, observed=task.observed[kept], truth=task.truth[kept])


def measure(case: str, share: float, seed: int, epochs: int) -> dict[str, Any]:
    """Train once."""
    rare, noise = case.startswith("rare, "), case.removeprefix("rare, ")
    asked = {"noise": noise, "seed": seed, "epochs": epochs}
    settings = resolve("digits", asked, {"class_prior_floor": share, "warmup": 5, "ramp": 10})
    task = prepare(settings)
    record = train(settings, with_rare_classes(task, seed) if rare else task, progress=False).record
    names = ("labels_right_before", "labels_right_after", "test_accuracy")
    return {"case": case, "share": share, "seed": seed, **{name: record[name] for name in names}}


def markdown(lines: Sequence[dict[str, Any]], shares: Sequence[float]) -> str:
    """Means over the seeds."""
    rows = ["| noise | " + " | ".join(map(str, shares)) + " |", "|---" * (1 + len(shares)) + "|"]
    for case in dict.fromkeys(line["case"] for line in lines):
        cells = []
        for share in shares:
            own = [line for line in lines if (line["case"], line["share"]) == (case, share)]
            labels, test = (
                fmean(line[name] for line in own)
                for name in ("labels_right_after", "test_accuracy")
            )
            cells.append(f"{labels:.3f} ({test:.3f})")
        rows.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    """Train all, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--shares", type=float, nargs="+", default=list(SHARES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12])
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()

    lines = []
    for case in args.cases:
        for share in args.shares:
            for seed in args.seeds:
                lines.append(measure(case, share, seed, args.epochs))
                sys.stdout.write(to_json(lines[-1]) + "\n")
                sys.stdout.flush()
    sys.stdout.write(markdown(lines, args.shares) + "\n")


if __name__ == "__main__":
    main()
