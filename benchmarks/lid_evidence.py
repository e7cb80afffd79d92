"""Is LID evidence about labels on frozen features, beside out-of-fold predictions?

    python benchmarks/lid_evidence.py --data FOLDER            # features of CIFAR-10
    python benchmarks/lid_evidence.py --data FOLDER --runs     # CoLafier with and without LID
    python benchmarks/lid_evidence.py                          # digits, pixels as vectors

FOLDER holds cifar-10-batches-py and CIFAR-10_human.pt. Prints one JSON line for each noise and
seed, then Markdown tables of means.

LID-dis is trained on the rows outside of each fold, as the method `lid_dis` trains it. Each
held-out row then has the LID of its z with the observed label, and with the label that
out-of-fold predictions give it, among training rows with their labels. The score `difference` is
the logarithm of the first minus that of the second. Scores are compared by how well they rank
wrong labels. Joined scores come from a logistic regression, cross-validated. It is given the truth,
so it shows how much information is there, not how to get it. As a control, the probability that
the same LID-dis gives to the observed label takes the place of LID.

With `--runs`, CoLafier is trained as usual, and with plain warm-up in all but one of the epochs
before those that train on soft labels.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from colafier._io import to_json
from colafier.audit.pipeline import train_method
from colafier.bench.execute import images_and_rows
from colafier.core.config import ADAPTIVE
from colafier.core.lid import lid, neighbors
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import posterior
from colafier.evidence.out_of_fold import cross_fit
from colafier.methods.lid_dis import WithoutLabel
from colafier.nets.normalize import Normalize
from colafier.workflows import experiment
from colafier.workflows.experiment import Task
from colafier.workflows.settings import Settings, resolve

REFERENCES = (128, 1000, 4000)  # rows to look for neighbors in; the first is a batch
NEIGHBORS = {"k20": 20, "k_by_labels": 0}
BATCH = 128
FEATURES = {"source": "cifar10", "embedder": "efficientnet_lite0", "net": "mlp", "limit": 10_000}
HUMAN = ("aggregate", "random1", "random2", "random3", "worst")

Scores = dict[str, Tensor]


def tasks(args: argparse.Namespace) -> Iterator[tuple[Settings, Task, Tensor]]:
    """Rows with noisy labels and their out-of-fold predictions (n, c), for each noise and seed."""
    for noise in args.noises:
        spec = f"cifar10n:{noise}:{args.data}/CIFAR-10_human.pt" if noise in HUMAN else noise
        for seed in args.seeds:
            asked = {"noise": spec, "seed": seed, "epochs": args.epochs, "lr_floor": 0.02}
            if args.data:
                asked |= FEATURES | {"data": f"{args.data}/cifar-10-batches-py"}
            if args.limit:
                asked |= {"limit": args.limit}
            settings = resolve(None, asked | {"net": "mlp", "batch_size": BATCH})
            images, rows = images_and_rows(settings)
            vectors = {name: getattr(rows, name).flatten(1).float() for name in ("x", "test_x")}
            task = experiment.with_noise(settings, images, replace(rows, **vectors))
            x, labels = task.source.x, Labels(task.observed)
            p = cross_fit(x, labels, rows.num_classes, Normalize.fit(x), seed=seed)  # (n, c)
            yield settings, replace(task, out_of_fold=p), p


def held_out_scores(settings: Settings, task: Task, predicted: Tensor, folds: int) -> Scores:
    """LID with the observed and with the predicted label, and the control (n,) each.

    Args:
        settings: How LID-dis is trained.
        task: Rows and observed labels.
        predicted: Out-of-fold predicted labels (n,).
        folds: Number of folds.
    """
    n = len(task.observed)
    generator = torch.Generator().manual_seed(settings.seed)
    fold = torch.randperm(n, generator=generator) % folds  # (n,)
    found: Scores = {}
    for number in range(folds):
        held, others = ((fold == number).nonzero()[:, 0], (fold != number).nonzero()[:, 0])
        config = replace(
            settings,
            method="lid_dis",
            hyper={
                "embedding_scale": ADAPTIVE.embedding_scale,
                "other_weight": ADAPTIVE.other_weight,
            },
        )
        labels = Labels(task.observed[others])
        trained = train_method(task.source.x[others], labels, task.source.num_classes, config)
        net = trained.classifier.eval()
        assert isinstance(net, WithoutLabel)
        with torch.no_grad():
            features = net.dis.encode(trained.normalize(task.source.x))  # (n, d)
            own = net(trained.normalize(task.source.x[held])).log_softmax(1)  # (m, c)
        scores = {"lid_dis": own.gather(1, task.observed[held, None])[:, 0]}
        for size in REFERENCES:
            known = others[torch.randperm(len(others), generator=generator)[:size]]
            scores |= _lid_scores(net, features, task.observed, predicted, held, known)
        for name, values in scores.items():
            found.setdefault(name, torch.zeros(n))[held] = values.float()
    return found


@torch.no_grad()
def _lid_scores(
    net: WithoutLabel,
    features: Tensor,
    observed: Tensor,
    predicted: Tensor,
    held: Tensor,
    known: Tensor,
) -> Scores:
    """Logarithms of LID of the held-out rows, and their difference, for each k."""
    reference, _ = net.dis.judge(features[known], observed[known])  # (r, d)
    scores: Scores = {}
    for name, fixed in NEIGHBORS.items():
        of_labels = []
        for labels in (observed[held], predicted[held]):
            z, _ = net.dis.judge(features[held], labels)  # (m, d)
            k = neighbors(labels, observed[known], fixed)  # (m,)
            of_labels.append(lid(z, k, reference).log())
        scores[f"observed {len(known)} {name}"] = of_labels[0]
        scores[f"difference {len(known)} {name}"] = of_labels[0] - of_labels[1]
    return scores


def joined(parts: Sequence[Tensor], wrong: np.ndarray, seed: int) -> np.ndarray:
    """Cross-validated scores (n,) of a logistic regression on these evidences."""
    inputs = torch.stack([part.double() for part in parts], 1).numpy()  # (n, evidences)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    split = StratifiedKFold(5, shuffle=True, random_state=seed)
    return cross_val_predict(model, inputs, wrong, cv=split, method="decision_function")


def ranking(scores: Any, wrong: np.ndarray) -> dict[str, float]:
    """How well scores rank wrong labels first."""
    return {
        "auroc": float(roc_auc_score(wrong, scores)),
        "ap": float(average_precision_score(wrong, scores)),
    }


def _name(settings: Settings) -> str:
    """The noise without the path of a file."""
    return ":".join(settings.noise.split(":")[:2])


def evidence(settings: Settings, task: Task, p: Tensor, folds: int) -> dict[str, Any]:
    """Rankings of all scores for one noise and seed; the truth is used only here."""
    begin = time.process_time()
    quality = posterior(p, Labels(task.observed)).quality.double()  # (n,)
    found = held_out_scores(settings, task, p.argmax(1), folds)
    wrong = (task.observed != task.source.labels).numpy()  # (n,)
    base = torch.special.logit(quality, eps=1e-6)  # (n,)
    rankings = {"posterior": ranking(1 - quality, wrong)}
    rankings["posterior + lid_dis"] = ranking(
        joined([base, found["lid_dis"]], wrong, settings.seed), wrong
    )
    for name, values in found.items():
        if name == "lid_dis":
            rankings[name] = ranking(-values, wrong)
            continue
        rankings[name] = ranking(values, wrong)
        both = joined([base, values], wrong, settings.seed)
        rankings[f"posterior + {name}"] = ranking(both, wrong)
    return {
        "noise": _name(settings),
        "seed": settings.seed,
        "wrong": float(wrong.mean()),
        "predictions_differ": float((p.argmax(1) != task.observed).double().mean()),
        "scores": rankings,
        "cpu_seconds": round(time.process_time() - begin, 1),
    }


def with_and_without(settings: Settings, task: Task) -> dict[str, Any]:
    """CoLafier as usual, and with plain warm-up before the epochs on soft labels."""
    warmup = ADAPTIVE.posterior_start(settings.epochs) - 1
    line: dict[str, Any] = {"noise": _name(settings), "seed": settings.seed}
    for name, hyper in (("usual", {}), ("plain", {"warmup": warmup})):
        config = replace(settings, method="colafier", hyper=hyper)
        begin = time.process_time()
        record = experiment.train(config, task, progress=False).record
        line[name] = {
            "test_accuracy": record["test_accuracy"],
            "labels_right_before": record["labels_right_before"],
            "labels_right_after": record["labels_right_after"],
            "audit_right_after": record["audit"]["labels_right_after"],
            "cpu_seconds": round(time.process_time() - begin, 1),
        }
    return line


def table_of_scores(lines: Sequence[dict[str, Any]]) -> str:
    """Means over seeds: AUROC and average precision for each noise."""
    noises = list(dict.fromkeys(line["noise"] for line in lines))
    rows = [
        "| score | " + " | ".join(f"{noise}: AUROC, AP" for noise in noises) + " |",
        "|---" * (1 + len(noises)) + "|",
    ]
    for name in lines[0]["scores"]:
        cells = []
        for noise in noises:
            own = [line["scores"][name] for line in lines if line["noise"] == noise]
            cells.append(", ".join(f"{fmean(s[key] for s in own):.4f}" for key in ("auroc", "ap")))
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def table_of_runs(lines: Sequence[dict[str, Any]]) -> str:
    """Means over seeds of CoLafier with and without LID."""
    keys = ("test_accuracy", "labels_right_after", "audit_right_after", "cpu_seconds")
    rows = [
        "| noise | epochs | test accuracy | labels right | after the audit | CPU seconds |",
        "|---|---|---|---|---|---|",
    ]
    for noise in dict.fromkeys(line["noise"] for line in lines):
        own = [line for line in lines if line["noise"] == noise]
        for name in ("usual", "plain"):
            means = [fmean(line[name][key] for line in own) for key in keys]
            cells = " | ".join(f"{mean:.4f}" for mean in means[:-1])
            rows.append(f"| {noise} | {name} | {cells} | {means[-1]:.0f} |")
    return "\n".join(rows)


def main() -> None:
    """All noises and seeds, one line each, then the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="", help="folder of CIFAR-10 and CIFAR-10N")
    parser.add_argument("--noises", nargs="+", default=["instance:0.3", "symmetric:0.35"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 12, 13])
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--limit", type=int, help="only the first rows")
    parser.add_argument("--runs", action="store_true", help="train CoLafier with and without LID")
    args = parser.parse_args()

    lines = []
    for settings, task, p in tasks(args):
        found = (
            with_and_without(settings, task)
            if args.runs
            else evidence(settings, task, p, args.folds)
        )
        lines.append(found)
        sys.stdout.write(to_json(found) + "\n")
        sys.stdout.flush()
    sys.stdout.write((table_of_runs if args.runs else table_of_scores)(lines) + "\n")


if __name__ == "__main__":
    main()
