"""Small classifiers of features, trained on soft targets with a rate that falls to zero."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LR, WEIGHT_DECAY = 1e-3, 1e-2
DROPPED_INPUTS, DROPPED_HIDDEN = 0.2, 0.5
WIDTH = 256

Loss = Callable[[Tensor, Tensor], Tensor]


class Head(nn.Module):
    """A perceptron with one hidden layer; inputs and hidden units are dropped in training."""

    def __init__(self, inputs: int, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, WIDTH)
        self.last = nn.Linear(WIDTH, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (b, c)."""
        weight = self.first.weight
        if self.training:
            # one mask (d,) for the whole batch, which is cheaper; scaled to keep the sum
            kept = torch.rand(x.shape[1]) >= DROPPED_INPUTS
            weight = weight * (kept / (1 - DROPPED_INPUTS))
        hidden = F.linear(x, weight, self.first.bias).relu()  # (b, h)
        logits: Tensor = self.last(F.dropout(hidden, DROPPED_HIDDEN, self.training))
        return logits


class SoftLabelTrainer:
    """Trains a module on probabilities as targets, with AdamW.

    Args:
        module: Maps vectors (b, d) to logits (b, c).
        lr: The rate at the start.
        weight_decay: Of AdamW.
    """

    def __init__(
        self, module: nn.Module, lr: float = LR, weight_decay: float = WEIGHT_DECAY
    ) -> None:
        self.module = module
        self.lr = lr
        self.optimizer = torch.optim.AdamW(module.parameters(), lr=lr, weight_decay=weight_decay)

    def step(self, x: Tensor, targets: Tensor, done: float, loss: Loss = F.cross_entropy) -> None:
        """One step on rows (b, d) with targets (b, c); `done` is the finished share of training."""
        self.module.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * (1 - done)
        value = loss(self.module(x), targets)
        self.optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Probabilities (b, c)."""
        p: Tensor = self.module.eval()(x).softmax(1)
        return p
