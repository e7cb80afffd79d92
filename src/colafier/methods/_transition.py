"""The transition matrix T of class-dependent noise, T[i, j] = P(observed j | true i).

It is estimated from anchor rows, which surely belong to their class. What a net trained on the
observed labels predicts for an anchor row shows how the labels of that class go wrong.
"""

from math import ceil

import torch
from torch import Tensor

SMALLEST = 1e-7  # probability of an observed label that T takes to be impossible


def anchor_transition(p: Tensor, quantile: float = 0.97) -> Tensor:
    """T (c, c): row i is the prediction for the anchor row of class i.

    Args:
        p: Probabilities of all rows, from a net trained on the observed labels (n, c).
        quantile: The anchor is the most probable row below this quantile of its class, since the
            most probable rows of all may be outliers.

    Note: A class with fewer rows than lie above the quantile (every class, if there are a hundred)
        takes its most probable row, as the authors do for CIFAR-100. A class that the net never
        predicts has no anchor. Its row of T is that of clean labels; the authors would take the
        row of another class, and the two could not be told apart. Their code also sets the
        predictions above the quantile to 0, and later rows of T are computed from these.
    """
    n, c = p.shape
    limit = p.kthvalue(ceil(quantile * (n - 1)) + 1, dim=0).values  # (c,)
    below = p.where(p < limit, 0).argmax(0)  # (c,) row numbers
    top = p.argmax(0)  # (c,)
    classes = torch.arange(c, device=p.device)
    prediction = p.argmax(1)  # (n,)
    anchor = torch.where(prediction[below] == classes, below, top)  # (c,)
    there = prediction[anchor] == classes  # (c,)
    rows = torch.where(there[:, None], p[anchor], torch.eye(c).to(p))
    return rows / rows.sum(1, keepdim=True)


def forward_loss(logits: Tensor, observed: Tensor, transition: Tensor) -> Tensor:
    """Negative log likelihood of the observed labels (b,), after multiplying predictions by T."""
    chances = transition.clamp(min=SMALLEST).log().T[observed]  # (b, c) by true class
    return -(logits.log_softmax(1) + chances).logsumexp(1)
