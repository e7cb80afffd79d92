"""Co-teaching: each of two nets picks the rows with a small loss for the other to learn from."""

from colafier.methods._small_loss import SmallLossPair
from colafier.methods.contract import Batch, Terms


class CoTeaching(SmallLossPair):
    """Two nets teach each other with rows of small loss, whose labels are more often right.

    Args:
        noise_rate: Share of rows that is left out in the end, tau. By default the true share of
            wrong labels where a run injects noise and knows it, else 0.2.
        ramp: Epochs until so many are left out, T_k; by default 10, at most half of the run.

    Note: For asymmetric noise the field gives half the rate of the noisy classes, which is the rate
        over all rows.
    Note: The authors' code divides by the number of rows twice, which Adam does not notice; here it
        is a plain mean.
    Note: The authors train with Adam, whose rate falls linearly from epoch 80 of 200 on and whose
        momentum is 0.1 then, without augmentation.
    """

    reference = (
        "Han et al.: Co-teaching: Robust training of deep neural networks with extremely noisy "
        "labels, NeurIPS"
    )
    year = 2018

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of each net over the rows that the other one picks."""
        _, (first, second) = self.look(batch)
        self.row_losses.write(batch.index, (first + second) / 2)
        by_first = self.picked(first, batch.progress)  # (b,)
        by_second = self.picked(second, batch.progress)  # (b,)
        return {"first": (by_second * first).mean(), "second": (by_first * second).mean()}
