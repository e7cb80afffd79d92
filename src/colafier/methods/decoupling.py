"""Decoupling: two nets train only on rows about which they disagree."""

from typing import Annotated

from colafier.methods._small_loss import mean_over
from colafier.methods._two_nets import SideBySide
from colafier.methods.contract import Batch, Range, Terms


class Decoupling(SideBySide):
    """Cross entropy with the observed labels, on the rows for which the two nets disagree.

    Args:
        warmup: Epochs of plain training before that.
        min_share: The loss is divided by at least this share of the batch size, so that a step
            with few disagreements is small.

    Note: The defaults are those of the authors' code, whose warm-up is in steps. They train with
        SGD on a data set of faces, with weights for unbalanced classes, which are left out here.
        Implementations for CIFAR-10 by others have no least share.
    """

    reference = 'Malach, Shalev-Shwartz: Decoupling "when to update" from "how to update", NeurIPS'
    year = 2017

    def __init__(
        self,
        *,
        warmup: Annotated[int, Range(0)] = 0,
        min_share: Annotated[float, Range(0, 1)] = 0.1,
    ) -> None:
        super().__init__()
        self.warmup = warmup
        self.min_share = min_share

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of each net over the disputed rows; 0 if there are none."""
        logits, (first, second) = self.logits_and_losses(batch)
        self.row_losses.write(batch.index, (first + second) / 2)
        disagree = self.disagree(logits)  # (all b,)
        learned = disagree | (batch.epoch < self.warmup)
        weight = self.local_slice(mean_over(learned, self.min_share * len(learned)))  # (b,)
        return {
            "first": (weight * first).mean(),
            "second": (weight * second).mean(),
            "disagree": disagree.float().mean(),
        }
