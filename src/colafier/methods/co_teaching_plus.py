"""Co-teaching+: Co-teaching on the rows about which the two nets disagree."""

from typing import Annotated, Any

import torch

from colafier.core.schedules import plain_epochs
from colafier.methods._small_loss import SmallLossPair
from colafier.methods.contract import Batch, MakeNet, Range, Terms, TrainSet

AUTHORS_WARMUP = 20


class CoTeachingPlus(SmallLossPair):
    """Two nets teach each other with rows of small loss, but only where they disagree.

    That keeps them from becoming the same net.

    Args:
        noise_rate: Final share of rows that are left out, tau. By default the true share of wrong
            labels if a run injects noise and so knows it, else 0.2.
        ramp: Epochs until that share is reached, T_k; by default 10, at most half of the run.
        warmup: Epochs of Co-teaching before that; by default 20, at most half of the run.

    Note: If the nets agree on the whole batch, the step is one of Co-teaching. The authors' code
        then takes all rows early in training and none later, by a product of two counters.
    Note: Their code applies softmax twice after the warm-up, which makes gradients tiny; here cross
        entropy gets logits. As for Co-teaching, they train without augmentation, with Adam, and
        their code divides by the number of rows twice.
    Note: At least one disputed row is trained on; the authors' code takes all of them if the share
        to keep is less than one row.
    """

    reference = (
        "Yu et al.: How does disagreement help generalization against label corruption?, ICML"
    )
    year = 2019

    def __init__(
        self,
        *,
        noise_rate: Annotated[float, Range(0, 1)] | None = None,
        ramp: Annotated[int, Range(1)] | None = None,
        warmup: Annotated[int, Range(0)] | None = None,
    ) -> None:
        super().__init__(noise_rate=noise_rate, ramp=ramp)
        self.warmup = warmup

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, and the lengths of ramp and warm-up in this run."""
        super().setup(make_net, train, epochs)
        self.warmup_epochs = plain_epochs(AUTHORS_WARMUP, epochs, self.warmup)

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of each net over the disputed rows that the other one selects."""
        logits, (first, second) = self.logits_and_losses(batch)
        self.row_losses.write(batch.index, (first + second) / 2)
        disagree = self.disagree(logits)  # (all b,)
        everything = batch.epoch < self.warmup_epochs or not disagree.any()
        disputed = torch.ones_like(disagree) if everything else disagree
        by_first = self.small_loss_weights(first, batch.progress, disputed)  # (b,)
        by_second = self.small_loss_weights(second, batch.progress, disputed)  # (b,)
        return {
            "first": (by_second * first).mean(),
            "second": (by_first * second).mean(),
            "disagree": disagree.float().mean(),
        }

    def resolved(self) -> dict[str, Any]:
        """Ramp and warm-up in epochs of this run."""
        return {**super().resolved(), "warmup": self.warmup_epochs}
