"""Generalized Jensen-Shannon divergence, Englesson and Azizpour, NeurIPS 2021.

One divergence measures how far two views of a row are from its label and from each other. For rows
with a wrong label the views agree less.
"""

from typing import Annotated

from colafier.core.functional import generalized_js
from colafier.methods._row_losses import WithRowLosses
from colafier.methods.contract import Batch, Range, Terms


class GeneralizedJensenShannon(WithRowLosses):
    """Divergence of the observed label and the predictions on strong views, each its own batch.

    Args:
        label_weight: Weight of the label, pi_1.
        num_views: Views of each row; 2 is GJS, 1 is JS, which has no consistency term.

    Note: The authors tune `label_weight` for each kind of noise on held-out noisy labels. The
        default is their value for 20 % symmetric and for all asymmetric noise; for 40, 60 and 80 %
        symmetric noise it is 0.9, 0.1 and 0.1. They train for 400 epochs with SGD and divide the
        rate by 10 after a half and three quarters.
    Note: The strong view is that of this package, not the authors'. Theirs is one operation of
        RandAugment, a shift by up to 4 pixels, and a cutout square of 16 pixels, a quarter of an
        image of 32 x 32. Here it is a shift, up to two mild operations, and a gray square of 15 %
        of the side.
    """

    reference = (
        "Englesson, Azizpour: Generalized Jensen-Shannon divergence loss for learning with "
        "noisy labels, NeurIPS"
    )
    year = 2021

    def __init__(
        self,
        *,
        label_weight: Annotated[float, Range(0.001, 0.999)] = 0.3,
        num_views: Annotated[int, Range(1, 8)] = 2,
    ) -> None:
        super().__init__()
        self.label_weight = label_weight
        self.views = ("strong",) * num_views

    def loss(self, batch: Batch) -> Terms:
        """Mean divergence."""
        logits = [self.net(view) for view in batch.views]  # of each view (b, c)
        losses = generalized_js(logits, batch.y, self.label_weight)  # (b,)
        self.row_losses.write(batch.index, losses)
        return {"gjs": losses.mean()}
