"""Cross entropy on the observed labels: the baseline that a method must beat."""

from torch.nn import functional as F

from colafier.methods._row_losses import WithRowLosses
from colafier.methods.contract import Batch, Terms


class CrossEntropy(WithRowLosses):
    """Plain training, which in a long run memorizes the wrong labels as well."""

    reference = "Zhang et al.: Understanding deep learning requires rethinking generalization, ICLR"
    year = 2017

    def loss(self, batch: Batch) -> Terms:
        """Mean cross entropy."""
        losses = F.cross_entropy(self.net(batch.x), batch.y, reduction="none")  # (b,)
        self.row_losses.write(batch.index, losses)
        return {"ce": losses.mean()}
