"""CoLafier's loss terms. Each takes logits of all views; the result is the mean over the rows."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from colafier.core.functional import cross_entropy, gce

RowLoss = Callable[[Tensor, Tensor], Tensor]
CONSISTENCY_ON = ("logits", "probabilities")


def clean(
    weight: Tensor,
    views: Sequence[Tensor],
    labels: Tensor,
    other_views: Sequence[Tensor] = (),
    other_weight: float = 0.5,
) -> Tensor:
    """Weighted cross entropy over the views, Eq. 3.16-3.17.

    Args:
        weight: Clean weight w_c of each row (b,).
        views: Logits of each view (b, c), judged with the label where LID-dis gave them.
        labels: Labels now (b,).
        other_views: For LID-dis, logits of each view judged with the random other label.
        other_weight: lambda*.
    """
    return _weighted(cross_entropy, weight, views, labels, other_views, other_weight)


def hard(
    weight: Tensor,
    views: Sequence[Tensor],
    labels: Tensor,
    other_views: Sequence[Tensor] = (),
    other_weight: float = 0.5,
) -> Tensor:
    """Weighted generalized cross entropy over the views, Eq. 3.19-3.20; arguments as in `clean`."""
    return _weighted(gce, weight, views, labels, other_views, other_weight)


def soft(views: Sequence[Tensor], targets: Tensor) -> Tensor:
    """Cross entropy over the views with soft labels (b, c); ours, for the end of the training."""
    return sum((cross_entropy(view, targets) for view in views), start=torch.zeros(())).mean()


def mixed(logits: Tensor, labels: Tensor, partner_labels: Tensor, keep: float) -> Tensor:
    """Cross entropy of mixed rows against both labels (b,), one view's summand of Eq. 3.23-3.24."""
    own, other = cross_entropy(logits, labels), cross_entropy(logits, partner_labels)
    return keep * own + (1 - keep) * other


def consistency(
    views: Sequence[Tensor], other_views: Sequence[Tensor], on: str = "logits"
) -> Tensor:
    """How far a random other label turns LID-dis's prediction (b,), Eq. 3.25.

    Note: The paper takes the cosine of predictions, the authors' code that of logits; the argument
        `on`, which is `consistency_on` in the config, chooses.
    """
    if on not in CONSISTENCY_ON:
        raise ValueError(f"consistency is on one of {', '.join(CONSISTENCY_ON)}, not {on!r}")
    total = torch.zeros(len(views[0]), device=views[0].device)
    for view, other_view in zip(views, other_views, strict=True):
        if on == "probabilities":
            view, other_view = view.softmax(1), other_view.softmax(1)
        total = total + 1 - F.cosine_similarity(view, other_view, dim=1)
    return total


def noisy(
    weight: Tensor, mixed_rows: Tensor, consistency_rows: Tensor | None = None, factor: float = 10.0
) -> Tensor:
    """Weighted mixed loss, for LID-dis with the consistency loss, Eq. 3.26-3.27.

    Args:
        weight: Noisy weight w_n of each row (b,).
        mixed_rows: `mixed`, summed over the views (b,).
        consistency_rows: `consistency` (b,), for LID-dis.
        factor: lambda_cons.
    """
    if consistency_rows is not None:
        mixed_rows = mixed_rows + factor * consistency_rows
    return (weight * mixed_rows).mean()


def _weighted(
    row_loss: RowLoss,
    weight: Tensor,
    views: Sequence[Tensor],
    labels: Tensor,
    other_views: Sequence[Tensor],
    other_weight: float,
) -> Tensor:
    rows = torch.zeros_like(weight)
    for view in views:
        rows = rows + row_loss(view, labels)
    for view in other_views:
        rows = rows + other_weight * row_loss(view, labels)
    return (weight * rows).mean()
