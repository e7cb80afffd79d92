"""Mixup, Zhang et al., ICLR 2018: train on mixes of two rows, and of their labels.

A wrong label is always mixed with another one, which makes it hard to memorize.
"""

from typing import Annotated

from colafier.core.functional import cross_entropy
from colafier.core.mixing import mixup
from colafier.methods._row_losses import WithRowLosses
from colafier.methods.contract import Batch, Range, Terms


class Mixup(WithRowLosses):
    """Cross entropy of mixed rows with both labels, weighted like the rows.

    Args:
        alpha: Parameter of Beta(alpha, alpha), from which the share of the first row is drawn.

    Note: The default is the paper's value for 20 % wrong labels; it uses 32 for 50 % and 1 for
        clean labels. The authors train with SGD and divide the rate by 10 after a half and three
        quarters of the run. `mixing.mixup` gives a row the larger share of its mix. This makes no
        difference: if shares and partners are swapped, the batch is the same. With several
        processes, each mixes its own rows.
    Note: Mixes are learned more slowly than rows. If a run is too short to memorize wrong labels,
        like the 15 epochs of FM-mini, it ends below cross entropy (docs/methods.md).
    """

    reference = "Zhang, Cisse, Dauphin, Lopez-Paz: mixup: Beyond empirical risk minimization, ICLR"
    year = 2018

    def __init__(self, *, alpha: Annotated[float, Range(1e-3)] = 8.0) -> None:
        super().__init__()
        self.alpha = alpha

    def loss(self, batch: Batch) -> Terms:
        """Mean cross entropy of the mixed rows."""
        mixed = mixup(batch.x, self.alpha)
        logits = self.net(mixed.x)  # (b, c)
        own = cross_entropy(logits, batch.y)  # (b,)
        partner = cross_entropy(logits, batch.y[mixed.partner])  # (b,)
        self.row_losses.write(batch.index, own)
        return {"mixed": (mixed.keep * own + (1 - mixed.keep) * partner).mean()}
