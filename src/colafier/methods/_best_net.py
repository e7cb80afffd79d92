"""The epoch in which a net did best on the observed labels of rows that it did not learn from."""

import copy
from math import inf

import torch
from torch import Tensor, nn


def accuracy(p: Tensor, observed: Tensor) -> float:
    """How often the observed label is the most probable class; 0 without rows."""
    return float((p.argmax(1) == observed).float().mean()) if len(p) else 0.0


def likelihood(p: Tensor, observed: Tensor) -> float:
    """Mean logarithm of the observed label's probability; 0 without rows."""
    of_observed = p.gather(1, observed[:, None]).clamp(min=1e-7)  # (m, 1)
    return float(of_observed.log().mean()) if len(p) else 0.0


class BestNet(nn.Module):
    """A copy of a net as it was when held-out rows scored it best; the last one without such."""

    score: Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = copy.deepcopy(net).requires_grad_(False)
        self.register_buffer("score", torch.tensor(-inf))

    def offer(self, net: nn.Module, score: float) -> None:
        """Keep this state of the net if no other scored better."""
        if score >= float(self.score):
            self.net.load_state_dict(net.state_dict())
            self.score.fill_(score)

    def give_back(self, net: nn.Module) -> None:
        """Set the net to the state that was kept, and begin to compare anew."""
        net.load_state_dict(self.net.state_dict())
        self.score.fill_(-inf)
