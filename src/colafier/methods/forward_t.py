"""Forward correction, Patrini et al., CVPR 2017: predict clean classes, then send them through T.

T says how the labels of each class go wrong. It is read off a first net, which learns the labels as
they are; a second one then learns what they were before T.
"""

from typing import Annotated, Any

import torch
from torch import Tensor, nn

from colafier.core.functional import cross_entropy
from colafier.core.schedules import scaled
from colafier.methods._best_net import BestNet, likelihood
from colafier.methods._row_losses import no_losses
from colafier.methods._selection import held_out, trained_on
from colafier.methods._transition import anchor_transition, forward_loss
from colafier.methods.contract import (
    Batch,
    MakeNet,
    MakeOptimizer,
    Method,
    Pass,
    Passes,
    Range,
    Terms,
    TrainSet,
)

AUTHORS_EPOCHS = 240  # 120 of each net


class ForwardT(Method):
    """A net whose predictions, sent through the estimated T, fit the observed labels.

    Args:
        warmup: Epochs of the first net, which T is read off; by default scaled from 120 in 240.
        quantile: The anchor row of a class is its most probable one below this quantile.
        holdout: Share of the rows that choose the first net's best epoch and do not train it.

    Note: The authors keep the second net's best epoch on held-out rows as well; here it learns from
        all rows, and its last epoch counts as in every method. They train with SGD, the rate
        divided by 10 after a third and after two thirds of the 120 epochs. Both nets share the
        epochs of the run, so the one that counts learns for half of them: in a short run it ends
        below plain cross entropy (docs/methods.md has FM-mini, 15 epochs).
    """

    reference = (
        "Patrini, Rozza, Menon, Nock, Qu: Making deep neural networks robust to label noise: "
        "a loss correction approach, CVPR"
    )
    year = 2017
    num_nets = 2

    transition: Tensor
    corrects: Tensor

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

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, T, and the last cross entropy of each row."""
        self.epochs = epochs
        self.warmup_epochs = scaled(120, epochs, AUTHORS_EPOCHS, self.warmup)
        self.first = make_net()
        self.best = BestNet(self.first)
        self.net = make_net()
        self.register_buffer("transition", torch.eye(train.num_classes))
        self.register_buffer("corrects", torch.tensor(False))  # whether T has been estimated
        self.row_losses = no_losses(train.n)

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """One for each net."""
        return {"first": make(self.first.parameters()), "net": make(self.net.parameters())}

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
        span = (self.warmup_epochs, self.epochs)  # a fresh net begins with the whole rate
        yield Pass(optimizers=("net",), lr_span=span)

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of the first net, or the forward loss of the second."""
        logits = self.deployed()(batch.x)  # (b, c)
        losses = cross_entropy(logits, batch.y)  # (b,)
        self.row_losses.write(batch.index, losses)
        if not self.corrects:
            return {"ce": losses.mean()}
        return {"forward": forward_loss(logits, batch.y, self.transition).mean()}

    def deployed(self) -> nn.Module:
        """The second net, which says the clean class; before it is there, the first."""
        net: nn.Module = self.net if self.corrects else self.first
        return net

    def resolved(self) -> dict[str, Any]:
        """The first net's epochs."""
        return {"warmup": self.warmup_epochs}

    def rows_now(self) -> dict[str, Tensor]:
        """Cross entropies without T: large where the clean class is not the observed label."""
        return {"loss": self.row_losses.values}
