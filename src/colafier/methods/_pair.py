"""Two nets that are deployed together."""

from typing import cast

import torch
from torch import Tensor, nn

# Tags of the passes in which the first and the second net learn; figures of "train" have no prefix
TAGS = ("train", "second")


class Pair(nn.ModuleList):
    """Two nets; called as one classifier it gives their mean logits (b, c)."""

    def forward(self, x: Tensor) -> Tensor:
        """Mean logits (b, c)."""
        return torch.stack([cast(Tensor, net(x)) for net in self]).mean(0)
