"""From what is believed of a row to what should be done with it, and why."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from colafier.audit.config import AuditConfig
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import Posterior

KEEP, RELABEL, REVIEW, EXCLUDE = "keep", "relabel", "review", "exclude"
WRONG, AMBIGUOUS, OUTLIER, DUPLICATE = "wrong", "ambiguous", "outlier", "duplicate"
UNUSABLE = "unusable"  # before the reason why a row could not be read


@dataclass(frozen=True)
class Decisions:
    """One entry per row, in input order."""

    suggested: Tensor  # (n,) the most probable class, given the row and its label
    confidence: Tensor  # (n,) its probability
    issue: Tensor  # (n,) bool: as many of the most doubtful labels as are estimated to be wrong
    action: np.ndarray  # (n,) texts
    reason: np.ndarray  # (n,) texts, empty where the label is kept
    labels: Tensor  # (n,) the observed ones, except where the action is relabel

    def expected(self, observed: Tensor, quality: Tensor) -> dict[str, float]:
        """What the relabels should do: wrong labels fixed, clean labels broken."""
        moved = (self.labels != observed) & (observed >= 0)
        return {
            "relabeled": int(moved.sum()),
            "expected_fixed": float(self.confidence[moved].sum()),
            "expected_broken": float(quality[moved].sum()),
        }


def decide(
    found: Posterior,
    labels: Labels,
    config: AuditConfig | None = None,
    *,
    groups: Tensor | None = None,
    may_move: Tensor | None = None,
) -> Decisions:
    """What to do with each row.

    Args:
        found: What is believed once the observed labels are known.
        labels: The labels; trusted ones are always kept.
        config: How sure a relabel must be, and the other thresholds.
        groups: For each row the number of its group of exact duplicates, -1 for none.
        may_move: Rows that may be relabeled; a person looks at the others. None: all may.
    """
    config = AuditConfig() if config is None else config
    p, observed, free = found.plausible, labels.observed, labels.doubtful
    confidence, suggested = found.probabilities.max(1)  # (n,), (n,)
    issue = most_doubtful(found.quality, free, found.rate)
    differs = free & (suggested != observed)
    clashing = _clashing(observed, groups) & free
    lowest = max(config.outlier_max_probability, config.outlier_chance / p.shape[1])
    outlier = issue & (p.max(1).values < lowest) & (p.shape[1] > 2)
    sure = differs & (confidence >= config.min_confidence) & ~outlier & ~clashing
    if may_move is not None:
        sure &= may_move
    shrinkage = config.max_class_shrinkage
    sure &= _no_class_shrinks(found.probabilities, observed, suggested, sure, shrinkage)
    look = (issue | differs) & ~sure | clashing
    second = found.probabilities.topk(min(2, p.shape[1]), 1).values[:, -1]
    action = _texts(len(labels), KEEP, {REVIEW: look, RELABEL: sure, EXCLUDE: outlier & ~clashing})
    reason = _texts(
        len(labels),
        "",
        {
            WRONG: look | sure,
            AMBIGUOUS: look & (second >= config.ambiguous_min_second),
            OUTLIER: outlier,
            DUPLICATE: clashing,
        },
    )
    new = torch.where(sure, suggested, observed)
    return Decisions(suggested, confidence, issue, action, reason, new)


def _texts(n: int, default: str, chosen: dict[str, Tensor]) -> np.ndarray:
    """A text for each row (n,); of several that apply the last one counts."""
    texts = np.full(n, default, dtype=object)
    for text, rows in chosen.items():
        texts[rows.numpy()] = text
    return texts


def most_doubtful(quality: Tensor, free: Tensor, rate: float) -> Tensor:
    """As many of the free rows with the lowest quality as are estimated to be wrong (n,)."""
    rows = free.nonzero()[:, 0]
    count = round(rate * len(rows))
    issue = torch.zeros(len(quality), dtype=torch.bool)
    issue[rows[quality[rows].argsort(stable=True)[:count]]] = True
    return issue


def _no_class_shrinks(
    p: Tensor, observed: Tensor, suggested: Tensor, moved: Tensor, shrinkage: float
) -> Tensor:
    """Which of the moves to make (n,), so that no class loses many more rows than it gains.

    A rare class is a small suspicion in many rows; one by one they look right to move, but
    together they would take the class away. The surest moves are made first.
    """
    allowed = moved.clone()
    rows = p.double().sum(0)  # (c,) expected of each class
    for label in observed[moved].bincount().nonzero()[:, 0].tolist():
        gained = p[moved & (suggested == label), label].double().sum()
        may_lose = gained + max(shrinkage * float(rows[label]), 1.0)
        leaving = (moved & (observed == label)).nonzero()[:, 0]
        lost, order = p[leaving, label].double().sort(stable=True)  # (m,), the surest first
        allowed[leaving[order]] = lost.cumsum(0) <= may_lose
    return allowed


def _clashing(observed: Tensor, groups: Tensor | None) -> Tensor:
    """Exact duplicates with different observed labels: at least one of them is wrong."""
    clash = torch.zeros(len(observed), dtype=torch.bool)
    if groups is None:
        return clash
    member = (groups >= 0) & (observed >= 0)
    if not member.any():
        return clash
    count = int(groups.max()) + 1
    most = int(observed.max())
    low = torch.full((count,), most).scatter_reduce(0, groups[member], observed[member], "amin")
    high = torch.full((count,), -1).scatter_reduce(0, groups[member], observed[member], "amax")
    clash[member] = (low != high)[groups[member]]
    return clash
