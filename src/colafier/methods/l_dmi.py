"""L_DMI, Xu et al., NeurIPS 2019: maximize the determinant of predictions against observed labels.

Noise that depends on the class alone multiplies this determinant by a constant, so the classifier
that is best with the observed labels is also the best with the true ones.
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
SMALLEST = 0.001  # added to the determinant, so that its logarithm has a lower end


class LDMI(WithRowLosses):
    """Cross entropy first; then mutual information, by a determinant, of predictions and labels.

    Args:
        warmup: Epochs of cross entropy; by default scaled from 120 in 220.
        rate: Learning rate of the DMI epochs, as a multiple of the run's.
        rows_per_class: Rows of a batch in the DMI epochs, for each class.
        holdout: Share of the rows that choose which epoch of the warm-up DMI starts from.

    Note: The determinant does not care which class is which, and its gradient is wild for a net
        that knows nothing, so the warm-up and a low rate belong to the method. The authors have
        SGD with 1e-6, after 0.1 to 0.001 in the warm-up; Adam at such a ratio would not move in a
        short run. Their batches have 256 rows in 10 classes. As in their code the matrix is a sum
        over rows; the paper's mean would be so small in 10 classes that the constant drowns it.
        They keep the best epoch of DMI on held-out rows; here all rows train, and the last counts.
        A class that is not in a batch makes the determinant 0; here the batch's own classes count.
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
        """For the net alone, not for the state that is kept of it."""
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
            self.best.give_back(self.net)
        size = self.rows_per_class * self.num_observed
        yield Pass(
            restart=("net",) if begins else (),
            lr_scale=self.rate,
            batch_size=size,
            drop_last=int(train.labeled.sum()) >= size,  # a short batch says little of all classes
        )

    def loss(self, batch: Batch) -> Terms:
        """Mean cross entropy; then -ln(|det U| + 0.001), among the classes in the batch."""
        logits = self.net(batch.x)  # (b, c)
        losses = cross_entropy(logits, batch.y)  # (b,)
        self.row_losses.write(batch.index, losses)
        if batch.epoch < self.warmup_epochs:
            return {"ce": losses.mean()}
        log_determinant = torch.linalg.slogdet(self._joint(logits.softmax(1), batch.y)).logabsdet
        if not torch.isfinite(log_determinant):  # rows that are all alike: the determinant is 0
            return {"ce": losses.mean()}
        smallest = torch.full_like(log_determinant, log(SMALLEST))
        return {"dmi": -torch.logaddexp(log_determinant, smallest)}

    def resolved(self) -> dict[str, Any]:
        """The epochs of cross entropy."""
        return {"warmup": self.warmup_epochs}

    def _joint(self, p: Tensor, observed: Tensor) -> Tensor:
        """U (k, k) of the rows of all processes, with the gradient of this one's rows.

        The engine takes what it gets for a mean over the rows of a process; U is a sum over all.
        """
        all_p, all_observed = self.all_gather(p), self.all_gather(observed)
        classes = torch.unique(all_observed)  # (k,) of the whole batch
        own = _sum(p, observed, classes)
        share = len(p) / len(all_p)
        return _sum(all_p, all_observed, classes) + (own - own.detach()) / share


def _sum(p: Tensor, observed: Tensor, classes: Tensor) -> Tensor:
    """Predictions of some classes, summed by observed label (k, k)."""
    label = F.one_hot(observed, p.shape[1]).to(p.dtype)  # (b, c)
    return (label.T @ p)[classes][:, classes]
