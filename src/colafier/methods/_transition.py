"""The matrix T of class-dependent noise, T[i, j] = P(given j | true i), from anchor rows.

An anchor row is one that surely belongs to its class: what a net trained on the observed labels
predicts for it is how labels of that class go wrong.
"""

from math import ceil

import torch
from torch import Tensor

SMALLEST = 1e-7  # probability of a observed label that is taken to be impossible


def anchor_transition(p: Tensor, quantile: float = 0.97) -> Tensor:
    """T (c, c): row i is what a net says of the anchor row of class i.

    Args:
        p: Probabilities of all rows, from a net that was trained on the observed labels (n, c).
        quantile: The anchor is the most probable row below this quantile of its class, since the
            very top may be outliers.

    Note: A class with fewer rows than are above the quantile (all classes, if there are a hundred)
        has its anchor at the very top, as the authors have it for CIFAR-100. A class that the net
        finds nowhere has no anchor; its row is that of clean labels, where the authors would take
        the row of another class, and then nothing tells the two apart. Their code also sets what
        is above the quantile to 0 in the predictions themselves, which later rows of T then read.
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
    """-ln of the probability of the observed labels (b,): the prediction, sent through T."""
    chances = transition.clamp(min=SMALLEST).log().T[observed]  # (b, c) given the true class
    return -(logits.log_softmax(1) + chances).logsumexp(1)
