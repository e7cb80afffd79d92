"""From LID scores of the views to the clean, hard and noisy weight of each row."""

from collections.abc import Sequence

import torch
from torch import Tensor

from colafier.core.lid import lid

SMALLEST_RANGE = 1e-12
LARGEST_SCORE = 1e20  # stands for infinity: divided by the smallest range it is finite


def view_scores(
    views: Sequence[Tensor], k: int | Tensor = 20, joined: bool = False
) -> list[Tensor]:
    """LID of the label-aware representations, one score for each row and view, Eq. 3.3-3.4.

    Args:
        views: z of each view (b, d).
        k: Number of neighbors, one number or one for each row.
        joined: Whether neighbors come from all views together.

    Note: The paper looks for neighbors inside each view, the authors' code in both views joined,
        where each row has its own other view as a very near neighbor; `joined_views` chooses.
    """
    if not joined:
        return [lid(z, k) for z in views]
    if isinstance(k, Tensor):
        k = k.repeat(len(views))
    return list(lid(torch.cat(list(views)), k).chunk(len(views)))


def position(scores: Tensor, among: Tensor, low: float, high: float) -> Tensor:
    """Place scores between two quantiles, low 1 and high 0, Eq. 3.9-3.11, 3.32-3.35.

    Args:
        scores: Scores to place (b,).
        among: Scores whose quantiles are taken (m,).
        low: Level of the lower quantile.
        high: Level of the upper quantile.

    Returns:
        Positions (b,), not clamped. They are finite also where both quantiles are equal or scores
        are not finite; a NaN counts as the worst score.

    Note: The upper levels rise to 1. The paper lets them start at .05 for the weights and at .5 for
        the update, the authors' code the other way round; `weight_quantile` and `update_quantile`
        choose. With .05 for the weights nearly all rows are noisy right after warm-up.
    """
    scores, among = _finite(scores), _finite(among)
    levels = torch.tensor([low, high], device=among.device, dtype=among.dtype)
    q_low, q_high = torch.quantile(among, levels)
    place = (q_high - scores) / (q_high - q_low).clamp(min=SMALLEST_RANGE)
    return torch.where(scores <= q_low, place.clamp(min=1), place)


def split(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Clean, hard and noisy weight (b,) from both views' positions; sum 1, Eq. 3.12-3.15.

    Note: The supplement's proof writes the noisy weight as 1 - w_2 for w_1 > w_2; the formula of
        the main text, which is 1 - w_1 then, is the one that sums to 1.
    """
    first, second = first.clamp(0, 1), second.clamp(0, 1)
    clean = torch.minimum(first, second)
    hard = (first - second).abs()
    noisy = torch.minimum(1 - first, 1 - second)
    return clean, hard, noisy


def _finite(scores: Tensor) -> Tensor:
    """One infinite or NaN score would make a quantile NaN, and so every weight of the batch."""
    return scores.nan_to_num(nan=LARGEST_SCORE).clamp(-LARGEST_SCORE, LARGEST_SCORE)
