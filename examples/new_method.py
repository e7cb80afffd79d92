"""Your own method, complete: label smoothing, compared with ce on digits with 40 % wrong labels.

    python examples/new_method.py

A method is one class. Name its file in the environment, or put it into `src/colafier/methods/`;
there is no list to add it to. Then the command line, the common checks and the table of all methods
find it:

    export COLAFIER_METHODS=examples/new_method.py
    colafier train --preset digits --method new_method --out runs/new
    pytest tests/methods/test_common.py -k new_method
    colafier bench run digits --methods ce new_method
"""

import os
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from colafier.methods.contract import Batch, MakeNet, Method, RowTable, Terms, TrainSet


class LabelSmoothing(Method):
    """Cross entropy with smoothed labels: a share of each label is spread over all classes.

    Args:
        share: The share that is spread, alpha.
    """

    reference = "Lukasik et al., Does label smoothing mitigate label noise?, ICML"
    year = 2020

    def __init__(self, *, share: float = 0.5) -> None:
        super().__init__()
        self.share = share

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Build a net, and a table with the last loss of each row."""
        super().setup(make_net, train, epochs)
        self.row_losses = RowTable(torch.zeros(train.n))

    def loss(self, batch: Batch) -> Terms:
        """One term, the mean over the rows of the batch."""
        logits = self.net(batch.x)  # (b, c)
        losses = F.cross_entropy(logits, batch.y, reduction="none", label_smoothing=self.share)
        self.row_losses.write(batch.index, losses)
        return {"smoothed": losses.mean()}

    def rows_now(self) -> dict[str, Tensor]:
        """Losses, which are high for wrong labels; their AUROC is computed after each epoch."""
        return {"loss": self.row_losses.values}


def main() -> None:
    """Train both methods and print a table."""
    from rich.console import Console

    from colafier import methods, resolve, run
    from colafier.cli.score_table import table

    os.environ[methods.OWN_FILES] = __file__
    names = ("ce", Path(__file__).stem)
    runs = {name: run(resolve("digits", {"method": name})) for name in names}
    Console().print(table({name: r.record for name, r in runs.items()}, "digits, instance:0.4"))


if __name__ == "__main__":
    main()
