"""The loss of every class, not only of the observed label, for peer terms and sample sieves."""

from torch import Tensor


def class_losses(logits: Tensor, smallest: float) -> Tensor:
    """-ln(p + smallest) of every class (b, c); it is bounded, so a loss may subtract it."""
    return -(logits.softmax(1) + smallest).log()


def label_shares(labels: Tensor, num_classes: int) -> Tensor:
    """Share of each class among the labels (c,); all zero if there are no labels."""
    counts = labels.bincount(minlength=num_classes).float()  # (c,)
    return counts / counts.sum().clamp(min=1)
