"""The holdout check: no label moves before held-out rows show that predictions beat the labels.

A classifier that is weaker than the labels would make them worse. Some rows are kept out of
training, so that their predictions are honest. Their true classes are not known, but how often
prediction and observed label agree, and where, tells how good both are.
"""

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

MIN_ROWS = 20  # held-out rows below which there is no evidence
MIN_CHANCE = 0.8  # that predictions are better than the labels, for the check to pass
IN_A_ROW = 2  # epochs that must show it: one may be lucky
LABELS_RIGHT = torch.arange(0.02, 1.001, 0.02, dtype=torch.float64)  # candidates for a
SHARPNESS = torch.logspace(-0.8, 0.8, 33, dtype=torch.float64)  # candidates for s

Figures = dict[str, float | int | str]


@dataclass(frozen=True)
class Evidence:
    """What the held-out rows show about the observed labels and about the predictions."""

    rows: int
    agreement: float = 0.0  # share of held-out observed labels that the prediction meets
    observed_right: float = 1.0  # estimated share of right observed labels
    predicted_right: float = 0.0  # estimated share of right predictions
    chance_better: float = 0.0  # probability that the second is larger than the first


class NoHoldoutCheck(nn.Module):
    """The paper's: every row is trained on, and every label may move."""

    def share(self, n: int) -> float:  # noqa: ARG002
        """The share of n rows that is kept out of training, until the check has passed."""
        return 0.0

    @property
    def passed(self) -> bool:
        """Whether labels may move."""
        return True

    def look(self, probabilities: Tensor, observed: Tensor) -> None:
        """Look at held-out rows once more, after an epoch.

        Args:
            probabilities: Of the classifier, for the held-out rows (m, c).
            observed: Their observed labels (m,).
        """

    def figures(self) -> Figures:
        """What the last look found."""
        return {}


class HoldoutCheck(NoHoldoutCheck):
    """Labels may move once predictions are better than labels in several epochs in a row.

    From then on nothing is held out any more, so the check costs no data.
    """

    in_a_row: Tensor
    found: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("in_a_row", torch.zeros((), dtype=torch.long))
        self.register_buffer("found", torch.tensor(list(asdict(Evidence(0)).values())))

    def share(self, n: int) -> float:
        """Of n rows 5 %, at least 300 rows (but no more than a fifth), at most 2,000."""
        return 0.0 if self.passed else min(max(0.05, min(300 / n, 0.2)), 2000 / n)

    @property
    def passed(self) -> bool:
        """Whether labels may move."""
        return int(self.in_a_row) >= IN_A_ROW

    def look(self, probabilities: Tensor, observed: Tensor) -> None:
        """Weigh the evidence, and count the epochs in a row that show better predictions."""
        evidence = weigh(probabilities, observed)
        self.found.copy_(torch.tensor(list(asdict(evidence).values())))
        better = evidence.chance_better >= MIN_CHANCE
        self.in_a_row.copy_(self.in_a_row + 1 if better else torch.zeros_like(self.in_a_row))

    def figures(self) -> Figures:
        """What the last look found, and whether the check has passed."""
        names = asdict(Evidence(0))
        figures = dict(zip(names, self.found.tolist(), strict=True))
        return figures | {"rows": int(figures["rows"]), "passed": int(self.passed)}


def weigh(probabilities: Tensor, observed: Tensor) -> Evidence:
    """How good predictions and observed labels are, from rows that were not trained on.

    The predictions, sharpened by s, are taken as calibrated: p_s is proportional to p^s. A share a
    of the observed labels is right, and the others are any other class. Then a label y has the
    probability a p_s(y) + (1 - a) (1 - p_s(y)) / (c - 1). Every s and a counts with its likelihood,
    and with each of them the share of right predictions is the mean of max p_s.

    Args:
        probabilities: Of a classifier that was not trained on these rows (m, c).
        observed: Their observed labels (m,).
    """
    rows, classes = probabilities.shape
    if rows < MIN_ROWS:
        return Evidence(rows)
    log_p = probabilities.double().clamp(min=1e-12).log()  # (m, c)
    sharpened = (SHARPNESS[:, None, None] * log_p).softmax(2)  # (s, m, c)
    of_observed = sharpened[:, torch.arange(rows), observed]  # (s, m)
    a = LABELS_RIGHT[:, None, None]  # (a, 1, 1)
    chance = a * of_observed + (1 - a) * (1 - of_observed) / max(classes - 1, 1)  # (a, s, m)
    weight = chance.log().sum(2).flatten().softmax(0).view(chance.shape[:2])  # (a, s)
    predicted_right = sharpened.amax(2).mean(1)  # (s,)
    return Evidence(
        rows,
        agreement=float((probabilities.argmax(1) == observed).double().mean()),
        observed_right=float((weight.sum(1) * LABELS_RIGHT).sum()),
        predicted_right=float((weight.sum(0) * predicted_right).sum()),
        chance_better=float(weight[predicted_right > LABELS_RIGHT[:, None]].sum()),
    )
