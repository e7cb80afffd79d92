"""Losses of the field, one value per row: tensors in, tensors out."""

import torch
from torch import Tensor
from torch.nn import functional as F


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross entropy of each row (b,), for class numbers (b,) or probabilities (b, c)."""
    return F.cross_entropy(logits, target, reduction="none")


def gce(logits: Tensor, target: Tensor, q: float = 0.7) -> Tensor:
    """Generalized cross entropy (1 - p^q) / q of each row (b,), Eq. 3.18.

    Computed as exp(q ln p): p itself may underflow to 0, where p^q has an infinite slope.
    """
    per_class = -torch.expm1(q * F.log_softmax(logits, 1)) / q  # (b, c)
    if target.dim() == 2:
        return (target * per_class).sum(1)
    return per_class.gather(1, target[:, None])[:, 0]


def draw_wrong(labels: Tensor, num_classes: int) -> Tensor:
    """For each row another class than its label, uniformly (b,), from torch's own generator."""
    step = torch.randint(1, num_classes, labels.shape, device=labels.device)
    return (labels + step) % num_classes
