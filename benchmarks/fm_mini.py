"""FM-mini: the first 10,000 Fashion-MNIST images with noisy labels, a benchmark for two cores.

Prints one JSON line: means over the seeds, and the figures of each seed.

    python benchmarks/fm_mini.py --seeds 1 2 3

The images are in Debian's package dataset-fashion-mnist (or give --data). The labels are in a file
next to this one: instance-dependent noise, 39.8 % wrong.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from colafier._io import to_json
from colafier.workflows.experiment import Result, prepare, train
from colafier.workflows.settings import Settings, read_pairs, resolve

DATA = "/usr/share/datasets/fashion-mnist"  # where Debian's package installs it
LABELS = str(Path(__file__).with_name("fmnist10k_instance40.npy"))


def conditions(
    data: str = DATA, labels: str = LABELS, limit: int = 10_000, epochs: int = 15
) -> dict[str, object]:
    """The fixed conditions of the benchmark."""
    return {
        "source": "fashion_mnist",
        "data": data,
        "limit": limit,
        "pad_to": 32,
        "noise": f"file:{labels}",
        "net": "resnet8",
        "batch_size": 128,
        "epochs": epochs,
    }


def settings_for(args: argparse.Namespace, seed: int) -> Settings:
    """The conditions with a method and a seed."""
    observed = conditions(args.data, args.labels, args.limit, args.epochs)
    own = {"variant": args.variant, "warmup": 3, "ramp": 5} if args.method == "colafier" else {}
    return resolve(
        None, {**observed, "method": args.method, "seed": seed}, {**own, **read_pairs(args.set)}
    )


def figures(results: Sequence[Result]) -> dict[str, object]:
    """Means over the seeds, for a series at each epoch; None if there is no such figure."""
    return {
        "test_accuracy_last5": _mean([r.record["test_accuracy_last5"] for r in results]),
        "labels_right_before": _mean([r.record["labels_right_before"] for r in results]),
        "labels_right": _mean([r.record["labels_right_after"] for r in results]),
        "lid_auroc": _mean([r.record.get("lid_auroc") for r in results]),
        "seconds": _mean([r.record["seconds"] for r in results]),
        "test_accuracy_by_epoch": _by_epoch(results, "test_accuracy"),
        "labels_right_by_epoch": _by_epoch(results, "label_accuracy"),
        "lid_auroc_by_epoch": _by_epoch(results, "lid_auroc"),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(fmean(known), 4) if known else None


def _by_epoch(results: Sequence[Result], name: str) -> list[float | None]:
    epochs = zip(*(r.history.epochs for r in results), strict=True)
    return [_mean([epoch.get(name) for epoch in same]) for same in epochs]


def main() -> None:
    """Run all seeds and print the line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--method", default="colafier")
    parser.add_argument("--variant", default="adaptive", help="adaptive, authors or paper")
    parser.add_argument("--data", default=DATA, help="folder of the Fashion-MNIST idx files")
    parser.add_argument("--labels", default=LABELS, help=".npy file with the noisy labels")
    parser.add_argument("--limit", type=int, default=10_000, help="as many rows as labels")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, help="folder for the files of each run")
    args = parser.parse_args()

    results = []
    for seed in args.seeds:
        settings = settings_for(args, seed)
        folder = args.out and args.out / f"{args.method}-{args.variant}-{seed}"
        results.append(train(settings, prepare(settings), folder))
    last = results[-1].record
    line = {
        "benchmark": "fm_mini",
        "method": args.method,
        "variant": args.variant if args.method == "colafier" else None,
        "seeds": args.seeds,
        "true_rate": last["noise"]["true_rate"],
        **figures(results),
        "each": [figures([result]) for result in results],
        **{name: last[name] for name in ("hardware", "versions", "commit", "config")},
    }
    sys.stdout.write(to_json(line) + "\n")


if __name__ == "__main__":
    main()
