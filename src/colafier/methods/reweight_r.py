"""Reweight-R, Xia et al., NeurIPS 2019: weight rows by the clean over the noisy probability.

The noisy probability is the prediction multiplied by the transition matrix T, which describes how
labels go wrong. T from anchor rows may be inaccurate, so it is revised together with the net.
"""

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from colafier.core.functional import cross_entropy
from colafier.core.schedules import scaled
from colafier.methods._best_net import BestNet, accuracy
from colafier.methods._row_losses import WithRowLosses
from colafier.methods._selection import held_out, trained_on
from colafier.methods._transition import SMALLEST, anchor_transition
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


class ReweightR(WithRowLosses):
    """Cross entropy, then importance weights by an estimated T, then T and the net together.

    Args:
        warmup: Epochs of cross entropy, the best of which gives T; by default a fifth of the run.
        revision: Last epochs, in which T is revised too; by default two fifths of the run.
        revision_rate: Learning rate of the revision, as a multiple of the run's.
        quantile: The anchor row of a class is its most probable one below this quantile.
        holdout: Share of the rows that select the best epoch of each phase and train nothing.

    Note: The authors have 20, 200 and 200 epochs. Scaled to a short run, that leaves hardly any
        warm-up, and T of an untrained net is worse than none. A longer warm-up does no harm, since
        held-out rows select its epoch. Their rate is 0.01 (SGD), and 5e-7 (Adam) in the revision,
        which would not move in a short run. In their code the slack is added once per row, or has
        no gradient, and the sum may leave [0, 1]; here it is added once, clamped and normalized.
        They also keep the best epoch of the revision; here the last one counts.
    """

    reference = (
        "Xia, Liu, Wang, Han, Gong, Niu, Sugiyama: Are anchor points really indispensable in "
        "label-noise learning?, NeurIPS"
    )
    year = 2019

    transition: Tensor

    def __init__(
        self,
        *,
        warmup: Annotated[int, Range(1)] | None = None,
        revision: Annotated[int, Range(0)] | None = None,
        revision_rate: Annotated[float, Range(0)] = 0.01,
        quantile: Annotated[float, Range(0, 1)] = 0.97,
        holdout: Annotated[float, Range(0, 0.5)] = 0.1,
    ) -> None:
        super().__init__()
        self.warmup = warmup
        self.revision = revision
        self.revision_rate = revision_rate
        self.quantile = quantile
        self.holdout = holdout

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net, its best state in a phase, T and its slack, and the last loss of each row."""
        super().setup(make_net, train, epochs)
        self.warmup_epochs = scaled(1, epochs, 5, self.warmup)
        revision = scaled(2, epochs, 5, self.revision)
        self.revision_begin = max(epochs - revision, self.warmup_epochs + 1)
        self.best = BestNet(self.net)
        self.register_buffer("transition", torch.eye(train.num_classes))  # T
        self.slack = nn.Parameter(torch.zeros(train.num_classes, train.num_classes))  # Delta T

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """One for net and slack; the slack has a gradient only in the revision."""
        return {"net": make([*self.net.parameters(), self.slack])}

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """One pass; the second and the third phase start from the best epoch of the one before."""
        if epoch == self.warmup_epochs:
            p = train.predict(self.best.net)  # (n, c)
            self.transition.copy_(anchor_transition(p, self.quantile))
        begins = epoch in (self.warmup_epochs, self.revision_begin)
        if begins:
            self.best.restore(self.net)
        yield Pass(
            trained_on(train, self.holdout),
            restart=("net",) if begins else (),
            lr_scale=self.revision_rate if epoch >= self.revision_begin else None,
        )
        held = held_out(train, self.holdout)
        noisy = train.predict(self.net, held)  # (m, c)
        if epoch >= self.warmup_epochs:
            noisy = noisy @ self.revised().detach().cpu()
        self.best.offer(self.net, accuracy(noisy, train.observed[held]))

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy, weighted after the warm-up; weights are trained only in the revision."""
        logits = self.net(batch.x)  # (b, c)
        losses = cross_entropy(logits, batch.y)  # (b,)
        self.row_losses.write(batch.index, losses)
        if batch.epoch < self.warmup_epochs:
            return {"ce": losses.mean()}
        weights = importance(logits.softmax(1), batch.y, self.revised())  # (b,)
        if batch.epoch < self.revision_begin:
            weights = weights.detach()
        return {"reweighted": (weights * losses).mean()}

    def revised(self) -> Tensor:
        """T plus its slack, with rows normalized to probabilities (c, c)."""
        transition = self.transition + self.slack
        # clamped values keep their gradient, so that a probability of 0 can be revised
        transition = transition + (transition.clamp(min=SMALLEST) - transition).detach()
        return transition / transition.sum(1, keepdim=True)

    def resolved(self) -> dict[str, Any]:
        """The epochs in which weighting and revision start."""
        return {"warmup": self.warmup_epochs, "revision_begin": self.revision_begin}


def importance(p: Tensor, observed: Tensor, transition: Tensor) -> Tensor:
    """Weight of each row, beta (b,): the observed label's clean probability over its noisy one."""
    clean = p.gather(1, observed[:, None])[:, 0]  # (b,)
    noisy = (p @ transition).gather(1, observed[:, None])[:, 0]  # (b,)
    return clean / noisy.clamp(min=SMALLEST)
