"""CORES2, Cheng et al., ICLR 2021: a sieve keeps rows whose label fits better than average.

The sieve needs confident predictions. So the mean loss over all labels, weighted by how frequent
they are, is subtracted.
"""

from typing import Annotated, Any

import torch
from torch import Tensor

from colafier.core.functional import cross_entropy
from colafier.core.schedules import plain_epochs, ramp, scaled
from colafier.methods._class_losses import class_losses, label_shares
from colafier.methods.contract import (
    Batch,
    MakeNet,
    Method,
    Pass,
    Passes,
    Range,
    Terms,
    TrainSet,
)
from colafier.methods.row_table import RowTable

AUTHORS_EPOCHS, AUTHORS_WARMUP = 100, 10
SMALLEST = 1e-8  # added to probabilities: without it the loss has no lower bound


class CORES2(Method):
    """Cross entropy less the mean over labels, on the rows that pass the sieve.

    Args:
        peer_weight: Final weight of the mean loss over labels, beta.
        warmup: Epochs of cross entropy alone; by default 10, but no more than half of the run.
        ramp: Epochs after them in which the weight rises; by default scaled from 30 in 100.
        sieve: Epochs before rows are dropped; by default scaled from 31 in 100, after the warm-up.

    Note: This is the authors' first phase. The second, which trains on dropped rows as if they had
        no label (CORES*), is not implemented. They train with plain SGD, with a rate of 0.1 and
        0.01 in the second half, divided by 1 + beta. That division is left out, since it has little
        effect on an optimizer that scales gradients itself. Rows that a person decided are always
        kept.
    Note: The warm-up is not shortened as long as it fits: if the peer term starts before all
        classes are learned, some are lost for good. Agreement with held-out noisy labels confirms
        it (`benchmarks/warmups.py`): on digits .635, .659 and .663 with 4, 10 and 20 of 40 epochs;
        on features .516, .520 and .521 with 2, 4 and 8 of 15.
    """

    reference = (
        "Cheng, Zhu, Li, Gong, Sun, Liu: Learning with instance-dependent label noise: a sample "
        "sieve approach, ICLR"
    )
    year = 2021

    shares: Tensor
    trusted: Tensor

    def __init__(
        self,
        *,
        peer_weight: Annotated[float, Range(0)] = 2.0,
        warmup: Annotated[int, Range(0)] | None = None,
        ramp: Annotated[int, Range(1)] | None = None,
        sieve: Annotated[int, Range(0)] | None = None,
    ) -> None:
        super().__init__()
        self.peer_weight = peer_weight
        self.warmup = warmup
        self.ramp = ramp
        self.sieve = sieve

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net, and for each row whether it passed the sieve and the excess of its loss."""
        super().setup(make_net, train, epochs)
        self.warmup_epochs = plain_epochs(AUTHORS_WARMUP, epochs, self.warmup)
        self.ramp_epochs = scaled(30, epochs, AUTHORS_EPOCHS, self.ramp)
        usual = max(scaled(31, epochs, AUTHORS_EPOCHS), self.warmup_epochs)
        self.sieve_begin = usual if self.sieve is None else self.sieve
        known = train.observed[train.labeled]
        self.register_buffer("shares", label_shares(known, train.num_classes))  # (c,) the prior
        keeps = torch.ones(train.n, dtype=torch.bool)
        self.kept = RowTable(keeps, trusted=train.trusted)  # v
        self.register_buffer("trusted", train.trusted.clone(), persistent=False)
        self.excess = RowTable(torch.zeros(train.n))

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """One pass; then the label shares of the kept rows, for the next epoch."""
        yield Pass()
        kept = self.kept.values.cpu() & train.labeled  # (n,)
        if kept.any():
            self.shares.copy_(label_shares(train.observed[kept], train.num_classes))

    def loss(self, batch: Batch) -> Terms:
        """Loss of the observed label less the peer term, averaged over the rows that are kept."""
        logits = self.net(batch.x)  # (b, c)
        own = cross_entropy(logits, batch.y)  # (b,)
        every = class_losses(logits, SMALLEST)  # (b, c)
        excess = (own - every.mean(1)).detach()  # (b,)
        kept = (excess <= 0) | (batch.epoch < self.sieve_begin) | self.trusted[batch.index]  # (b,)
        self.kept.write(batch.index, kept)
        self.excess.write(batch.index, excess)
        share = self.all_gather(kept.float()).mean()  # of the whole batch
        weight = kept / share.clamp(min=1e-9)  # (b,) a batch may keep no row
        peer_weight = ramp(batch.epoch, self.warmup_epochs, self.ramp_epochs, 0.0, self.peer_weight)
        peer = every @ self.shares  # (b,)
        return {
            "ce": (weight * own).mean(),
            "peer": -peer_weight * (weight * peer).mean(),
            "kept": share,
        }

    def resolved(self) -> dict[str, Any]:
        """The schedule in epochs of this run."""
        return {
            "warmup": self.warmup_epochs,
            "ramp": self.ramp_epochs,
            "sieve": self.sieve_begin,
        }

    def rows_now(self) -> dict[str, Tensor]:
        """How far the observed label's loss is above the mean over labels; the sieve cuts at 0."""
        return {"excess": self.excess.values}
