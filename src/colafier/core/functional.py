"""Losses of the field, one value per row: tensors in, tensors out."""

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor
from torch.nn import functional as F

SMALLEST_MEAN = 1e-7  # of generalized_js: a class that neither label nor views have
SMALLEST_PROBABILITY = 1e-4  # of clamped: bounds early_learning at ln 1e-4


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


def generalized_js(views: Sequence[Tensor], target: Tensor, label_weight: float) -> Tensor:
    """Generalized Jensen-Shannon divergence of the label and the views' predictions, (b,).

    Near 0 where all views agree with the label, at most about 1. With one view, a small label
    weight makes it cross entropy, and a large one the mean absolute error.

    Args:
        views: Logits of each view (b, c).
        target: Class numbers (b,).
        label_weight: Weight of the label, pi_1, above 0 and below 1; the views share the rest.
    """
    share = (1 - label_weight) / len(views)
    log_p = torch.stack([F.log_softmax(view, 1) for view in views])  # (views, b, c)
    p = log_p.exp()  # (views, b, c)
    label = F.one_hot(target, p.shape[2])  # (b, c)
    mean = label_weight * label + share * p.sum(0)  # (b, c)
    log_mean = mean.clamp(min=SMALLEST_MEAN).log()  # (b, c)
    of_label = -log_mean.gather(1, target[:, None])[:, 0]  # (b,) KL of the label, ln 1 is 0
    of_views = (p * (log_p - log_mean)).sum(2).sum(0)  # (b,) KL of each view, summed
    scale = -(1 - label_weight) * log(1 - label_weight)
    return (label_weight * of_label + share * of_views) / scale


def clamped(logits: Tensor) -> Tensor:
    """Probabilities (b, c), none nearer to 0 or 1 than `SMALLEST_PROBABILITY`."""
    return logits.softmax(1).clamp(SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)


def early_learning(logits: Tensor, targets: Tensor) -> Tensor:
    """ELR's regularizer ln(1 - <t, p>) of each row (b,): lowest where p is as sure as t.

    Args:
        logits: Of the net (b, c).
        targets: Running mean of the net's predictions for these rows, t (b, c); gets no gradient.
    """
    agreement = (targets.detach() * clamped(logits)).sum(1)  # (b,)
    return (1 - agreement).log()


def draw_other(labels: Tensor, num_classes: int) -> Tensor:
    """For each row another class than its label, uniformly (b,), from torch's own generator."""
    step = torch.randint(1, num_classes, labels.shape, device=labels.device)
    return (labels + step) % num_classes
