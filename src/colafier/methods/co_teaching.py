"""Co-teaching: each of two nets selects rows with a small loss for the other to train on."""

from colafier.methods._small_loss import SmallLossPair
from colafier.methods.contract import Batch, Terms


class CoTeaching(SmallLossPair):
    """Two nets teach each other with rows of small loss, whose labels are more often correct.

    Args:
        noise_rate: Final share of rows that are left out, tau. By default the true share of wrong
            labels if a run injects noise and so knows it, else 0.2.
        ramp: Epochs until that share is reached, T_k; by default 10, at most half of the run.

    Note: For asymmetric noise it is common to give half the rate of the noisy classes, which is the
        rate over all rows.
    Note: The authors' code divides by the number of rows twice, which has no effect with Adam; here
        the loss is a plain mean.
    Note: The authors train without augmentation, with Adam. From epoch 80 of 200 its rate falls
        linearly and its momentum is 0.1.
    """

    reference = (
        "Han et al.: Co-teaching: Robust training of deep neural networks with extremely noisy "
        "labels, NeurIPS"
    )
    year = 2018

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of each net over the rows that the other one selects."""
        _, (first, second) = self.logits_and_losses(batch)
        self.row_losses.write(batch.index, (first + second) / 2)
        by_first = self.small_loss_weights(first, batch.progress)  # (b,)
        by_second = self.small_loss_weights(second, batch.progress)  # (b,)
        return {"first": (by_second * first).mean(), "second": (by_first * second).mean()}
