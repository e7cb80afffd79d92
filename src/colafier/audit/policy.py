"""From what is believed of a row to what should be done with it, and why."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from colafier.audit.noise_model import Posterior

KEEP, RELABEL, REVIEW, EXCLUDE = "keep", "relabel", "review", "exclude"
WRONG, AMBIGUOUS, OUTLIER, DUPLICATE = "wrong", "ambiguous", "outlier", "duplicate"
# How likely the suggested class must be by default: likelier than the observed one, which is what
# makes most labels right; a person who reads relabels as facts asks for more
MIN_CONFIDENCE = 0.0
MIN_TOP = 0.3  # of a row that looks like any class at all
ABOVE_CHANCE = 1.2  # times chance, where there are so few classes that chance is more
SECOND = 0.3  # of a row that looks like two classes
SHRINKS = 0.05  # share of its rows that a class may lose beyond what it gains, as expected
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
    p: Tensor,
    observed: Tensor,
    *,
    trusted: Tensor | None = None,
    groups: Tensor | None = None,
    may_move: Tensor | None = None,
    min_confidence: float = MIN_CONFIDENCE,
) -> Decisions:
    """What to do with each row.

    Args:
        found: What is believed once the observed labels are known.
        p: P(class | row) of the classifier, before they are (n, c).
        observed: Observed labels (n,), -1 where there is none.
        trusted: Rows whose label a person decided: always kept.
        groups: For each row the number of its group of exact duplicates, -1 for none.
        may_move: Rows that may be relabeled; the others are looked at by a person.
        min_confidence: How likely the suggested class must be for a relabel.
    """
    if not 0 <= min_confidence <= 1:
        raise ValueError(f"min_confidence must be from 0 to 1, not {min_confidence}")
    n = len(observed)
    trusted = torch.zeros(n, dtype=torch.bool) if trusted is None else trusted
    free = ~trusted & (observed >= 0)
    confidence, suggested = found.probabilities.max(1)  # (n,), (n,)
    issue = most_doubtful(found.quality, free, found.rate)
    differs = free & (suggested != observed)
    clashing = _clashing(observed, groups) & free
    least = max(MIN_TOP, ABOVE_CHANCE / p.shape[1])
    outlier = issue & (p.max(1).values < least) & (p.shape[1] > 2)
    sure = differs & (confidence >= min_confidence) & ~outlier & ~clashing
    if may_move is not None:
        sure &= may_move
    sure &= _no_class_shrinks(found.probabilities, observed, suggested, sure)
    look = (issue | differs) & ~sure | clashing
    action = np.full(n, KEEP, dtype=object)
    action[look.numpy()] = REVIEW
    action[sure.numpy()] = RELABEL
    action[(outlier & ~clashing).numpy()] = EXCLUDE
    second = found.probabilities.topk(min(2, p.shape[1]), 1).values[:, -1]
    reason = np.full(n, "", dtype=object)
    reason[(look | sure).numpy()] = WRONG
    reason[(look & (second >= SECOND)).numpy()] = AMBIGUOUS
    reason[outlier.numpy()] = OUTLIER
    reason[clashing.numpy()] = DUPLICATE
    labels = torch.where(sure, suggested, observed)
    return Decisions(suggested, confidence, issue, action, reason, labels)


def most_doubtful(quality: Tensor, free: Tensor, rate: float) -> Tensor:
    """As many of the free rows with the lowest quality as are estimated to be wrong (n,)."""
    rows = free.nonzero()[:, 0]
    count = round(rate * len(rows))
    issue = torch.zeros(len(quality), dtype=torch.bool)
    issue[rows[quality[rows].argsort(stable=True)[:count]]] = True
    return issue


def _no_class_shrinks(p: Tensor, observed: Tensor, suggested: Tensor, moved: Tensor) -> Tensor:
    """Which of the moves to make (n,), so that no class loses many more rows than it gains.

    A rare class is a small suspicion in many rows; one by one they look right to move, but
    together they would take the class away. The surest moves are made first.
    """
    allowed = moved.clone()
    rows = p.double().sum(0)  # (c,) expected of each class
    for label in observed[moved].bincount().nonzero()[:, 0].tolist():
        gained = p[moved & (suggested == label), label].double().sum()
        may_lose = gained + max(SHRINKS * float(rows[label]), 1.0)
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
