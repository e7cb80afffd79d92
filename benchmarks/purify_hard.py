"""Two hard cases for purify, on CIFAR-10 and the features of `benchmarks/purify.py`.

Imbalance: the largest class has 50 times as many rows as the smallest, with 20 % symmetric noise.
No class may vanish, and rare classes must not lose recall compared with the observed labels.
Outliers: two classes are hidden under random labels of the other eight. Are they found?

    python benchmarks/purify_hard.py --data cifar-10-batches-py
"""

import argparse
import sys
from typing import Any

import torch
from purify import features_of
from sklearn.metrics import roc_auc_score
from torch import Tensor

from colafier._io import to_json
from colafier.audit.pipeline import AuditResult, configure, train_and_audit
from colafier.benchmark_data import sources
from colafier.evidence.labels import Labels

RARE = 3  # classes


def judge(x: Tensor, observed: Tensor, num_classes: int, seed: int) -> AuditResult:
    """`colafier purify` from the features on."""
    how = configure((x.shape[1],), len(x), {"seed": seed})
    return train_and_audit(x, Labels(observed), num_classes, *how)


def imbalance(x: Tensor, truth: Tensor, seed: int) -> dict[str, Any]:
    """Recall of each class with the observed labels and with the purified ones."""
    generator = torch.Generator().manual_seed(seed)
    sizes = (5000 * 50 ** (-torch.arange(10) / 9)).long()  # 5000 ... 100
    rows = torch.cat([(truth == c).nonzero()[: sizes[c], 0] for c in range(10)])
    x, truth = x[rows], truth[rows]
    noisy = torch.rand(len(truth), generator=generator) < 0.2
    other = (truth + torch.randint(1, 10, truth.shape, generator=generator)) % 10
    observed = torch.where(noisy, other, truth)
    judged = judge(x, observed, 10, seed)
    labels = judged.decided.labels
    recall = [
        [float((found[truth == c] == c).float().mean()) for c in range(10)]
        for found in (observed, labels)
    ]
    return {
        "rows": len(rows),
        "true_rate": float((observed != truth).float().mean()),
        "rate": judged.found.rate,
        "labels_right": [float((found == truth).float().mean()) for found in (observed, labels)],
        "recall_observed": recall[0],
        "recall_purified": recall[1],
        "recall_rare": [sum(r[-RARE:]) / RARE for r in recall],
    }


def outlier(x: Tensor, truth: Tensor, seed: int) -> dict[str, Any]:
    """How well rows that belong to no class are separated from the others."""
    generator = torch.Generator().manual_seed(seed)
    hidden = truth >= 8
    observed = torch.where(hidden, torch.randint(8, truth.shape, generator=generator), truth)
    judged = judge(x, observed, 8, seed)
    said = torch.from_numpy(judged.decided.reason == "outlier")
    return {
        "auroc_outlier": roc_auc_score(hidden, 1 - judged.found.plausible.max(1).values),
        "auroc_quality": roc_auc_score(hidden, -judged.found.quality),
        "called_outlier": int(said.sum()),
        "of_these_hidden": float(hidden[said].float().mean()) if said.any() else None,
    }


def main() -> None:
    """Both cases, one line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of CIFAR-10's python files")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    source = sources.cifar10(args.data)
    x, _ = features_of(source)
    line = {
        "benchmark": "purify_hard",
        "imbalance": imbalance(x, source.labels, args.seed),
        "outlier": outlier(x, source.labels, args.seed),
    }
    sys.stdout.write(to_json(line) + "\n")


if __name__ == "__main__":
    main()
