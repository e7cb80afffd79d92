"""Purify CIFAR-10N on frozen features, compared with cleanlab and a GCE linear probe with EM.

Prints one JSON line per label set: average precision, F1 at the tool's own threshold, labels
right after, the estimated rate, test accuracy and seconds, for each of the three tools.

    python benchmarks/purify.py --data cifar-10-batches-py --human CIFAR-10_human.pt \
        --labels random2 random3

Features come from efficientnet_lite0 at 128 pixels, and from the cache after the first time.
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from colafier import embed
from colafier._io import to_json
from colafier.audit.config import AuditConfig
from colafier.audit.pipeline import configure, train_and_audit
from colafier.audit.policy import decide
from colafier.benchmark_data import noise, sources
from colafier.benchmark_data.sources import Source
from colafier.core.functional import gce
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import soft_labels
from colafier.ingest.content import content_key
from colafier.nets import inference
from colafier.nets.normalize import Normalize
from colafier.workflows.settings import read_pairs

STRICT = 0.95  # also scored: the label changes of `--min-confidence 0.95`
KNOWN = ("aggregate", "random1", "random2", "random3", "worst")


def features_of(source: Source) -> tuple[Tensor, Tensor]:
    """Features of training and test images (n, 1280), through the cache."""
    net = embed.embedder("efficientnet_lite0", "image", 128)
    both = torch.cat([source.x, source.test_x]).numpy()
    keys = [content_key(image) for image in both]
    found, problems = embed.embed(list(both), keys, net, cache=embed.default_folder())
    assert not problems
    return torch.from_numpy(found[: len(source.x)]), torch.from_numpy(found[len(source.x) :])


def labels_of(name: str, source: Source, human: str, seed: int) -> Tensor:
    """One of CIFAR-10N's label sets, `clean`, or noise as for `colafier train`."""
    spec = f"cifar10n:{name}:{human}" if name in KNOWN else name.replace("clean", "none")
    return noise.inject(spec, source, seed)[0]


def figures(
    truth: Tensor, observed: Tensor, quality: Tensor, issue: Tensor, labels: Tensor | None
) -> dict[str, Any]:
    """Scores of one tool; the truth is used only here."""
    wrong = (observed != truth).numpy()
    found = {
        "ap": average_precision_score(wrong, -quality.numpy()) if wrong.any() else None,
        "f1": f1_score(wrong, issue.numpy(), zero_division=0.0),
        "flagged": float(issue.float().mean()),
    }
    if labels is not None:
        changed = labels != observed
        right = labels == truth
        found |= {
            "labels_right": float(right.float().mean()),
            "changed": float(changed.float().mean()),
            "fixed": int((changed & right).sum()),
            "broken": int((changed & (observed == truth)).sum()),
            "relabel_precision": float(right[changed].float().mean()) if changed.any() else None,
        }
    return found


def ours(
    x: Tensor,
    test_x: Tensor,
    observed: Tensor,
    source: Source,
    chosen: dict[str, Any],
    audit: dict[str, Any],
) -> dict[str, Any]:
    """`colafier purify`, starting from the features."""
    begin = time.perf_counter()
    train, judge = configure(tuple(x.shape[1:]), len(x), chosen, audit)
    labels = Labels(observed)
    result = train_and_audit(x, labels, source.num_classes, train, judge)
    seconds = time.perf_counter() - begin
    decided, found = result.decided, result.found
    p = inference.predict(result.classifier, test_x, result.normalize)
    wrong = observed != source.labels
    review = found.quality.argsort()[:2000]
    strict = decide(found, labels, AuditConfig(min_confidence=STRICT)).labels
    moved = strict != observed
    right = (strict == source.labels)[moved]
    return {
        **figures(source.labels, observed, found.quality, decided.issue, decided.labels),
        **decided.expected(observed, found.quality),
        "strict_relabels": int(moved.sum()),
        "strict_precision": float(right.float().mean()) if moved.any() else None,
        "rate": found.rate,
        "interval": found.interval,
        "feature_weight": found.model.feature_weight,
        "wrong_in_first_2000": float(wrong[review].float().mean()),
        "test_accuracy": float((p.argmax(1) == source.test_labels).float().mean()),
        "seconds": seconds,
    }


def cleanlab_probe(x: Tensor, observed: Tensor, source: Source) -> dict[str, Any]:
    """Cleanlab's default filter on 5-fold linear probes on the same features."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    scaled = StandardScaler().fit_transform(x.numpy())
    probe = LogisticRegression(max_iter=100, C=0.01)
    p = cross_val_predict(probe, scaled, observed.numpy(), cv=5, method="predict_proba")
    begin = time.perf_counter()
    issue = find_label_issues(observed.numpy(), p)
    quality = get_label_quality_scores(observed.numpy(), p)
    scores = figures(
        source.labels, observed, torch.from_numpy(np.array(quality)), torch.from_numpy(issue), None
    )
    return {**scores, "rate": scores["flagged"], "seconds": time.perf_counter() - begin}


def gce_em(
    x: Tensor, test_x: Tensor, observed: Tensor, source: Source, seed: int
) -> dict[str, Any]:
    """A linear probe with the generalized cross entropy, then a transition matrix by EM."""
    begin = time.perf_counter()
    torch.manual_seed(seed)
    normalize = Normalize.fit(x)
    net = nn.Linear(x.shape[1], source.num_classes)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2)
    for epoch in range(10):
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - epoch / 10)
        for rows in torch.randperm(len(x)).split(512):
            loss = gce(net(normalize(x[rows])), observed[rows]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    p = inference.predict(net, x, normalize)
    believed = soft_labels(p.double(), observed)
    quality = believed.gather(1, observed[:, None])[:, 0]
    scores = figures(source.labels, observed, quality, quality < 0.5, believed.argmax(1))
    test = inference.predict(net, test_x, normalize).argmax(1) == source.test_labels
    return {
        **scores,
        "rate": float(1 - quality.mean()),
        "test_accuracy": float(test.float().mean()),
        "seconds": time.perf_counter() - begin,
    }


def main() -> None:
    """All label sets, one line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of CIFAR-10's python files")
    parser.add_argument("--human", required=True, help="CIFAR-10_human.pt")
    parser.add_argument("--labels", nargs="+", default=["random2"], help="sets, clean, or noise")
    parser.add_argument("--tools", nargs="+", default=["colafier", "gce_em", "cleanlab"])
    parser.add_argument("--audit", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--limit", type=int, help="only so many training images")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    chosen = {"seed": args.seed, "hyper": read_pairs(args.set)}
    audit = read_pairs(args.audit)
    source = sources.cifar10(args.data, args.limit)
    x, test_x = features_of(source)
    for name in args.labels:
        observed = labels_of(name, source, args.human, args.seed)
        tools: dict[str, Callable[[], dict[str, Any]]] = {
            "colafier": lambda y=observed: ours(x, test_x, y, source, chosen, audit),
            "gce_em": lambda y=observed: gce_em(x, test_x, y, source, args.seed),
            "cleanlab": lambda y=observed: cleanlab_probe(x, y, source),
        }
        line: dict[str, Any] = {
            "benchmark": "purify",
            "labels": name,
            "true_rate": float((observed != source.labels).float().mean()),
        }
        line |= {tool: tools[tool]() for tool in args.tools}
        line["peak_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        sys.stdout.write(to_json(line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
