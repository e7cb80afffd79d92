"""Do no harm: how far held-out given labels bear out the guesses, and which labels may move.

A classifier that is weaker than the labels cannot purify them. Some rows are therefore kept out of
training. On them the guess and the given label are independent witnesses, and how often both agree
tells how good the guess is at each confidence.
"""

from dataclasses import dataclass
from math import inf, sqrt

import torch
from torch import Tensor

from colafier.flow import TrainSet

FEWEST_ROWS = 50  # held-out rows below which there is no evidence
TO_MOVE = 2.0  # how many times likelier than the given label a guess must be to replace it
TO_STAY = 1.0  # the same for a label that has moved already
SUREST = 0.9975  # confidences above are all the same


@dataclass(frozen=True)
class Evidence:
    """What the held-out rows say about the given labels and about the guesses."""

    rows: int
    agreement: float = 0.0  # share of held-out given labels that the guess meets
    given_right: float = 1.0  # estimated share of right given labels, a
    level: float = -inf  # a guess of confidence c is right with
    slope: float = 0.0  # b(c) = sigmoid(level + slope logit(c))

    def least_confidence(self, odds: float) -> float:
        """The confidence from which a guess is so many times likelier right than a given label.

        Where both disagree, the guess is right with odds b (1 - a), the label with (1 - b) a.
        """
        a = self.given_right
        needed = torch.tensor(odds * a / (odds * a + 1 - a)).logit()  # of b
        if self.slope == 0:
            return 0.0 if self.level >= needed else inf
        confidence = float(((needed - self.level) / self.slope).sigmoid())
        return confidence if confidence <= SUREST else inf


def held_out(train: TrainSet) -> Tensor:
    """Rows kept out of training: 5 %, at least about 100 and at most about 2,000 of them."""
    n = int(train.labelled.sum())
    share = min(max(0.05, min(100 / n, 0.2)), 2000 / n)
    rows = train.holdout(share)
    return rows[~train.trusted[rows]]


def weigh(probabilities: Tensor, given: Tensor) -> Evidence:
    """How good guesses and given labels are, by rows that were never trained on.

    With a share a of right given labels and b(c) of right guesses at confidence c, both agree in
    about a b(c) of the rows. The surest quarter of the guesses is taken as right, so its agreement
    is a: rather too high than too low, since that keeps labels. Then b(c) is fitted to the rest.

    Args:
        probabilities: Of the deployed classifier on held-out rows (m, c).
        given: Their given labels (m,).
    """
    m, num_classes = probabilities.shape
    if m < FEWEST_ROWS:
        return Evidence(m)
    confidence, guess = probabilities.max(1)  # (m,), (m,)
    agree = guess == given  # (m,)
    surest = confidence.topk(m // 4).indices
    right = min(_bound(agree[surest], 1.0), 1.0)  # a
    chance = (1 - right) / (num_classes - 1)  # that a wrong guess meets the given label
    level, slope = _fit(confidence, agree, right, chance)
    evidence = Evidence(m, float(agree.float().mean()), right, level, slope)
    bold = confidence >= evidence.least_confidence(TO_MOVE)
    no_better = right * right + (1 - right) * chance  # agreement of a guess as good as the label
    if not bold.any() or _bound(agree[bold], -1.64) <= no_better:
        return Evidence(m, evidence.agreement, right)
    return evidence


def allows(
    evidence: Evidence, probabilities: Tensor, proposed: Tensor, moved_before: Tensor
) -> Tensor:
    """Whether the proposed labels may replace the given ones (n,).

    Args:
        evidence: What the held-out rows say.
        probabilities: Of the deployed classifier (n, c).
        proposed: Labels (n,), -1 where there is none.
        moved_before: Rows that the gate has judged in training: what moved then needs only be as
            good as the given label to stay (n,).
    """
    confidence = probabilities.gather(1, proposed.clamp(min=0)[:, None])[:, 0]  # (n,)
    to_stay, to_move = (evidence.least_confidence(odds) for odds in (TO_STAY, TO_MOVE))
    return confidence >= torch.where(moved_before, to_stay, to_move)


def _fit(confidence: Tensor, agree: Tensor, right: float, chance: float) -> tuple[float, float]:
    """Level and slope of b(c) that make the agreements likeliest, on a grid."""
    x = confidence.clamp(1 - SUREST, SUREST).logit()  # (m,)
    levels, slopes = torch.linspace(-6, 6, 61), torch.linspace(0, 3, 31)
    best = (-inf, -inf, 0.0)
    for slope in slopes.tolist():
        b = (levels[:, None] + slope * x).sigmoid()  # (61, m)
        p = (chance + (right - chance) * b).clamp(1e-6, 1 - 1e-6)
        likelihood, i = torch.where(agree, p, 1 - p).log().sum(1).max(0)
        best = max(best, (float(likelihood), float(levels[i]), slope))
    return best[1], best[2]


def _bound(agree: Tensor, z: float) -> float:
    """Wilson's bound of a share, z standard deviations above it; below it for negative z."""
    n, share = len(agree), float(agree.float().mean())
    middle = share + z * z / (2 * n)
    return (middle + z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))) / (1 + z * z / n)
