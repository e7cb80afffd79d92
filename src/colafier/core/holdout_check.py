"""The holdout check: no label moves before held-out rows show that predictions beat the labels.

A classifier that is weaker than the labels would make them worse. So some rows are kept out of
training: no net has memorized their labels. Their true classes are not known. But the share of
these rows in which the two subnets agree shows how good the predictions are. And where both are
surest, predictions are right, so that the observed labels of these rows show how good labels are. A
weak classifier meets clean labels there; a good one still misses the wrong labels.

Only the order of confidence counts, not its size: a classifier that was trained on noisy labels is
as unsure as the labels are.
"""

from dataclasses import asdict, dataclass
from math import sqrt

import torch
from torch import Tensor, nn

# All of these were chosen on the runs in docs/results/holdout-check.md.
SHARED_ERRORS = 0.4  # where one subnet is wrong, how often the other predicts the same wrong class
SUREST = 1 / 3  # share of the rows in which predictions are taken to be right
MIN_DEVIATIONS = 0.75  # by which predictions must beat labels
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
            gen: Probabilities that LID-gen gives (m, c).
            dis: Probabilities that LID-dis gives without a label (m, c).
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
        evidence = weigh(gen.argmax(1), dis.argmax(1), sureness(gen, dis), observed)
        self.found.copy_(_as_tensor(evidence))
        better = evidence.deviations >= MIN_DEVIATIONS
        self.in_a_row.copy_(self.in_a_row + 1 if better else torch.zeros_like(self.in_a_row))

    def figures(self) -> Figures:
        """The evidence of the last look, and whether the check has passed."""
        figures = dict(zip(asdict(Evidence()), self.found.tolist(), strict=True))
        return figures | {"rows": int(figures["rows"]), "passed": int(self.passed)}


def sureness(gen: Tensor, dis: Tensor) -> Tensor:
    """How probable both subnets together find LID-gen's class (m,); only its order counts.

    Args:
        gen: Probabilities that LID-gen gives (m, c).
        dis: Probabilities that LID-dis gives without a label (m, c).
    """
    return (gen * dis).gather(1, gen.argmax(1, keepdim=True))[:, 0]


def weigh(gen: Tensor, dis: Tensor, sure: Tensor, observed: Tensor) -> Evidence:
    """How good predictions and observed labels are, from rows that were not trained on.

    A share b of the predictions is right. In these rows both subnets agree, and in the others they
    agree on a wrong class in `SHARED_ERRORS` of them. So they agree in b + (1 - b) SHARED_ERRORS of
    all rows, which gives b. Subnets that predict few classes agree by chance, too; if that is more,
    it takes the place of `SHARED_ERRORS`.

    Of the rows where they are surest, nearly all predictions are right; a, the share of right
    labels, is how often these meet the label, divided by b of these rows. Labels are often better
    in such rows than elsewhere; then a comes out too high, which keeps labels. If fewer predictions
    are right than there are such rows, these rows tell nothing, and a is taken to be 1.

    Args:
        gen: Classes that LID-gen predicts (m,).
        dis: Classes that LID-dis predicts without a label (m,).
        sure: How sure both are of LID-gen's class (m,).
        observed: Observed labels (m,).
    """
    rows = len(observed)
    if rows < 2:
        return Evidence(rows)
    agree, met = (gen == dis).double(), (gen == observed).double()  # (m,), (m,)
    surest = sure.topk(max(round(SUREST * rows), 1)).indices  # (k,)
    shared = max(SHARED_ERRORS, _chance_agreement(gen, dis))
    rest = max(1 - shared, 1 / rows)
    b, b_surest = (
        max((float(some.mean()) - shared) / rest, SMALLEST) for some in (agree, agree[surest])
    )
    a = float(met[surest].mean()) / b_surest if b > SUREST else 1.0
    # how much each row adds to b - a to first order, for the deviation of the estimate
    effect = _centered(agree) / rest  # (m,)
    effect[surest] -= _centered(met[surest] - a * agree[surest] / rest) / b_surest
    deviation = max(sqrt(float(effect.square().sum())), 1 / rows)
    meets = (met + (dis == observed).double()).mean() / 2
    return Evidence(rows, float(meets), min(a, 1.0), b, (b - a) / deviation)


def _chance_agreement(gen: Tensor, dis: Tensor) -> float:
    """In which share of the rows predictions would agree that have nothing to do with each other.

    This is the chance agreement of Cohen's kappa.
    """
    classes = 1 + int(torch.maximum(gen, dis).max())
    counts = (torch.bincount(some, minlength=classes).double() for some in (gen, dis))
    return float(torch.dot(*counts)) / len(gen) ** 2


def _centered(values: Tensor) -> Tensor:
    """How much each row adds to the mean of these values (m,)."""
    return (values - values.mean()) / len(values)


def _as_tensor(evidence: Evidence) -> Tensor:
    return torch.tensor(list(asdict(evidence).values()), dtype=torch.float64)
