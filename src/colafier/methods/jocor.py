"""JoCoR: two nets learn together, to agree, from the rows with a small joint loss."""

from math import inf
from typing import Any

from torch import Tensor

from colafier.flow import Batch, MakeNet, Terms, TrainSet
from colafier.methods._small_loss import UNTOLD_RATE, dropped, mean_over, small_loss
from colafier.methods._two_nets import TwoNets
from colafier.schedules import plain_epochs
from colafier.variants import within

AUTHORS_RAMP = 10


def disagreement(first: Tensor, second: Tensor) -> Tensor:
    """Symmetric Kullback-Leibler divergence of two predictions (b,), from logits (b, c).

    From logarithms of probabilities throughout: a probability that underflows to 0 would give a
    gradient that is not a number, which ended runs of the authors' code.
    """
    a, b = first.log_softmax(1), second.log_softmax(1)  # (b, c), (b, c)
    return ((a.exp() - b.exp()) * (a - b)).sum(1)


class JoCoR(TwoNets):
    """Two nets as one model: both cross entropies and a term that makes the nets agree.

    Where the label is right the nets agree sooner, so the joint loss tells rows apart.

    Args:
        noise_rate: Share of rows that is left out in the end, tau. By default the true share of
            wrong labels where a run injects noise and knows it, else 0.2.
        ramp: Epochs until so many are left out, T_k; by default 10, at most half of the run.
        agreement: Weight of the agreement, lambda; cross entropy has the rest.

    Note: 0.9 is what the authors recommend for CIFAR-10 (0.65 at 80 % noise, 0.85 for CIFAR-100;
        their code's default 0.1 is much worse). They train with Adam as in Co-teaching, without
        augmentation.
    """

    reference = "Wei et al., Combating noisy labels by agreement: A joint training method, CVPR"
    year = 2020
    needs_noise_rate = True

    def __init__(
        self, *, noise_rate: float | None = None, ramp: int | None = None, agreement: float = 0.9
    ) -> None:
        super().__init__()
        within(noise_rate or 0, 0, 1, "noise_rate")
        within(1 if ramp is None else ramp, 1, inf, "ramp")
        within(agreement, 0, 1, "agreement")
        self.noise_rate = UNTOLD_RATE if noise_rate is None else noise_rate
        self.ramp = ramp
        self.agreement = agreement

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, and the length of the ramp in this run."""
        super().setup(make_net, train, epochs)
        default = plain_epochs(AUTHORS_RAMP, epochs)
        self.ramp_epochs = default if self.ramp is None else self.ramp

    def loss(self, batch: Batch) -> Terms:
        """Joint loss over the rows where it is small; both nets get gradients from both terms."""
        logits, (first, second) = self.look(batch)
        labels = (1 - self.agreement) * (first + second)  # (b,)
        apart = self.agreement * disagreement(*logits)  # (b,)
        joint = labels + apart  # (b,)
        self.row_losses.write(batch.index, joint)
        drop = dropped(self.noise_rate, batch.progress, self.ramp_epochs)
        chosen = self.own(mean_over(small_loss(self.gather(joint), drop)))  # (b,)
        return {"labels": (chosen * labels).mean(), "agreement": (chosen * apart).mean()}

    def resolved(self) -> dict[str, Any]:
        """The ramp in epochs of this run."""
        return {"ramp": self.ramp_epochs}
