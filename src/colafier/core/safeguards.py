"""What is ours and not the paper's, to do no harm: four safeguards, each with a null version.

The null version is the paper's method, so neither the step nor the method asks which one is there.
Safeguards work on plain tensors; what they need to remember of each row is kept by the caller.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from colafier.core.config import CoLafierConfig
from colafier.core.holdout_check import HoldoutCheck, NoHoldoutCheck
from colafier.core.subnets import LidGen
from colafier.nets.averaged import Averaged

HIGHEST_LIFT = 3.0  # of a logit: a class that would need more stays rare
FITTING_STEPS = 60


class NoClassPriorFloor(nn.Module):
    """The paper's: the predictions are left as they are."""

    surveys = False  # whether it needs predictions for all rows after each epoch
    bias: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.register_buffer("bias", torch.zeros(num_classes))

    def fit(self, logits: Tensor) -> None:
        """Find the bias (c,) from the logits of all rows, without a bias (n, c)."""

    def deploy(self, gen: LidGen) -> LidGen:
        """LID-gen with the bias."""
        return gen


class ClassPriorFloor(NoClassPriorFloor):
    """No class is predicted more rarely than at a share of its observed frequency.

    Labels that follow predictions that follow labels can lose a whole class; this was seen on
    Fashion-MNIST, where no row was called a shirt any more. A bias lifts the logits of a class just
    as far as it needs to be predicted often enough. It is part of the deployed classifier.
    A class that others are mistaken for has too many labels, so none has to be predicted more often
    than at that share of an equal part of the rows.

    Args:
        observed: Observed labels of the rows that have one (n,).
        num_classes: Number of classes.
        share: Lowest share of a class's observed frequency.
    """

    surveys = True
    floor: Tensor

    def __init__(self, observed: Tensor, num_classes: int, share: float) -> None:
        super().__init__(num_classes)
        counts = torch.bincount(observed, minlength=num_classes).float()  # (c,)
        frequency = counts / counts.sum()  # (c,)
        self.register_buffer("floor", share * frequency.clamp(max=1 / num_classes))

    def fit(self, logits: Tensor) -> None:
        """Find the bias (c,) from the logits of all rows, without a bias (n, c)."""
        self.bias.zero_()
        least = self.floor.clamp(min=1 / len(logits))  # (c,)
        for step in range(1, FITTING_STEPS + 1):
            predicted = (logits + self.bias).argmax(1)  # (n,)
            frequency = torch.bincount(predicted, minlength=len(least)) / len(logits)  # (c,)
            gap = least.log() - frequency.clamp(min=0.5 / len(logits)).log()  # (c,)
            self.bias.add_(0.5 * step**-0.5 * gap).clamp_(0, HIGHEST_LIFT)

    def deploy(self, gen: LidGen) -> LidGen:
        """A copy of LID-gen with the bias in its last layer."""
        return gen.lifted(self.bias)


class NoPatience:
    """The paper's: a label moves as soon as a move is proposed."""

    def settle(self, labels: Tensor, proposed: Tensor, streak: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """The labels for the next epoch (b,), and the streaks with this epoch counted (b, 2).

        Args:
            labels: Labels now (b,).
            proposed: Labels for the next epoch (b,).
            streak: For each row the class proposed last, and for how many epochs in a row (b, 2).
        """
        return proposed, streak


class RelabelPatience(NoPatience):
    """A label moves once the same move was proposed in several epochs in a row.

    Args:
        epochs: In how many.
    """

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def settle(self, labels: Tensor, proposed: Tensor, streak: Tensor) -> tuple[Tensor, Tensor]:
        """The labels for the next epoch (b,), and the streaks with this epoch counted (b, 2)."""
        moves = proposed != labels  # (b,)
        again = moves & (streak[:, 0] == proposed)  # (b,)
        count = torch.where(again, streak[:, 1] + 1, moves.long())  # (b,)
        settled = torch.where(count >= self.epochs, proposed, labels)
        return settled, torch.stack([proposed, count], 1)


def no_streak(labels: Tensor) -> Tensor:
    """The streaks at the start (n, 2): every row keeps its label, for no epoch yet."""
    return torch.stack([labels, torch.zeros_like(labels)], 1)


class NoAverage(nn.Module):
    """The paper's: LID-gen is deployed as it is after its last step."""

    def follow(self, gen: LidGen, progress: float) -> None:
        """Take in LID-gen after a step, so many epochs into the run."""

    def refresh(self, update_batch_norm: Callable[[nn.Module], None]) -> None:
        """Prepare what is deployed after an epoch, with the caller's update of BatchNorm."""

    def deploy(self, gen: LidGen) -> LidGen:
        """What is deployed of LID-gen."""
        return gen


class StepAverage(NoAverage):
    """A moving average of LID-gen over its steps is deployed.

    Averaged weights need BatchNorm statistics of their own. Those of the steps are of mixed and
    strongly augmented rows, which a deployed net does not see, so they are taken from plain rows.

    Args:
        gen: LID-gen.
        epochs: Length of the average, in epochs.
    """

    def __init__(self, gen: LidGen, epochs: float) -> None:
        super().__init__()
        self.averaged = Averaged(gen)
        self.epochs = epochs

    def follow(self, gen: LidGen, progress: float) -> None:
        """Take in LID-gen after a step, so many epochs into the run."""
        epoch_steps = int(self.averaged.steps) / max(progress, 1e-9)  # mean of the run so far
        self.averaged.follow(gen, 1 - 1 / max(self.epochs * epoch_steps, 1))

    def refresh(self, update_batch_norm: Callable[[nn.Module], None]) -> None:
        """Give the average BatchNorm statistics of plain rows."""
        update_batch_norm(self.averaged.net)

    def deploy(self, gen: LidGen) -> LidGen:  # noqa: ARG002
        """The average."""
        net: Any = self.averaged.net
        averaged: LidGen = net
        return averaged


class Safeguards(nn.Module):
    """The four safeguards that a config asks for.

    Args:
        config: Hyper-parameters.
        gen: LID-gen.
        observed: Observed labels of the rows that have one (n,).
        num_classes: Number of classes.
        holdout: Whether to have a holdout check; the caller decides, because vectors need none.
    """

    def __init__(
        self,
        config: CoLafierConfig,
        gen: LidGen,
        observed: Tensor,
        num_classes: int,
        holdout: bool = False,
    ) -> None:
        super().__init__()
        share = config.class_prior_floor
        self.floor = (
            ClassPriorFloor(observed, num_classes, share)
            if share
            else NoClassPriorFloor(num_classes)
        )
        self.average = StepAverage(gen, config.average) if config.average else NoAverage()
        self.patience = RelabelPatience(config.patience) if config.patience > 1 else NoPatience()
        self.check = HoldoutCheck() if holdout else NoHoldoutCheck()

    def relabel(self, labels: Tensor, proposed: Tensor, streak: Tensor) -> tuple[Tensor, Tensor]:
        """The labels for the next epoch (b,) and the new streaks (b, 2), from a step's proposal."""
        return self.patience.settle(labels, proposed if self.check.passed else labels, streak)

    def deploy(self, gen: LidGen) -> LidGen:
        """The classifier to keep: a plain module."""
        return self.floor.deploy(self.average.deploy(gen))
