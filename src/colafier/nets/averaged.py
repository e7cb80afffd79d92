"""An averaged copy of a network."""

import copy

import torch
from torch import Tensor, nn


class Averaged(nn.Module):
    """Exponential moving average of a network's parameters and statistics.

    Args:
        net: The network, which is copied. Calls go to the copy.
    """

    steps: Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = copy.deepcopy(net).requires_grad_(False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        """The output of the averaged copy."""
        out: Tensor = self.net(x)
        return out

    @torch.no_grad()
    def follow(self, net: nn.Module, decay: float) -> None:
        """Move toward the network; the first steps count more, so that the start is forgotten.

        Args:
            net: The network.
            decay: Weight of the average so far; less in the first steps.
        """
        self.steps += 1
        decay = min(decay, 1 - 1 / (int(self.steps) + 1))
        ours: list[Tensor] = [*self.net.parameters(), *self.net.buffers()]
        for mine, theirs in zip(ours, [*net.parameters(), *net.buffers()], strict=True):
            if mine.is_floating_point():
                mine.lerp_(theirs, 1 - decay)
            else:
                mine.copy_(theirs)
