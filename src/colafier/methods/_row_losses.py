"""What methods that remember each row's last loss have in common."""

import torch
from torch import Tensor

from colafier.methods.contract import MakeNet, Method, TrainSet
from colafier.methods.row_table import RowTable


def no_losses(n: int) -> RowTable:
    """A table for the last loss of each row: not a number until the row is trained on."""
    return RowTable(torch.full((n,), torch.nan))


class WithRowLosses(Method):
    """One net, and a table of losses for `loss` to write; large ones are a sign of wrong labels."""

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net, and the last loss of each row."""
        super().setup(make_net, train, epochs)
        self.row_losses = no_losses(train.n)

    def rows_now(self) -> dict[str, Tensor]:
        """The losses."""
        return {"loss": self.row_losses.values}
