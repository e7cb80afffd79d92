"""Decoupling: two nets learn only from rows about which they disagree."""

from typing import Annotated

from colafier.methods._small_loss import mean_over
from colafier.methods._two_nets import SideBySide
from colafier.methods.contract import Batch, Range, Terms


class Decoupling(SideBySide):
    """Disagreement says when to learn from a row, cross entropy with the observed label says how.

    Args:
        warmup: Epochs of plain training before.
        least_share: The loss is divided by at least this share of the batch, so that a step with
            few disagreements is a small one.

    Note: The authors' code has these defaults (its warm-up is in steps), SGD, a data set of faces,
        and weights for unbalanced classes, which are left out. Versions for CIFAR-10 by others
        have no least share.
    """

    reference = 'Malach, Shalev-Shwartz: Decoupling "when to update" from "how to update", NeurIPS'
    year = 2017

    def __init__(
        self,
        *,
        warmup: Annotated[int, Range(0)] = 0,
        least_share: Annotated[float, Range(0, 1)] = 0.1,
    ) -> None:
        super().__init__()
        self.warmup = warmup
        self.least_share = least_share

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of each net over the rows with disagreement; 0 if there is none."""
        logits, (first, second) = self.look(batch)
        self.row_losses.write(batch.index, (first + second) / 2)
        disagree = self.disagree(logits)  # (all b,)
        learned = disagree | (batch.epoch < self.warmup)
        weight = self.local_slice(mean_over(learned, self.least_share * len(learned)))  # (b,)
        return {
            "first": (weight * first).mean(),
            "second": (weight * second).mean(),
            "disagree": disagree.float().mean(),
        }
