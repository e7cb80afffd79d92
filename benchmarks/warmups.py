"""Warm-ups of methods, judged by agreement with held-out noisy labels, so without the truth.

    python benchmarks/warmups.py                                  # digits
    python benchmarks/warmups.py --features cifar-10-batches-py   # vectors, see methods.py

A fifth of the rows is held out. Prints a JSON line after each run, then a Markdown table: for each
method and warm-up, how many of the held-out noisy labels the last epoch predicts, as the mean over
kinds of noise and seeds. The last column, accuracy on the test set, is for comparison only.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import purify
import torch

from colafier._io import to_json
from colafier.audit.pipeline import train_method
from colafier.evidence.labels import Labels
from colafier.nets import inference
from colafier.workflows.experiment import Task, prepare
from colafier.workflows.settings import Settings, resolve

NAMES = {"cores2": "warmup", "peer_loss": "warmup", "pencil": "first_stage"}
# shares of the run; the first is that of the authors
SHARES = {"cores2": (0.1, 0.25, 0.5), "peer_loss": (20 / 300, 0.25, 0.5), "pencil": (70 / 320, 0.5)}
NOISES = ("symmetric:0.35", "instance:0.3")


def tasks(args: argparse.Namespace, seeds: Sequence[int]) -> Iterator[tuple[Settings, Task]]:
    """Rows with noisy labels, for each kind of noise and each seed."""
    for noise in NOISES:
        for seed in seeds:
            asked: dict[str, Any] = {"noise": noise, "seed": seed, "lr_floor": 0.02}
            if not args.features:
                settings = resolve("digits", {**asked, "epochs": args.epochs, "limit": args.limit})
                yield settings, prepare(settings)
                continue
            images = {"source": "cifar10", "data": args.features, "limit": args.limit or 10_000}
            settings = resolve(None, {**asked, **images, "net": "mlp", "epochs": 15})
            task = prepare(settings)
            x, test_x = purify.features_of(task.source)
            yield settings, replace(task, source=replace(task.source, x=x, test_x=test_x))


def agreement(method: str, warmup: int, settings: Settings, task: Task) -> dict[str, Any]:
    """Train on four fifths of the rows and predict the labels of the others."""
    n, source = len(task.observed), task.source
    held = torch.arange(n) % 5 == 0  # (n,) the order of the rows does not depend on the class
    config = replace(settings, method=method, hyper={NAMES[method]: warmup})
    labels = Labels(task.observed[~held])
    trained = train_method(source.x[~held], labels, source.num_classes, config)
    p, test = (
        inference.predict(trained.classifier, x, trained.normalize)
        for x in (source.x[held], source.test_x)
    )
    return {
        "method": method,
        "warmup": warmup,
        "noise": settings.noise,
        "seed": settings.seed,
        "agreement": float((p.argmax(1) == task.observed[held]).double().mean()),
        "test_accuracy": float((test.argmax(1) == source.test_labels).double().mean()),
    }


def markdown(lines: Sequence[dict[str, Any]]) -> str:
    """Means for each method and warm-up."""
    rows = ["| method | warm-up | held-out agreement | test accuracy |", "|---|---|---|---|"]
    for method, warmup in dict.fromkeys((line["method"], line["warmup"]) for line in lines):
        own = [line for line in lines if (line["method"], line["warmup"]) == (method, warmup)]
        means = [fmean(line[name] for line in own) for name in ("agreement", "test_accuracy")]
        rows.append(f"| `{method}` | {warmup} | {means[0]:.3f} | {means[1]:.3f} |")
    return "\n".join(rows)


def main() -> None:
    """Train all, one after another."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--features", metavar="DATA", help="folder of CIFAR-10")
    parser.add_argument("--epochs", type=int, default=40, help="of digits; of features 15")
    parser.add_argument("--limit", type=int, help="only the first rows")
    args = parser.parse_args()

    lines = []
    for settings, task in tasks(args, args.seeds):
        for method in args.methods:
            warmups = [max(round(share * settings.epochs), 1) for share in SHARES[method]]
            for warmup in dict.fromkeys(warmups):
                lines.append(agreement(method, warmup, settings, task))
                sys.stdout.write(to_json(lines[-1]) + "\n")
                sys.stdout.flush()
    sys.stdout.write(markdown(lines) + "\n")


if __name__ == "__main__":
    main()
