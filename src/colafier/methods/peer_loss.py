"""Peer loss, Liu and Guo, ICML 2020: penalize blind agreement with the labels.

The loss of each row with the label of another row, drawn at random, is subtracted.
"""

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from colafier.core.schedules import plain_epochs
from colafier.methods._class_losses import class_losses, label_shares
from colafier.methods._row_losses import WithRowLosses
from colafier.methods.contract import Batch, MakeNet, Range, Terms, TrainSet

AUTHORS_WARMUP, AUTHORS_EPOCHS = 20, 300
SMALLEST = 1e-5  # added to probabilities: without it the loss has no lower bound
# The authors' schedules of alpha: the epoch in which a phase ends, alpha at its start and at its
# end. Their runs stop within the last phase.
SCHEDULES = {
    "uniform": (
        (20, 0.0, 0.0),
        (40, 0.0, 0.1),
        (90, 1.0, 2.0),
        (140, 2.0, 2.5),
        (240, 2.5, 3.3),
        (340, 3.3, 5.0),
    ),
    "sparse": (
        (20, 0.0, 0.0),
        (40, 0.0, 1.0),
        (90, 1.0, 2.0),
        (140, 2.0, 5.0),
        (240, 5.0, 10.0),
        (340, 10.0, 20.0),
    ),
}


class PeerLoss(WithRowLosses):
    """Cross entropy with the observed label, less alpha times that with the label of a random row.

    Args:
        schedule: How alpha rises over the run: as the authors have it for `uniform` or for `sparse`
            noise, scaled from 300 epochs. Both start with plain training.
        warmup: Epochs of plain training; by default 20, but no more than half of the run.
        max_weight: Upper limit of alpha; with infinity, the authors' schedule is used as it is.

    Note: The authors let alpha rise to 4.3 or 16, but divide the rate by 10 every 40 epochs, so
        little is learned with an alpha above 2. At a constant rate a large alpha removes whole
        classes from the predictions, hence `max_weight`; on small data one may still be lost.
    Note: Plain training is not shortened as long as it fits: if the peer term starts before all
        classes are learned, some are lost for good. Agreement with held-out noisy labels confirms
        it for digits (`benchmarks/warmups.py`): .574, .642 and .659 with 3, 10 and 20 of 40 epochs.
        On features, where wrong labels are memorized within a few epochs, a short warm-up is
        better: .573, .523 and .521 with 1, 4 and 8 of 15. Set it there. On FM-mini, test accuracy
        was .679 with 1 of 15 epochs and .745 with 7.
    Note: The authors draw the peers' rows and labels from two more batches. Here the rows are those
        of the batch, and the labels are drawn from all observed ones, which has the same mean and
        needs no further forward pass. They divide the rate by 1 + alpha. Here the loss is divided,
        which is the same for SGD and has no effect on AdamW. For Fashion-MNIST their code uses Adam
        at a constant 1e-4, divided in the same way, and an alpha that is 0 for 120 of 300 epochs
        and then rises to 1.
    """

    reference = (
        "Liu, Guo: Peer loss functions: Learning from noisy labels without knowing noise rates, "
        "ICML"
    )
    year = 2020

    shares: Tensor

    def __init__(
        self,
        *,
        schedule: Literal["uniform", "sparse"] = "uniform",
        warmup: Annotated[int, Range(0)] | None = None,
        max_weight: Annotated[float, Range(0, infinite=True)] = 2.0,
    ) -> None:
        super().__init__()
        self.schedule = schedule
        self.warmup = warmup
        self.max_weight = max_weight

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net, the share of each class, and the last cross entropy of each row."""
        super().setup(make_net, train, epochs)
        phases = SCHEDULES[self.schedule]
        warmup = plain_epochs(AUTHORS_WARMUP, epochs, self.warmup)
        stretch = (epochs - warmup) / (AUTHORS_EPOCHS - AUTHORS_WARMUP)
        later = [round((end - AUTHORS_WARMUP) * stretch) for end, _, _ in phases]
        self.ends = tuple(warmup + end for end in later)
        shares = label_shares(train.observed[train.labeled], train.num_classes)  # (c,)
        self.register_buffer("shares", shares, persistent=False)

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy with the observed labels and, subtracted, with labels of random rows."""
        surprise = class_losses(self.net(batch.x), SMALLEST)  # (b, c)
        own = surprise.gather(1, batch.y[:, None])[:, 0]  # (b,)
        all_rows = len(self.all_gather(batch.y))
        peer_labels = self.local_slice(torch.multinomial(self.shares, all_rows, replacement=True))
        peer = surprise.gather(1, peer_labels[:, None])[:, 0]  # (b,)
        self.row_losses.write(batch.index, own)
        alpha = self.weight_at(batch.epoch)
        return {"ce": own.mean() / (1 + alpha), "peer": -alpha * peer.mean() / (1 + alpha)}

    def weight_at(self, epoch: int) -> float:
        """Alpha in an epoch; it is linear within each phase of the schedule."""
        begin, alpha = 0, 0.0
        for end, (_, first, last) in zip(self.ends, SCHEDULES[self.schedule], strict=True):
            if begin <= epoch < end:
                alpha = first + (last - first) * (epoch - begin) / (end - begin)
            begin = end
        return min(alpha, self.max_weight)

    def resolved(self) -> dict[str, Any]:
        """Epochs of plain training, and the epochs in which the later phases end."""
        return {"warmup": self.ends[0], "phase_ends": list(self.ends[1:])}
