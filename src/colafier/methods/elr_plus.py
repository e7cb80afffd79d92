"""ELR+: early-learning regularization with mixup, and two nets that guide each other."""

from math import exp
from typing import Annotated, Any, cast

import torch
from torch import Tensor, nn

from colafier.core.functional import cross_entropy, early_learning
from colafier.core.mixing import mixed_labels, mixup
from colafier.core.schedules import scaled
from colafier.methods._two_nets import TAGS, InTurns
from colafier.methods.contract import (
    Batch,
    Engine,
    MakeNet,
    Pass,
    Passes,
    Range,
    Terms,
    TrainSet,
)
from colafier.methods.row_table import RowTable
from colafier.nets.averaged import Averaged

AUTHORS_EPOCHS = 200


class EarlyLearningPlus(InTurns):
    """Two nets train on mixes; targets are running predictions of the other net's average.

    Args:
        momentum: Share of the old target in the new one, beta.
        weight: Weight of the regularizer, lambda.
        decay: Final decay of the averaged copies, gamma.
        decay_ramp: Epochs in which the decay rises to that; by default scaled from 114 in 200.
        alpha: Parameter of Beta(alpha, alpha), from which the shares in a mix are drawn.

    Note:
        The defaults are the authors' for symmetric noise on CIFAR-10; for asymmetric noise they
        have momentum 0.9 and weight 1. The loss may become negative, as intended. As in their code,
        the averaged copies normalize with statistics of the batch, since running statistics of
        mixed rows do not fit plain rows. The nets are deployed, not the copies. In their code the
        nets may get different noisy labels; here both train on the same ones. What their code adds
        for CIFAR-100 (labels weighted by targets, a ramp of lambda) is left out. The authors train
        with SGD and divide the rate by 10 after 150 of 200 epochs.
    """

    reference = (
        "Liu et al.: Early-learning regularization prevents memorization of noisy labels, NeurIPS"
    )
    year = 2020

    def __init__(
        self,
        *,
        momentum: Annotated[float, Range(0, 1)] = 0.7,
        weight: Annotated[float, Range(0)] = 3.0,
        decay: Annotated[float, Range(0, 1)] = 0.997,
        decay_ramp: Annotated[int, Range(1)] | None = None,
        alpha: Annotated[float, Range(1e-3)] = 1.0,
    ) -> None:
        super().__init__()
        self.momentum = momentum
        self.weight = weight
        self.decay = decay
        self.decay_ramp = decay_ramp
        self.alpha = alpha

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Two nets with averaged copies, and for each net a target for every row."""
        super().setup(make_net, train, epochs)
        self.num_classes = train.num_classes
        self.ramp_epochs = scaled(114, epochs, AUTHORS_EPOCHS, self.decay_ramp)
        self.copies = nn.ModuleList(Averaged(net) for net in self.net)
        nothing = torch.zeros(train.n, train.num_classes)
        self.targets = nn.ModuleList(RowTable(nothing) for _ in self.net)
        self.doubt = RowTable(torch.zeros(train.n))

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """One pass for each net."""
        for tag in TAGS:
            yield Pass(tag=tag, optimizers=(tag,))

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of mixed rows and labels, and the regularizer with mixed targets."""
        number = TAGS.index(batch.tag)
        targets = self._new_targets(batch, number)  # (b, c)
        mixed = mixup(batch.x, self.alpha)
        labels = mixed_labels(batch.y, mixed, self.num_classes)  # (b, c)
        targets = mixed.keep * targets + (1 - mixed.keep) * targets[mixed.partner]
        logits = self.net[number](mixed.x)  # (b, c)
        return {
            "ce": cross_entropy(logits, labels).mean(),
            "elr": self.weight * early_learning(logits, targets).mean(),
        }

    def update(self, batch: Batch, engine: Engine) -> Terms:
        """One step of one net, and then of its averaged copy."""
        terms = super().update(batch, engine)
        number = TAGS.index(batch.tag)
        copy = cast(Averaged, self.copies[number])
        copy.follow(self.net[number], self.decay_at(batch.progress))
        return terms

    def decay_at(self, progress: float) -> float:
        """The decay of the averaged copies at this point of training."""
        missing = 1 - min(progress / self.ramp_epochs, 1.0)
        return self.decay * exp(-5 * missing**2)

    def resolved(self) -> dict[str, Any]:
        """The ramp in epochs of this run."""
        return {"decay_ramp": self.ramp_epochs}

    def rows_now(self) -> dict[str, Tensor]:
        """One minus the observed label's probability in the target."""
        return {"doubt": self.doubt.values}

    @torch.no_grad()
    def _new_targets(self, batch: Batch, number: int) -> Tensor:
        """Targets with the predictions of the other net's average for the unmixed rows (b, c)."""
        other = self.copies[1 - number]
        table = cast(RowTable, self.targets[number])
        p = other(batch.x).softmax(1)  # (b, c)
        targets: Tensor = self.momentum * table[batch.index] + (1 - self.momentum) * p
        table.write(batch.index, targets)
        self.doubt.write(batch.index, 1 - targets.gather(1, batch.y[:, None])[:, 0])
        return targets
