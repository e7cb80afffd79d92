"""A method of your own, whole: label smoothing, trained on digits with 40 % wrong labels beside ce.

    python examples/new_method.py

The class is all there is to a method. In a file of its own, `src/colafier/methods/NAME.py`, it is
found by that name, without a list to add it to: `colafier methods` and `colafier train --method
NAME` have it, and so have the common checks of the tests and the tables of the benchmarks.
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from colafier.flow import Batch, MakeNet, Terms, TrainSet
from colafier.methods.base import Method
from colafier.rows import RowTable


class LabelSmoothing(Method):
    """Cross entropy in which each label gives a share of itself to all classes.

    Args:
        share: What the classes are given, alpha.
    """

    reference = "Lukasik et al., Does label smoothing mitigate label noise?, ICML"
    year = 2020

    def __init__(self, *, share: float = 0.5) -> None:
        super().__init__()
        self.share = share

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net, and the last loss of each row."""
        super().setup(make_net, train, epochs)
        self.row_losses = RowTable(torch.zeros(train.n))

    def loss(self, batch: Batch) -> Terms:
        """One term, the mean over the rows of the batch."""
        logits = self.net(batch.x)  # (b, c)
        losses = F.cross_entropy(logits, batch.y, reduction="none", label_smoothing=self.share)
        self.row_losses.write(batch.index, losses)
        return {"smoothed": losses.mean()}

    def rows_now(self) -> dict[str, Tensor]:
        """Losses, which are high where a label is wrong: their AUROC is scored each epoch."""
        return {"loss": self.row_losses.values}


def main() -> None:
    """Train both, and show them side by side."""
    from rich.console import Console

    from colafier import methods, resolve, run
    from colafier.summary import table

    here = Path(__file__)
    methods.__path__.append(str(here.parent))  # methods are files; look for them here as well
    runs = {name: run(resolve("digits", {"method": name})) for name in ("ce", here.stem)}
    Console().print(table({name: r.record for name, r in runs.items()}, "digits, instance:0.4"))


if __name__ == "__main__":
    main()
