"""The epoch in which a net did best on the observed labels of held-out rows."""

import copy
from math import inf

import torch
from torch import Tensor, nn


def accuracy(p: Tensor, observed: Tensor) -> float:
    """How often the observed label is the most probable class; 0 if there are no rows."""
    return float((p.argmax(1) == observed).float().mean()) if len(p) else 0.0


def likelihood(p: Tensor, observed: Tensor) -> float:
    """Mean log probability of the observed labels; 0 if there are no rows."""
    of_observed = p.gather(1, observed[:, None]).clamp(min=1e-7)  # (m, 1)
    return float(of_observed.log().mean()) if len(p) else 0.0


class BestNet(nn.Module):
    """A copy of a net from the epoch with the best score; if all scores are equal, the last one."""

    score: Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = copy.deepcopy(net).requires_grad_(False)
        self.register_buffer("score", torch.tensor(-inf))

    def offer(self, net: nn.Module, score: float) -> None:
        """Keep this state of the net if none before it scored better."""
        if score >= float(self.score):
            self.net.load_state_dict(net.state_dict())
            self.score.fill_(score)

    def restore(self, net: nn.Module) -> None:
        """Set the net back to the state that was kept, and start comparing from scratch."""
        net.load_state_dict(self.net.state_dict())
        self.score.fill_(-inf)
