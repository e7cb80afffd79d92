"""Mixing of pairs of rows: CutMix for images, Mixup for vectors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Mixed:
    """A mixed batch: row i keeps the share `keep` of itself, the rest is row `partner[i]`."""

    x: Tensor  # (b, ...)
    partner: Tensor  # (b,)
    keep: float  # lambda


def mix(x: Tensor, alpha: float) -> Mixed:
    """CutMix for images, Mixup for vectors, with one lambda ~ Beta(alpha, alpha) for the batch."""
    return cutmix(x, alpha) if x.dim() == 4 else mixup(x, alpha)


def cutmix(x: Tensor, alpha: float) -> Mixed:
    """A rectangle of each image comes from its partner, Eq. 3.21.

    Lambda is what is left of the row's own area after the rectangle was clipped at the border.

    Note: The paper has alpha 1, the authors' code 5, which makes lambda vary less; `mix_alpha`
        chooses.
    """
    height, width = x.shape[2:]
    side = (1 - _beta(alpha)) ** 0.5
    half_height, half_width = int(height * side) // 2, int(width * side) // 2
    center_y, center_x = int(torch.randint(height, ())), int(torch.randint(width, ()))
    top, bottom = max(center_y - half_height, 0), min(center_y + half_height, height)
    left, right = max(center_x - half_width, 0), min(center_x + half_width, width)
    partner = torch.randperm(len(x)).to(x.device)  # (b,)
    mixed = x.clone()
    mixed[:, :, top:bottom, left:right] = x[partner, :, top:bottom, left:right]
    keep = 1 - (bottom - top) * (right - left) / (height * width)
    return Mixed(mixed, partner, keep)


def mixup(x: Tensor, alpha: float) -> Mixed:
    """Each row is a convex mix of itself and its partner; the larger share is its own.

    Note: Folding lambda to at least one half keeps the row's own weight meaningful for the loss,
        which is weighted by the row's own noisy weight (CutMix's clipped boxes mostly do so by
        themselves).
    """
    keep = _beta(alpha)
    keep = max(keep, 1 - keep)
    partner = torch.randperm(len(x)).to(x.device)  # (b,)
    return Mixed(keep * x + (1 - keep) * x[partner], partner, keep)


def mixed_labels(labels: Tensor, mixed: Mixed, num_classes: int) -> Tensor:
    """The soft labels (b, c) of a mixed batch, Eq. 3.22."""
    own = torch.nn.functional.one_hot(labels, num_classes).float()
    return mixed.keep * own + (1 - mixed.keep) * own[mixed.partner]


def drawn_views(
    views: Sequence[Tensor], weight: Tensor, share: float = 1.0
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Groups of views to mix, each with its row positions and how much a drawn row counts.

    With the whole share that is every view of every row, view by view, each counting 1. With
    less, one group of so many views is drawn by weight, and the counts make the weighted sum come
    out the same on average: the work goes to rows whose weight is large.

    Args:
        views: Views of the rows (b, ...).
        weight: Weight that the mixed loss of each row will get (b,).
        share: Share of all views that is mixed.
    """
    b = len(weight)
    if share >= 1:
        for view in views:
            yield view, torch.arange(b, device=weight.device), torch.ones_like(weight)
        return
    total = weight.sum()
    if total <= 0:
        return
    chances = weight.repeat(len(views))  # (views x b,)
    count = max(2, round(share * len(chances)))
    drawn = torch.multinomial(chances, count, replacement=True)  # (count,)
    rows = drawn % b
    yield torch.cat(list(views))[drawn], rows, len(views) * total / (count * weight[rows])


def _beta(alpha: float) -> float:
    return float(torch.distributions.Beta(float(alpha), float(alpha)).sample())
