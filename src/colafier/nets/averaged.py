"""An exponential moving average of a network (EMA)."""

import copy

import torch
from torch import Tensor, nn


class Averaged(nn.Module):
    """Exponential moving average of a network's parameters and buffers.

    Args:
        net: The network to copy; the copy is what `forward` uses.
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
        """Move the average toward the network.

        Args:
            net: The network.
            decay: Weight of the average so far. It is smaller in the first steps, so that the
                initial parameters are soon forgotten.
        """
        self.steps += 1
        decay = min(decay, 1 - 1 / (int(self.steps) + 1))
        ours: list[Tensor] = [*self.net.parameters(), *self.net.buffers()]
        for mine, theirs in zip(ours, [*net.parameters(), *net.buffers()], strict=True):
            if mine.is_floating_point():
                mine.lerp_(theirs, 1 - decay)
            else:
                mine.copy_(theirs)
