"""A table of the last loss of each row, which many methods keep."""

import torch
from torch import Tensor

from colafier.methods.contract import MakeNet, Method, TrainSet
from colafier.methods.row_table import RowTable


class WithRowLosses(Method):
    """A method whose `loss` writes the loss of each row to `row_losses`.

    Large losses are a sign of wrong labels.
    """

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """The nets, and the last loss of each row: not a number until the row is trained on."""
        super().setup(make_net, train, epochs)
        self.row_losses = RowTable(torch.full((train.n,), torch.nan))

    def rows_now(self) -> dict[str, Tensor]:
        """The losses of the observed labels."""
        return {"loss": self.row_losses.values}
