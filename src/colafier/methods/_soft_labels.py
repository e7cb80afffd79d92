"""Labels that are probabilities: what they say about the rows."""

import torch
from torch import Tensor

from colafier.methods.contract import Purified


def purified(soft: Tensor, observed: Tensor) -> Purified:
    """The likeliest classes, and how much of each soft label is the observed class.

    Args:
        soft: Soft labels (n, c).
        observed: Observed labels (n,); -1, for none, stays.
    """
    quality = soft.gather(1, observed.clamp(min=0)[:, None])[:, 0]  # (n,)
    labels = torch.where(observed < 0, observed, soft.argmax(1))  # (n,)
    return Purified(labels, quality.clamp(0, 1))
