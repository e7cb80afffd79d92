"""Forward correction, Patrini et al., CVPR 2017: predict clean classes, then multiply by T.

The transition matrix T describes how the labels of each class go wrong. It is estimated with a
first net, which trains on the labels as they are; a second net then learns the classes before T.
"""

from typing import Annotated, Any

import torch
from torch import Tensor

from colafier.core.functional import cross_entropy
from colafier.core.schedules import scaled
from colafier.methods._best_net import BestNet, likelihood
from colafier.methods._selection import held_out, trained_on
from colafier.methods._transition import anchor_transition, forward_loss
from colafier.methods._two_nets import FirstAndSecond
from colafier.methods.contract import (
    Batch,
    MakeNet,
    Pass,
    Passes,
    Range,
    Terms,
    TrainSet,
)

AUTHORS_EPOCHS = 240  # 120 of each net


class ForwardT(FirstAndSecond):
    """A net whose predictions fit the observed labels after multiplication by the estimated T.

    Args:
        warmup: Epochs of the first net, which gives T; by default scaled from 120 in 240.
        quantile: The anchor row of a class is its most probable one below this quantile.
        holdout: Share of the rows that select the first net's best epoch and do not train it.

    Note: The authors also keep the second net's best epoch on held-out rows; here it trains on all
        rows, and its last epoch counts, as in every method. They train with SGD and divide the rate
        by 10 after a third and after two thirds of the 120 epochs. Both nets share the epochs of
        the run, so the second one has half of them: in a short run it ends below plain cross
        entropy (docs/methods.md has FM-mini, 15 epochs).
    """

    reference = (
        "Patrini, Rozza, Menon, Nock, Qu: Making deep neural networks robust to label noise: "
        "a loss correction approach, CVPR"
    )
    year = 2017

    transition: Tensor

    def __init__(
        self,
        *,
        warmup: Annotated[int, Range(1)] | None = None,
        quantile: Annotated[float, Range(0, 1)] = 0.97,
        holdout: Annotated[float, Range(0, 0.5)] = 0.1,
    ) -> None:
        super().__init__()
        self.warmup = warmup
        self.quantile = quantile
        self.holdout = holdout

    @classmethod
    def preparation(cls, epochs: int) -> tuple[int, dict[str, Any]]:
        """The epochs of the first net."""
        first = scaled(120, epochs, AUTHORS_EPOCHS)
        return first, {"warmup": first}

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, the first one's best state, T, and the last cross entropy of each row."""
        super().setup(make_net, train, epochs)
        self.epochs = epochs
        self.warmup_epochs = scaled(120, epochs, AUTHORS_EPOCHS, self.warmup)
        self.best = BestNet(self.first)
        self.register_buffer("transition", torch.eye(train.num_classes))

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """Epochs of the first net, T from the best of them, then epochs of the second net."""
        if epoch < self.warmup_epochs and not self.corrects:
            span = (0, self.warmup_epochs)
            yield Pass(trained_on(train, self.holdout), optimizers=("first",), lr_span=span)
            held = held_out(train, self.holdout)
            p = train.predict(self.first, held)  # (m, c)
            self.best.offer(self.first, likelihood(p, train.observed[held]))
            return
        if not self.corrects:
            p = train.predict(self.best.net)  # (n, c)
            self.transition.copy_(anchor_transition(p, self.quantile))
            self.corrects.fill_(True)
        span = (self.warmup_epochs, self.epochs)  # a new net starts with the full rate
        yield Pass(optimizers=("net",), lr_span=span)

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of the first net, or the forward loss of the second."""
        logits = self.deployed()(batch.x)  # (b, c)
        losses = cross_entropy(logits, batch.y)  # (b,)
        self.row_losses.write(batch.index, losses)
        if not self.corrects:
            return {"ce": losses.mean()}
        return {"forward": forward_loss(logits, batch.y, self.transition).mean()}

    def resolved(self) -> dict[str, Any]:
        """The first net's epochs."""
        return {"warmup": self.warmup_epochs}
