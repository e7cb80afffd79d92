"""The holdout check: no label moves before held-out rows show that predictions beat the labels.

A classifier that is weaker than the labels would make them worse. So some rows are kept out of
training: no net has memorized their labels. Their true classes are not known. But the share of
these rows in which the two subnets agree shows how good the predictions are, and the share in which
the predictions meet the observed labels then shows how good the labels are. Confidence shows
neither: a classifier that was trained on noisy labels is as unsure as the labels are.
"""

from dataclasses import asdict, dataclass
from math import sqrt

import torch
from torch import Tensor, nn

# In how many of the rows where one subnet is wrong the other predicts the same wrong class. In real
# runs it was .4 to .65, but there wrong predictions met wrong labels, too, and both errors partly
# cancel. Chosen on the runs in docs/results/holdout-check.md, like the next one.
SHARED_ERRORS = 0.2
MIN_DEVIATIONS = 0.25  # by which predictions must beat labels
IN_A_ROW = 2  # epochs that must show it: one may be lucky
LAST_LOOK = 0.75  # of the run; later, all rows are trained on, and labels stay if it has not passed
SMALLEST = 0.02  # a lower share of right predictions is no better than this one

Figures = dict[str, float | int | str]


@dataclass(frozen=True)
class Evidence:
    """What the held-out rows show about their observed labels and about the predictions."""

    rows: int = 0
    agreement: float = 0.0  # share of held-out observed labels that a prediction meets
    observed_right: float = 1.0  # estimated share of right observed labels, a
    predicted_right: float = 0.0  # estimated share of right predictions, b
    deviations: float = 0.0  # b - a, in standard deviations of this estimate


class NoHoldoutCheck(nn.Module):
    """The paper's: every row is trained on, and every label may move."""

    def share(self, n: int) -> float:  # noqa: ARG002
        """The share of n labeled rows that is kept out of training now."""
        return 0.0

    @property
    def passed(self) -> bool:
        """Whether labels may move."""
        return True

    @property
    def ended(self) -> bool:
        """Whether no row is held out any more, because it has passed or its time is over."""
        return True

    def end(self) -> None:
        """Hold out no row from now on, whether it has passed or not."""

    def look(self, gen: Tensor, dis: Tensor, observed: Tensor) -> None:
        """Look at the predictions for the held-out rows, after an epoch.

        Args:
            gen: Classes that LID-gen predicts for them (m,).
            dis: Classes that LID-dis predicts without a label (m,).
            observed: Their observed labels (m,).
        """

    def figures(self) -> Figures:
        """The evidence of the last look, for the diagnostics of a run."""
        return {}


class HoldoutCheck(NoHoldoutCheck):
    """Labels may move once predictions beat the labels in `IN_A_ROW` epochs in a row.

    From then on no row is held out, so the check costs no data at the end. Nor does a check that
    never passes, because labels are good: the caller ends it. Its state is in buffers, so that a
    resumed run knows it.
    """

    over: Tensor  # whether its time is over
    in_a_row: Tensor  # so many of the last looks have shown better predictions
    found: Tensor  # values of the last `Evidence`

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("over", torch.zeros((), dtype=torch.bool))
        self.register_buffer("in_a_row", torch.zeros((), dtype=torch.long))
        self.register_buffer("found", _as_tensor(Evidence()))

    def share(self, n: int) -> float:
        """5 % of n labeled rows, at least 300 (but no more than a fifth), at most 2,000."""
        return 0.0 if self.ended else min(max(0.05, min(300 / n, 0.2)), 2000 / n)

    @property
    def passed(self) -> bool:
        """Whether labels may move."""
        return int(self.in_a_row) >= IN_A_ROW

    @property
    def ended(self) -> bool:
        """Whether no row is held out any more, because it has passed or its time is over."""
        return self.passed or bool(self.over)

    def end(self) -> None:
        """Hold out no row from now on, whether it has passed or not."""
        self.over.fill_(True)

    def look(self, gen: Tensor, dis: Tensor, observed: Tensor) -> None:
        """Weigh the evidence, and count the epochs in a row that show better predictions."""
        evidence = weigh(gen, dis, observed)
        self.found.copy_(_as_tensor(evidence))
        better = evidence.deviations >= MIN_DEVIATIONS
        self.in_a_row.copy_(self.in_a_row + 1 if better else torch.zeros_like(self.in_a_row))

    def figures(self) -> Figures:
        """The evidence of the last look, and whether the check has passed."""
        figures = dict(zip(asdict(Evidence()), self.found.tolist(), strict=True))
        return figures | {"rows": int(figures["rows"]), "passed": int(self.passed)}


def weigh(gen: Tensor, dis: Tensor, observed: Tensor) -> Evidence:
    """How good predictions and observed labels are, from rows that were not trained on.

    A share b of the predictions is right. In these rows both subnets agree, and in the others they
    agree on a wrong class in `SHARED_ERRORS` of them. So they agree in b + (1 - b) SHARED_ERRORS of
    all rows, which gives b. A share a of the labels is right, so a prediction meets a label in
    about a b of the rows, which gives a. Where only one subnet is right, they do not agree, so b
    comes out rather too low. Where a wrong prediction meets a wrong label, a comes out rather too
    high. Both errors are on the safe side: they keep labels.

    Args:
        gen: Classes that LID-gen predicts (m,).
        dis: Classes that LID-dis predicts without a label (m,).
        observed: Observed labels (m,).
    """
    rows = len(observed)
    if rows < 2:
        return Evidence(rows)
    agree = (gen == dis).double()  # (m,)
    met = ((gen == observed).double() + (dis == observed).double()) / 2  # (m,)
    b = max((float(agree.mean()) - SHARED_ERRORS) / (1 - SHARED_ERRORS), SMALLEST)
    a = float(met.mean()) / b
    # how much each row adds to b - a to first order, for the deviation of the estimate
    effect = agree * (1 + a / b) / (1 - SHARED_ERRORS) - met / b  # (m,)
    deviation = max(float(effect.std()) / sqrt(rows), 1 / rows)
    return Evidence(rows, float(met.mean()), min(a, 1.0), b, (b - a) / deviation)


def _as_tensor(evidence: Evidence) -> Tensor:
    return torch.tensor(list(asdict(evidence).values()), dtype=torch.float64)
