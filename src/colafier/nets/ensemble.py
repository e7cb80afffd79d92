"""An ensemble of classifiers, which averages their logits."""

from typing import cast

import torch
from torch import Tensor, nn


class Ensemble(nn.ModuleList):
    """Gives the mean logits (b, c) of its classifiers; `ensemble[i]` is one of them."""

    def forward(self, x: Tensor) -> Tensor:
        """Mean logits (b, c)."""
        return torch.stack([cast(Tensor, net(x)) for net in self]).mean(0)
