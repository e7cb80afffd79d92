"""The result of methods whose labels are probabilities."""

import torch
from torch import Tensor

from colafier.methods.contract import Purified


def purified(soft: Tensor, observed: Tensor) -> Purified:
    """The most probable classes, and the probability of each observed label.

    Args:
        soft: Soft labels (n, c).
        observed: Observed labels (n,); a row without one (-1) gets none.
    """
    quality = soft.gather(1, observed.clamp(min=0)[:, None])[:, 0]  # (n,)
    labels = torch.where(observed < 0, observed, soft.argmax(1))  # (n,)
    return Purified(labels, quality.clamp(0, 1))
