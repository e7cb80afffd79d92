"""Co-teaching: each of two nets picks the rows with a small loss for the other to learn from."""

from math import inf
from typing import Any

from colafier.flow import Batch, MakeNet, Terms, TrainSet
from colafier.methods._small_loss import UNTOLD_RATE, dropped, mean_over, small_loss
from colafier.methods._two_nets import TwoNets
from colafier.schedules import plain_epochs
from colafier.variants import within

AUTHORS_RAMP = 10


class CoTeaching(TwoNets):
    """Two nets teach each other with rows of small loss, whose labels are more often right.

    Args:
        noise_rate: Share of rows that is left out in the end, tau. By default the true share of
            wrong labels where a run injects noise and knows it, else 0.2.
        ramp: Epochs until so many are left out, T_k; by default 10, at most half of the run.

    Note: A ramp is too short if the nets know little at its end, as on a small data set: then rows
        are left out by chance or by class. So it is not scaled to a shorter run as long as it fits.
    Note: For asymmetric noise the field gives half the rate of the noisy classes, which is the rate
        over all rows.
    Note: The share rises with every step, as the paper's formula does if epochs have fractions; the
        authors' code raises it from epoch to epoch. Their code divides by the number of rows
        twice, which Adam does not notice; here it is a plain mean.
    Note: The authors train with Adam, whose rate falls linearly from epoch 80 of 200 on and whose
        momentum is 0.1 then, without augmentation.
    """

    reference = (
        "Han et al., Co-teaching: Robust training of deep neural networks with extremely noisy "
        "labels, NeurIPS"
    )
    year = 2018
    needs_noise_rate = True

    def __init__(self, *, noise_rate: float | None = None, ramp: int | None = None) -> None:
        super().__init__()
        within(noise_rate or 0, 0, 1, "noise_rate")
        within(1 if ramp is None else ramp, 1, inf, "ramp")
        self.noise_rate = UNTOLD_RATE if noise_rate is None else noise_rate
        self.ramp = ramp

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, and the length of the ramp in this run."""
        super().setup(make_net, train, epochs)
        default = plain_epochs(AUTHORS_RAMP, epochs)
        self.ramp_epochs = default if self.ramp is None else self.ramp

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of each net over the rows that the other one picks."""
        _, (first, second) = self.look(batch)
        self.row_losses.write(batch.index, (first + second) / 2)
        drop = dropped(self.noise_rate, batch.progress, self.ramp_epochs)
        by_first = self.own(mean_over(small_loss(self.gather(first), drop)))  # (b,)
        by_second = self.own(mean_over(small_loss(self.gather(second), drop)))  # (b,)
        return {"first": (by_second * first).mean(), "second": (by_first * second).mean()}

    def resolved(self) -> dict[str, Any]:
        """The ramp in epochs of this run."""
        return {"ramp": self.ramp_epochs}
