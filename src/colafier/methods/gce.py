"""Generalized cross entropy, Zhang and Sabuncu, NeurIPS 2018: a loss between CE and MAE.

The less probable a label is to the net, the less it counts; truncated, it does not count at all.
"""

from typing import Annotated, Any

import torch

from colafier.core.functional import gce
from colafier.core.schedules import scaled
from colafier.methods._row_losses import WithRowLosses
from colafier.methods.contract import (
    Batch,
    MakeNet,
    Pass,
    Passes,
    Range,
    Terms,
    TrainSet,
)
from colafier.methods.row_table import RowTable

AUTHORS_EPOCHS = 120


class GeneralizedCrossEntropy(WithRowLosses):
    """Generalized cross entropy; truncated, only of rows whose label is probable enough.

    Args:
        power: q; 0 would be cross entropy, 1 is the mean absolute error.
        truncated: Whether rows are pruned (the paper's truncated loss).
        threshold: Rows whose label has no larger probability are pruned, k.
        first_pruning: Epoch of the first pruning; by default scaled from 40 in 120.
        interval: Epochs from one pruning to the next; by default scaled from 10 in 120.

    Note: The authors prune with the net that was best so far on held-out noisy labels. Here it is
        the current net, without augmentation: nothing is held out and no second net is kept. They
        train with SGD and divide the rate by 10 after a third and two thirds of the run. Without
        truncation a long run also memorizes wrong labels, only later than with cross entropy.
    """

    reference = (
        "Zhang, Sabuncu: Generalized cross entropy loss for training deep neural networks "
        "with noisy labels, NeurIPS"
    )
    year = 2018

    def __init__(
        self,
        *,
        power: Annotated[float, Range(1e-6, 1)] = 0.7,
        truncated: bool = False,
        threshold: Annotated[float, Range(0, 1)] = 0.5,
        first_pruning: Annotated[int, Range(0)] | None = None,
        interval: Annotated[int, Range(1)] | None = None,
    ) -> None:
        super().__init__()
        self.power = power
        self.truncated = truncated
        self.threshold = threshold
        self.first_pruning = first_pruning
        self.interval = interval

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net, and for each row its last loss and whether it counts."""
        super().setup(make_net, train, epochs)
        self.first_epoch = scaled(40, epochs, AUTHORS_EPOCHS, self.first_pruning)
        self.interval_epochs = scaled(10, epochs, AUTHORS_EPOCHS, self.interval)
        self.kept = RowTable(torch.ones(train.n), trusted=train.trusted)  # w

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """One pass over all rows; truncated, every few epochs start with a pruning."""
        since = epoch - self.first_epoch
        if self.truncated and since >= 0 and since % self.interval_epochs == 0:
            self._prune(train)
        yield Pass()

    def loss(self, batch: Batch) -> Terms:
        """Mean generalized cross entropy; pruned rows have a constant loss, which is left out."""
        losses = gce(self.net(batch.x), batch.y, self.power)  # (b,)
        self.row_losses.write(batch.index, losses)
        return {"gce": (self.kept[batch.index] * losses).mean()}

    def resolved(self) -> dict[str, Any]:
        """Epochs of the prunings in this run."""
        return {"first_pruning": self.first_epoch, "interval": self.interval_epochs}

    def _prune(self, train: TrainSet) -> None:
        """Keep rows whose label is more probable than the threshold; all if there are none."""
        p = train.predict(self.net)  # (n, c)
        of_observed = p.gather(1, train.observed.clamp(min=0)[:, None].to(p.device))[:, 0]  # (n,)
        likely = (of_observed > self.threshold) & train.labeled.to(p.device)
        kept = likely | train.trusted.to(p.device)
        self.kept.values.copy_(kept if kept.any() else torch.ones_like(of_observed))
