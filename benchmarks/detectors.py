"""The detection baselines of `colafier.audit.detectors` on rows and labels of the benchmark.

    python benchmarks/detectors.py                # suite digits, 40 % instance noise
    python benchmarks/detectors.py --fm-mini      # suite fm-mini

Prints a Markdown table: how well each detector ranks the wrong labels first. Confident learning
uses out-of-fold probabilities of a logistic regression on the pixels. Losses and margins come from
plain training (`ce`). Neighbors are found among the pixels.
"""

import argparse
import sys

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import cross_val_predict
from torch import Tensor

from colafier.audit import detectors
from colafier.bench.suite import load_suite
from colafier.evidence.labels import Labels
from colafier.methods import build
from colafier.methods.contract import Method
from colafier.nets import net_factory
from colafier.training.optimizers import OptimizerSettings
from colafier.training.trainer import fit
from colafier.training.training_set import TrainingSet
from colafier.workflows.experiment import Task, prepare
from colafier.workflows.settings import Settings


def training_course(settings: Settings, task: Task) -> list[Tensor]:
    """Log probabilities of all rows (n, c) after each epoch of plain training."""
    method = build("ce")
    rows = TrainingSet(
        task.source.x,
        Labels(task.observed),
        task.source.num_classes,
        view_names=method.views,
        batch_size=settings.batch_size,
        seed=settings.seed,
        flip=settings.flip,
    )
    trajectory: list[Tensor] = []

    def remember(trained: Method, _: int) -> dict[str, float]:
        trajectory.append(rows.predict(trained.deployed()).clamp(min=1e-12).log())
        return {}

    fit(
        method,
        rows,
        net_factory(settings.net, rows.row_shape, rows.num_classes),
        epochs=settings.epochs,
        optimizer=OptimizerSettings(
            lr=settings.lr, weight_decay=settings.weight_decay, lr_floor=settings.lr_floor
        ),
        seed=settings.seed,
        score=remember,
    )
    return trajectory


def qualities(settings: Settings, task: Task) -> dict[str, Tensor]:
    """The quality (n,) of the labels according to each detector."""
    observed, pixels = task.observed, task.source.x.flatten(1).float() / 255  # (n,), (n, d)
    regression = LogisticRegression(max_iter=200)
    unseen = cross_val_predict(regression, pixels, observed, cv=5, method="predict_proba")  # (n, c)
    trajectory = training_course(settings, task)
    losses = -trajectory[-1].gather(1, observed[:, None])[:, 0]  # (n,)
    margins = torch.stack([detectors.margin(log_p, observed) for log_p in trajectory]).mean(
        0
    )  # (n,)
    return {
        "confident_learning": detectors.confident_learning(torch.from_numpy(unseen), observed),
        "small_loss": detectors.small_loss(losses, observed),
        "mean_margin": detectors.mean_margin(margins, observed),
        "knn_voting": detectors.knn_voting(pixels, observed),
    }


def main() -> None:
    """Run all detectors and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fm-mini", action="store_true", help="Fashion-MNIST instead of digits")
    parser.add_argument("--data", default="", help="folder of the files of Fashion-MNIST")
    args = parser.parse_args()

    suite = load_suite("fm-mini" if args.fm_mini else "digits")
    noises = [] if args.fm_mini else ["instance:0.4"]
    (run,) = suite.runs(args.data, ["ce"], noises, [args.seed])
    settings = run.settings
    task = prepare(settings)
    wrong = (task.observed != task.truth).numpy()
    lines = ["| detector | AUROC for wrong labels | average precision |", "| --- | --- | --- |"]
    for name, quality in qualities(settings, task).items():
        doubt = 1 - quality.double().numpy()
        auroc, precision = roc_auc_score(wrong, doubt), average_precision_score(wrong, doubt)
        lines.append(f"| `{name}` | {auroc:.3f} | {precision:.3f} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
