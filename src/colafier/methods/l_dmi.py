"""L_DMI, Xu et al., NeurIPS 2019: maximize a determinant of predictions and observed labels.

Noise that depends only on the class multiplies this determinant by a constant. So the classifier
that is best for the observed labels is also the best for the true ones.
"""

from math import log
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from colafier.core.functional import cross_entropy
from colafier.core.schedules import scaled
from colafier.methods._best_net import BestNet, accuracy
from colafier.methods._row_losses import WithRowLosses
from colafier.methods._selection import held_out, trained_on
from colafier.methods.contract import (
    Batch,
    MakeNet,
    MakeOptimizer,
    Pass,
    Passes,
    Range,
    Terms,
    TrainSet,
)

AUTHORS_EPOCHS = 220  # 120 of cross entropy, 100 of DMI
SMALLEST = 0.001  # added to the determinant, so that its logarithm has a lower bound


class LDMI(WithRowLosses):
    """Cross entropy first; then determinant-based mutual information (DMI).

    Args:
        warmup: Epochs of cross entropy; by default scaled from 120 in 220.
        rate: Learning rate of the DMI epochs, as a multiple of the run's.
        rows_per_class: Rows for each class in a batch of the DMI epochs.
        holdout: Share of the rows that select the warm-up epoch that DMI starts from.

    Note: The determinant is the same if classes are swapped, and its gradient is erratic for an
        untrained net, so the warm-up and a low rate belong to the method. The authors use SGD with
        a rate of 1e-6, after 0.1 to 0.001 in the warm-up; Adam at such a ratio would not move in a
        short run. Their batches have 256 rows for 10 classes. As in their code, the matrix is a sum
        over rows; with 10 classes the determinant of the paper's mean would be far smaller than the
        constant. They keep the best DMI epoch on held-out rows; here all rows train, and the last
        epoch counts. A class that is missing in a batch would make the determinant 0, so only the
        classes of the batch count.
    """

    reference = (
        "Xu, Cao, Kong, Wang: L_DMI: a novel information-theoretic loss function for training deep "
        "nets robust to label noise, NeurIPS"
    )
    year = 2019

    def __init__(
        self,
        *,
        warmup: Annotated[int, Range(1)] | None = None,
        rate: Annotated[float, Range(0)] = 0.1,
        rows_per_class: Annotated[int, Range(1)] = 26,
        holdout: Annotated[float, Range(0, 0.5)] = 0.1,
    ) -> None:
        super().__init__()
        self.warmup = warmup
        self.rate = rate
        self.rows_per_class = rows_per_class
        self.holdout = holdout

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net, its best state in the warm-up, and the last cross entropy of each row."""
        super().setup(make_net, train, epochs)
        self.warmup_epochs = scaled(120, epochs, AUTHORS_EPOCHS, self.warmup)
        self.best = BestNet(self.net)
        self.num_observed = len(torch.unique(train.observed[train.labeled]))  # classes that occur

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """For the net alone, not for the copy of its best state."""
        return {"net": make(self.net.parameters())}

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """Epochs of cross entropy; then, from the best of them, epochs of DMI in large batches."""
        if epoch < self.warmup_epochs:
            yield Pass(trained_on(train, self.holdout))
            held = held_out(train, self.holdout)
            self.best.offer(self.net, accuracy(train.predict(self.net, held), train.observed[held]))
            return
        begins = epoch == self.warmup_epochs
        if begins:
            self.best.restore(self.net)
        size = self.rows_per_class * self.num_observed
        yield Pass(
            restart=("net",) if begins else (),
            lr_scale=self.rate,
            batch_size=size,
            drop_last=int(train.labeled.sum()) >= size,  # a short batch misses classes
        )

    def loss(self, batch: Batch) -> Terms:
        """Mean cross entropy; after the warm-up -ln(|det U| + 0.001) for classes in the batch."""
        logits = self.net(batch.x)  # (b, c)
        losses = cross_entropy(logits, batch.y)  # (b,)
        self.row_losses.write(batch.index, losses)
        if batch.epoch < self.warmup_epochs:
            return {"ce": losses.mean()}
        log_determinant = torch.linalg.slogdet(self._joint(logits.softmax(1), batch.y)).logabsdet
        if not torch.isfinite(log_determinant):  # the determinant is 0: all predictions are equal
            return {"ce": losses.mean()}
        smallest = torch.full_like(log_determinant, log(SMALLEST))
        return {"dmi": -torch.logaddexp(log_determinant, smallest)}

    def resolved(self) -> dict[str, Any]:
        """The warm-up in epochs of this run."""
        return {"warmup": self.warmup_epochs}

    def _joint(self, p: Tensor, observed: Tensor) -> Tensor:
        """U (k, k) of the rows of all processes, with the gradient of this process's rows.

        The engine expects a mean over the rows of each process, but U is a sum over all rows.
        """
        all_p, all_observed = self.all_gather(p), self.all_gather(observed)
        classes = torch.unique(all_observed)  # (k,) of the whole batch
        own = _sum(p, observed, classes)
        share = len(p) / len(all_p)
        return _sum(all_p, all_observed, classes) + (own - own.detach()) / share


def _sum(p: Tensor, observed: Tensor, classes: Tensor) -> Tensor:
    """Predictions summed by observed label, for some of the classes (k, k)."""
    label = F.one_hot(observed, p.shape[1]).to(p.dtype)  # (b, c)
    return (label.T @ p)[classes][:, classes]
