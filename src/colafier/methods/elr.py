"""Early-learning regularization, Liu et al., NeurIPS 2020: keep what was learned early.

A running mean of the predictions for each row keeps the net from memorizing wrong labels later.
"""

from typing import Annotated

import torch

from colafier.core.functional import clamped, cross_entropy, early_learning
from colafier.methods._row_losses import WithRowLosses
from colafier.methods.contract import Batch, MakeNet, Range, Terms, TrainSet
from colafier.methods.row_table import RowTable


class EarlyLearning(WithRowLosses):
    """Cross entropy, and a reward for agreeing with the net's own earlier predictions.

    Args:
        momentum: Share of the old target in the new one, beta.
        weight: Weight of the regularizer, lambda.

    Note: The defaults are the authors' for symmetric noise on CIFAR-10; for asymmetric noise they
        have 0.9 and 1. The loss may become negative, as intended. They train with SGD and weight
        decay 0.001, and divide the rate by 100 after a third and two thirds of 120 epochs; for
        symmetric noise their code restarts a cosine every 10 of 150 epochs instead.
    """

    reference = (
        "Liu, Niles-Weed, Razavian, Fernandez-Granda: Early-learning regularization prevents "
        "memorization of noisy labels, NeurIPS"
    )
    year = 2020

    def __init__(
        self,
        *,
        momentum: Annotated[float, Range(0, 1)] = 0.7,
        weight: Annotated[float, Range(0)] = 3.0,
    ) -> None:
        super().__init__()
        self.momentum = momentum
        self.weight = weight

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net, a target for each row, and the last cross entropy of each row."""
        super().setup(make_net, train, epochs)
        self.targets = RowTable(torch.zeros(train.n, train.num_classes))  # t

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy and the regularizer, which already uses the new targets of this step."""
        logits = self.net(batch.x)  # (b, c)
        losses = cross_entropy(logits, batch.y)  # (b,)
        p = clamped(logits.detach())  # (b, c)
        now = p / p.sum(1, keepdim=True)  # (b, c)
        targets = self.momentum * self.targets[batch.index] + (1 - self.momentum) * now  # (b, c)
        self.targets.write(batch.index, targets)
        self.row_losses.write(batch.index, losses)
        regularizer = early_learning(logits, targets).mean()
        return {"ce": losses.mean(), "elr": self.weight * regularizer}
