"""LID and the disagreement of the subnets, in both views, decide which labels move and to what."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colafier.core.lid import lid
from colafier.core.weights import position


def difference(gen: Tensor, dis: Tensor) -> Tensor:
    """How far the subnets' probabilities differ, from 0 to 2 (b,), Eq. 3.30-3.31."""
    return (gen - dis).abs().sum(1)


def union_scores(
    z_label: Tensor,
    z_prediction: Tensor,
    k: int | Tensor = 20,
    k_prediction: int | Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """LID of the label-rows and of the prediction-rows among both together, Eq. 3.5-3.8.

    Args:
        z_label: z of each row with its label (b, d).
        z_prediction: z of each row with LID-gen's prediction (b, d).
        k: Number of neighbors for label-rows.
        k_prediction: The same for prediction-rows; `k` by default.

    Note: The paper's notation gives LID-dis the probabilities of LID-gen, the authors' code gives
        it the class; `soft_prediction` chooses. With the class, a row whose prediction is its label
        is one point twice. Each is then the other's neighbor at distance 0, its LID is very low,
        and no label can change while the upper quantile lies inside that low group.
    """
    b = len(z_label)
    counts = (k, k if k_prediction is None else k_prediction)
    k_both = torch.cat([torch.as_tensor(some, device=z_label.device).expand(b) for some in counts])
    both = torch.cat([z_label, z_prediction])  # (2b, d)
    # One point twice has one score
    twice = (z_label == z_prediction).all(1) & (k_both[:b] == k_both[b:])  # (b,)
    differ = b + (~twice).nonzero()[:, 0]  # (m,)
    rows = torch.cat([torch.arange(b, device=both.device), differ])  # (b + m,)
    scores = lid(both[rows], k_both[rows], both, rows)  # (b + m,)
    of_labels = scores[:b]
    return of_labels, of_labels.index_put((differ - b,), scores[b:])


def reliability(place: Tensor, apart: Tensor) -> Tensor:
    """t: position of a LID score, lowered by the subnets' difference, in [0, 1], Eq. 3.36-3.37."""
    return (place * (2 - apart) / 2).clamp(0, 1)


@dataclass(frozen=True)
class Candidate:
    """One view's case for moving the labels of a batch."""

    prediction: Tensor  # (b,) LID-gen's class
    label_reliability: Tensor  # (b,) t of the label
    prediction_reliability: Tensor  # (b,) t of the prediction


def candidate(
    scores: tuple[Tensor, Tensor],
    differences: tuple[Tensor, Tensor],
    prediction: Tensor,
    low: float,
    high: float,
) -> Candidate:
    """Reliabilities of label and prediction, from the union scores of one view.

    Args:
        scores: LID of the label-rows and of the prediction-rows, two of (b,).
        differences: Of the subnets, with the label and with the prediction, two of (b,).
        prediction: LID-gen's class (b,).
        low: Level of the lower quantile.
        high: Level of the upper quantile.
    """
    among = torch.cat(scores)
    of_label, of_prediction = (
        reliability(position(score, among, low, high), apart)
        for score, apart in zip(scores, differences, strict=True)
    )
    return Candidate(prediction, of_label, of_prediction)


def decide(views: Sequence[Candidate], labels: Tensor, threshold: float = 0.1) -> Tensor:
    """The labels for the next epoch (b,), Eq. 3.38-3.40.

    A label moves to the prediction if in every view the prediction is more reliable than the label
    and than the threshold, and if all views predict the same class.
    """
    moves = torch.ones_like(labels, dtype=torch.bool)
    for view in views:
        moves &= view.prediction_reliability > view.label_reliability
        moves &= view.prediction_reliability > threshold
        moves &= view.prediction == views[0].prediction
    return torch.where(moves, views[0].prediction, labels)
