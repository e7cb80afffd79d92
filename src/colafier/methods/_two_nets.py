"""What methods that train two nets on the same batches have in common."""

import torch
from torch import Tensor, nn

from colafier.flow import Batch, MakeNet, TrainSet
from colafier.functional import cross_entropy
from colafier.methods._pair import Pair
from colafier.methods.base import Method
from colafier.rows import RowTable


class TwoNets(Method):
    """Two nets of one kind that start differently, and the last loss of each row.

    Note: The papers score each net alone, which is what `members` gives. Deployed is the mean.
    """

    num_nets = 2

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, and a table for the losses."""
        self.net = Pair([make_net(), make_net()])
        self.row_losses = RowTable(torch.zeros(train.n))

    def members(self) -> list[nn.Module]:
        """Each net alone."""
        return list(self.net)

    def rows_now(self) -> dict[str, Tensor]:
        """Losses, since large ones are a sign of wrong labels."""
        return {"loss": self.row_losses.values}

    def look(self, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
        """Logits (b, c) of each net, and its cross entropy with the given labels (b,)."""
        logits = [net(batch.x) for net in self.net]
        return logits, [cross_entropy(some, batch.y) for some in logits]

    def disagree(self, logits: list[Tensor]) -> Tensor:
        """Rows of all processes for which the nets guess different classes (all b,)."""
        first, second = (some.argmax(1) for some in logits)
        return self.gather(first != second)
