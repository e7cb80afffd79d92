"""The constants that decide about labels, each with where its value comes from."""

from dataclasses import dataclass
from typing import Annotated

from colafier._validation import Range
from colafier.evidence.config import EvidenceConfig, Fraction


@dataclass(frozen=True)
class AuditConfig(EvidenceConfig):
    """How the evidence is made, and when a label may move; values were tuned as those there."""

    # How sure a relabel must be. 0: the likeliest class, which makes the most labels right; people
    # who read relabels as facts ask for 0.95.
    min_confidence: Fraction = 0.0

    # No class may lose more than this share of its rows beyond what it gains, in expectation. One
    # imbalanced set; without the rule rare classes vanish.
    max_class_shrinkage: Fraction = 0.05

    # A doubtful row is an outlier if no class is this likely (or `outlier_chance` times chance).
    # These and the next are set by judgment, not tuned: they name a reason, and move no label.
    outlier_max_probability: Fraction = 0.3
    outlier_chance: Annotated[float, Range(1)] = 1.2
    # A row that goes to review is ambiguous if the second class is this likely.
    ambiguous_min_second: Fraction = 0.3
