"""The holdout check: do held-out observed labels support the predictions, and which may move?

A classifier that is weaker than the labels cannot purify them. Some rows are therefore kept out of
training. On them prediction and observed label err independently, and how often both agree tells
how good the prediction is at each confidence.
"""

from dataclasses import asdict, dataclass
from math import inf, sqrt

import torch
from torch import Tensor

MIN_ROWS = 50  # held-out rows below which there is no evidence
TO_MOVE = 1.5  # how many times likelier than the observed label a prediction must be to replace it
TO_STAY = 1.0  # the same for a label that has moved already
SUREST = 0.9975  # confidences above are all the same
BINS = 60
LEVELS = torch.linspace(-4, 4, 41)
SLOPES = torch.linspace(0.8, 3, 23)  # confidence must mean something to be evidence

Figures = dict[str, float | int | str]


@dataclass(frozen=True)
class Evidence:
    """What the held-out rows show about the observed labels and about the predictions."""

    rows: int
    agreement: float = 0.0  # share of held-out observed labels that the prediction meets
    observed_right: float = 1.0  # estimated share of right observed labels, a
    level: float = -inf  # a prediction of confidence c is right with
    slope: float = 0.0  # b(c) = sigmoid(level + slope logit(c))

    def min_confidence(self, odds: float) -> float:
        """The confidence at which a prediction is so many times likelier right than the label.

        Where both disagree, the prediction is right with odds b (1 - a), the label with (1 - b) a.
        """
        a = self.observed_right
        needed = torch.tensor(odds * a / (odds * a + 1 - a)).logit()  # of b
        if self.slope == 0:
            return inf
        confidence = float(((needed - self.level) / self.slope).sigmoid())
        return confidence if confidence <= SUREST else inf


class NoHoldoutCheck:
    """The paper's: every row is trained on, and every label may move."""

    surveys = False  # whether it needs predictions for all rows after each epoch

    def share(self, n: int) -> float:  # noqa: ARG002
        """The share of n rows that is kept out of training."""
        return 0.0

    def admit(self, labels: Tensor, proposed: Tensor, allowed: Tensor) -> Tensor:  # noqa: ARG002
        """The labels for the next epoch that the check admits (b,).

        Args:
            labels: Labels now (b,).
            proposed: Labels for the next epoch (b,).
            allowed: The class that the last survey allows for each row (b,).
        """
        return proposed

    def settle(
        self,
        probabilities: Tensor,  # noqa: ARG002
        observed: Tensor,  # noqa: ARG002
        labels: Tensor,
        original: Tensor,  # noqa: ARG002
        held: Tensor,  # noqa: ARG002
    ) -> tuple[Tensor, Figures]:
        """The labels that pass the check (n,), and figures that explain it.

        Args:
            probabilities: Of the deployed classifier (n, c).
            observed: Observed labels (n,), 0 for rows without one.
            labels: Labels now (n,), 0 for rows without one.
            original: Labels that came with the data (n,), -1 for rows that are no evidence.
            held: Rows that were kept out of training, as a boolean mask (n,).
        """
        return labels, {}


class HoldoutCheck(NoHoldoutCheck):
    """A label moves only where the held-out rows show that the prediction is better."""

    surveys = True

    def share(self, n: int) -> float:
        """Of n rows 5 %, at least 300 rows (but no more than a fifth), at most 2,000."""
        return min(max(0.05, min(300 / n, 0.2)), 2000 / n)

    def admit(self, labels: Tensor, proposed: Tensor, allowed: Tensor) -> Tensor:
        """A label moves only to the class that is allowed for its row (b,)."""
        return torch.where(proposed == allowed, proposed, labels)

    def settle(
        self,
        probabilities: Tensor,
        observed: Tensor,
        labels: Tensor,
        original: Tensor,
        held: Tensor,
    ) -> tuple[Tensor, Figures]:
        """The observed labels, except where the evidence is for another (n,), and the evidence."""
        rows = original >= 0
        evidence = weigh(probabilities[rows], original[rows], held[rows])
        return settle(evidence, probabilities, observed, labels), asdict(evidence)


def weigh(probabilities: Tensor, observed: Tensor, held: Tensor) -> Evidence:
    """How good predictions and observed labels are.

    With a share a of right observed labels and b(c) of right predictions at confidence c, both
    agree in about a b(c) of the rows: the more confident the prediction, the nearer to a. The
    held-out rows are honest but few, the trained ones are many but perhaps memorized. Each gives
    an estimate of a, rather too high than too low, since that keeps labels; the lower one counts.

    Args:
        probabilities: Of the deployed classifier (m, c).
        observed: Observed labels (m,).
        held: Rows that were never trained on, as a boolean mask (m,).
    """
    rows = int(held.sum())
    if rows < MIN_ROWS:
        return Evidence(rows)
    confidence, prediction = probabilities.max(1)  # (m,), (m,)
    agree = prediction == observed  # (m,)
    num_wrong = probabilities.shape[1] - 1  # classes that a wrong label may have
    honest = _Bins(confidence[held], agree[held])
    trained = _Bins(confidence[~held], agree[~held])
    right = min(_right_labels(bins, num_wrong) for bins in (honest, trained))
    _, level, slope = honest.fit(right, num_wrong)
    evidence = Evidence(rows, float(agree[held].float().mean()), right, level, slope)
    bold = held & (confidence >= evidence.min_confidence(TO_MOVE))
    # Agreement of a prediction that is as good as the label
    no_better = right**2 + (1 - right) ** 2 / num_wrong
    if not bold.any() or _lower_bound(agree[bold]) <= no_better:
        return Evidence(rows, evidence.agreement, right)
    return evidence


def settle(evidence: Evidence, probabilities: Tensor, observed: Tensor, labels: Tensor) -> Tensor:
    """The labels that come out (n,): the observed ones, except where the evidence is for another.

    Args:
        evidence: What the held-out rows show.
        probabilities: Of the deployed classifier (n, c).
        observed: Observed labels (n,).
        labels: Labels now (n,); one that has moved need only be as good as the observed one.
    """
    confidence, prediction = probabilities.max(1)  # (n,), (n,)
    of_labels = probabilities.gather(1, labels[:, None])[:, 0]  # (n,)
    kept = torch.where(of_labels >= evidence.min_confidence(TO_STAY), labels, observed)
    return torch.where(confidence >= evidence.min_confidence(TO_MOVE), prediction, kept)


class _Bins:
    """Rows in bins of like confidence, with the share that agrees: enough to fit a curve."""

    def __init__(self, confidence: Tensor, agree: Tensor) -> None:
        x = confidence.clamp(1 - SUREST, SUREST).logit()  # (m,)
        parts = [part for part in x.argsort().chunk(BINS) if len(part)]
        self.x = torch.stack([x[part].mean() for part in parts])
        self.agree = torch.stack([agree[part].float().sum() for part in parts])
        self.disagree = torch.tensor([float(len(part)) for part in parts]) - self.agree

    def fit(self, right: float, num_wrong: int) -> tuple[float, float, float]:
        """Log likelihood, level and slope of the likeliest b(c), on a grid."""
        chance = (1 - right) / num_wrong  # that a wrong prediction meets the observed label
        b = (LEVELS[:, None, None] + SLOPES[:, None] * self.x).sigmoid()  # (levels, slopes, bins)
        p = (chance + (right - chance) * b).clamp(1e-6, 1 - 1e-6)
        likelihood = (self.agree * p.log() + self.disagree * (1 - p).log()).sum(2)
        i, j = divmod(int(likelihood.argmax()), len(SLOPES))
        return float(likelihood[i, j]), float(LEVELS[i]), float(SLOPES[j])


def _right_labels(bins: _Bins, num_wrong: int) -> float:
    """The share of right observed labels: the upper end of what the rows make likely."""
    shares = torch.arange(0.02, 1.001, 0.02)
    likelihood = torch.tensor([bins.fit(share, num_wrong)[0] for share in shares.tolist()])
    return float(shares[likelihood >= likelihood.max() - 1.35].max())  # 95 %, one-sided


def _lower_bound(agree: Tensor) -> float:
    """A cautious estimate of a share: Wilson's bound one standard deviation below it."""
    n, share, z = len(agree), float(agree.float().mean()), 1.0
    middle = share + z * z / (2 * n)
    return (middle - z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))) / (1 + z * z / n)
