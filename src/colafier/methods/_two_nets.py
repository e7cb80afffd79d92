"""What methods with two nets share."""

import torch
from torch import Tensor, nn

from colafier.core.functional import cross_entropy
from colafier.methods._row_losses import WithRowLosses
from colafier.methods.contract import Batch, MakeNet, MakeOptimizer, Method, TrainSet
from colafier.nets.ensemble import Ensemble

# Tags of the passes of the first and of the second net; figures of "train" have no prefix
TAGS = ("train", "second")


class TwoNets(Method):
    """Two nets of the same kind with different initial weights.

    Note: The papers score each net alone, so `members` returns both. The mean is deployed.
    """

    num_nets = 2

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets."""
        self.net = Ensemble([make_net(), make_net()])

    def members(self) -> list[nn.Module]:
        """Each net alone."""
        return list(self.net)


class SideBySide(WithRowLosses, TwoNets):
    """Both nets train on the same batches; the last loss of each row is kept."""

    def logits_and_losses(self, batch: Batch) -> tuple[list[Tensor], list[Tensor]]:
        """Logits (b, c) of each net, and its cross entropy with the observed labels (b,)."""
        logits = [net(batch.x) for net in self.net]
        return logits, [cross_entropy(some, batch.y) for some in logits]

    def disagree(self, logits: list[Tensor]) -> Tensor:
        """Mask of the rows, of all processes, for which the predicted classes differ (all b,)."""
        first, second = (some.argmax(1) for some in logits)
        return self.all_gather(first != second)


class InTurns(TwoNets):
    """Each net trains in its own passes, which carry its tag and step its optimizer."""

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """One for each net."""
        return {tag: make(net.parameters()) for tag, net in zip(TAGS, self.net, strict=True)}


class FirstAndSecond(WithRowLosses):
    """A first net prepares a correction of the loss; a second net trains with it, from scratch."""

    num_nets = 2

    corrects: Tensor

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, and whether the correction is ready."""
        self.first = make_net()
        super().setup(make_net, train, epochs)
        self.register_buffer("corrects", torch.tensor(False))

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """One for each net."""
        return {"first": make(self.first.parameters()), "net": make(self.net.parameters())}

    def deployed(self) -> nn.Module:
        """The second net, or the first one until the correction is ready."""
        net: nn.Module = self.net if self.corrects else self.first
        return net
