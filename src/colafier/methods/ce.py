"""Cross entropy on the given labels: what a method must beat."""

import torch
from torch import Tensor
from torch.nn import functional as F

from colafier.flow import Batch, MakeNet, Terms, TrainSet
from colafier.methods.base import Method
from colafier.rows import RowTable


class CrossEntropy(Method):
    """Plain training, which in the end learns the wrong labels as well."""

    reference = "Zhang et al., Understanding deep learning requires rethinking generalization, ICLR"
    year = 2017

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net, and the last loss of each row."""
        super().setup(make_net, train, epochs)
        self.row_losses = RowTable(torch.zeros(train.n))

    def loss(self, batch: Batch) -> Terms:
        """Mean cross entropy."""
        losses = F.cross_entropy(self.net(batch.x), batch.y, reduction="none")  # (b,)
        self.row_losses.write(batch.index, losses)
        return {"ce": losses.mean()}

    def rows_now(self) -> dict[str, Tensor]:
        """Losses, since large ones are a sign of wrong labels."""
        return {"loss": self.row_losses.values}
