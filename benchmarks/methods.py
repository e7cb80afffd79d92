"""Every method on the same rows, labels, net and optimizer: one line each.

    python benchmarks/methods.py                                   # digits, 40 % instance noise
    python benchmarks/methods.py --fm-mini --methods ce gce elr    # Fashion-MNIST, see fm_mini.py
    python benchmarks/methods.py --features cifar-10-batches-py CIFAR-10_human.pt    # vectors

The last command uses frozen features (see purify.py) of the first 10,000 CIFAR-10 images, with the
labels `worst` of CIFAR-10N.

Prints a JSON line after each run, then a Markdown table of means over the seeds. The first column
is the accuracy of the last epoch. A method that needs the noise rate gets the true one, and is
marked.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import fm_mini
import purify

from colafier import methods
from colafier._io import to_json
from colafier.workflows.experiment import Task, prepare, train
from colafier.workflows.settings import Settings, resolve

SHOWN = {
    "test_accuracy": "test accuracy, last epoch",
    "test_accuracy_last10": "mean of the last 10",
    "labels_right_after": "labels right after",
    "auroc": "AUROC for wrong labels",
    "seconds": "seconds",
}


def settings_for(method: str, seed: int, args: argparse.Namespace) -> Settings:
    """The same conditions for all, except for the settings of the method itself."""
    observed = {"method": method, "seed": seed}
    if args.lr_floor is not None:
        observed["lr_floor"] = args.lr_floor
    if args.features:
        data, human = args.features
        images = {"source": "cifar10", "data": data, "limit": 10_000}
        how = {"noise": f"cifar10n:worst:{human}", "net": "mlp", "epochs": 15}
        return resolve(None, {**images, **how, **observed})
    if not args.fm_mini:
        return resolve("digits", observed)
    own = {"warmup": 3, "ramp": 5} if method == "colafier" else {}
    return resolve(None, {**fm_mini.conditions(), **observed}, own)


def task_of(settings: Settings, args: argparse.Namespace) -> Task:
    """The rows and their labels; vectors with `--features`."""
    task = prepare(settings)
    if not args.features:
        return task
    x, test_x = purify.features_of(task.source)
    return replace(task, source=replace(task.source, x=x, test_x=test_x))


def line_of(record: dict[str, Any]) -> dict[str, Any]:
    """The figures that are shown for a run."""
    return {name: record.get(name) for name in ("method", "seed", *SHOWN)}


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """A table with the best test accuracy first."""
    rows = []
    for method in dict.fromkeys(line["method"] for line in lines):
        own = [line for line in lines if line["method"] == method]
        means = [_mean([line[name] for line in own]) for name in SHOWN]
        mark = " (knows the rate)" if methods.find(method).needs_noise_rate else ""
        rows.append((means[0] or 0.0, [f"`{method}`{mark}", *map(_shown, means)]))
    head = ["method", *SHOWN.values()]
    cells = [head, ["---"] * len(head), *(row for _, row in sorted(rows, reverse=True))]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _shown(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}".lstrip("0") if value < 1 else f"{value:.0f}" if value > 1 else "1.000"


def main() -> None:
    """Train all, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=methods.available())
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--lr-floor", type=float, help="as of colafier train")
    parser.add_argument("--fm-mini", action="store_true", help="Fashion-MNIST instead of digits")
    parser.add_argument("--features", nargs=2, metavar=("DATA", "HUMAN"), help="CIFAR-10N's files")
    args = parser.parse_args()

    lines = []
    for method in args.methods:
        for seed in args.seeds:
            settings = settings_for(method, seed, args)
            lines.append(line_of(train(settings, task_of(settings, args)).record))
            sys.stdout.write(to_json(lines[-1]) + "\n")
            sys.stdout.flush()
    sys.stdout.write(markdown(lines) + "\n")


if __name__ == "__main__":
    main()
