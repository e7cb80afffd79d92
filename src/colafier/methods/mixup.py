"""Mixup, Zhang et al., ICLR 2018: train on mixes of two rows, and of their labels.

A wrong label never comes undiluted, which makes it hard to learn by heart.
"""

from typing import Annotated

from colafier.core.functional import cross_entropy
from colafier.core.mixing import mixup
from colafier.methods._row_losses import WithRowLosses
from colafier.methods.contract import Batch, Range, Terms


class Mixup(WithRowLosses):
    """Cross entropy of mixed rows with both labels, weighted as the rows are.

    Args:
        alpha: Of Beta(alpha, alpha), from which the share of the first row is drawn.

    Note: `alpha` is the paper's for a fifth of wrong labels; it has 32 for half of them, and 1 for
        clean ones. The authors train with SGD, the rate divided by 10 after a half and three
        quarters of the run. `mixing.mixup` gives a row the larger share of its mix. That is no
        other method: shares changed and pairs turned around make the same batch. Of several
        processes each mixes its own rows.
    Note: Mixes are learned more slowly than rows. Where a run is too short for wrong labels to be
        learned by heart, as FM-mini's 15 epochs, it ends below cross entropy (docs/methods.md).
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
