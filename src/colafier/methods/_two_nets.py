"""What methods with two nets have in common."""

import torch
from torch import Tensor, nn

from colafier.core.functional import cross_entropy
from colafier.methods._row_losses import no_losses
from colafier.methods.contract import Batch, MakeNet, MakeOptimizer, Method, TrainSet
from colafier.nets.ensemble import Ensemble

# Tags of the passes in which the first and the second net learn; figures of "train" have no prefix
TAGS = ("train", "second")


class TwoNets(Method):
    """Two nets of one kind that start differently.

    Note: The papers score each net alone, which is what `members` gives. Deployed is the mean.
    """

    num_nets = 2

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets."""
        self.net = Ensemble([make_net(), make_net()])

    def members(self) -> list[nn.Module]:
        """Each net alone."""
        return list(self.net)


class SideBySide(TwoNets):
    """Both nets see the same batches; the last loss of each row is kept."""

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, and a table for the losses."""
        super().setup(make_net, train, epochs)
        self.row_losses = no_losses(train.n)

    def rows_now(self) -> dict[str, Tensor]:
        """Losses, since large ones are a sign of wrong labels."""
        return {"loss": self.row_losses.values}

    def look(self, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
        """Logits (b, c) of each net, and its cross entropy with the observed labels (b,)."""
        logits = [net(batch.x) for net in self.net]
        return logits, [cross_entropy(some, batch.y) for some in logits]

    def disagree(self, logits: list[Tensor]) -> Tensor:
        """Rows of all processes for which the nets prediction different classes (all b,)."""
        first, second = (some.argmax(1) for some in logits)
        return self.all_gather(first != second)


class InTurns(TwoNets):
    """Each net learns in passes of its own, which have its tag and step its optimizer."""

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """One for each net."""
        return {tag: make(net.parameters()) for tag, net in zip(TAGS, self.net, strict=True)}
