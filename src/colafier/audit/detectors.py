"""Baselines for finding wrong labels, by cleanlab and from papers; each gives a label quality.

All take some evidence about the rows, and the observed labels (-1: none). The quality is in [0, 1]
and low where the label is suspicious. It is 1 for a row without a label or without evidence.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from colafier._optional import required
from colafier.core.lid import CHUNK_NUMBERS

LARGEST_MARGIN = 1e30
SMALLEST_VOTE = 1e-12


def confident_learning(probabilities: Tensor, observed: Tensor) -> Tensor:
    """Confident learning by cleanlab (Northcutt et al., JAIR 2021), quality (n,).

    The rows below one half are exactly those that its filter would prune. On either side of one
    half, rows are ranked by the probability of the observed label.

    Args:
        probabilities: P(class | row) (n, c), of a classifier that was not trained on the row's
            label.
        observed: Observed labels (n,).
    """
    find_label_issues = required("cleanlab.filter", "bench").find_label_issues
    valid = probabilities.isfinite().all(1) & (probabilities.sum(1) > 0)  # (n,)
    rows = ((observed >= 0) & valid.to(observed.device)).nonzero()[:, 0]  # (m,)
    quality = torch.ones(len(observed))
    if len(rows) == 0:
        return quality
    p, labels = probabilities[rows].double().cpu(), observed[rows].cpu()  # (m, c), (m,)
    p = p / p.sum(1, keepdim=True)
    pruned = find_label_issues(labels.numpy(), p.numpy(), n_jobs=1)  # (m,)
    confidence = p.gather(1, labels[:, None])[:, 0]  # (m,)
    quality[rows] = ((confidence + ~torch.from_numpy(pruned)) / 2).float()
    return quality


def small_loss(losses: Tensor, observed: Tensor) -> Tensor:
    """Labels with a small loss are right (Han et al., Co-teaching, 2018), quality (n,).

    The quality is the share of labeled rows with a larger loss; ties count half. So the rows whose
    quality is below some noise rate are those that small-loss selection drops at this rate.

    Args:
        losses: Losses of the observed labels (n,), any loss; NaN for rows that have none.
        observed: Observed labels (n,).
    """
    rows = ((observed >= 0) & ~losses.isnan()).nonzero()[:, 0]  # (m,)
    values = losses[rows].double().contiguous()  # (m,)
    ordered = values.sort().values  # (m,)
    smaller = torch.searchsorted(ordered, values)  # (m,)
    not_larger = torch.searchsorted(ordered, values, right=True)  # (m,)
    rank = (smaller + not_larger) / (2 * max(len(rows), 1))  # (m,)
    return torch.ones(len(observed)).index_put((rows.cpu(),), (1 - rank).float().cpu())


def margin(logits: Tensor, observed: Tensor) -> Tensor:
    """The observed label's logit minus the largest other logit (n,); 0 without a label."""
    known = observed.clamp(min=0)[:, None]  # (n, 1)
    others = logits.scatter(1, known, -torch.inf).max(1).values  # (n,)
    return torch.where(observed >= 0, logits.gather(1, known)[:, 0] - others, 0.0)


def mean_margin(margins: Tensor, observed: Tensor) -> Tensor:
    """Labels with a large mean margin are right (Pleiss et al., AUM, 2020), quality (n,).

    One half means that the observed label was on average level with the best other class.

    Args:
        margins: Mean over the epochs of each row's `margin` (n,), from a running sum; NaN for rows
            that have none.
        observed: Observed labels (n,).

    Note: The paper gets its threshold from rows that are moved to an extra class on purpose. Only
        the ranking is implemented here.
    """
    finite = margins.float().clamp(-LARGEST_MARGIN, LARGEST_MARGIN)  # (n,)
    quality = (1 + F.softsign(finite)) / 2  # (n,) a sigmoid would make all large margins equal
    return torch.where((observed >= 0) & ~margins.isnan(), quality, 1.0).cpu()


def knn_voting(features: Tensor, observed: Tensor, neighbors: int = 10) -> Tensor:
    """Neighbors vote on a row's label, as in SimiFeat (Zhu et al., ICML 2022), quality (n,).

    The nearest labeled rows vote for their classes, weighted by cosine similarity. The votes are
    scaled to unit length, and the quality is that of the observed label. The row itself votes too,
    at a distance extrapolated from its two nearest neighbors, so that it does not outvote them.

    Args:
        features: Vectors that were not trained on these labels (n, d).
        observed: Observed labels (n,).
        neighbors: Number of voters, including the row itself, k.

    Note: SimiFeat repeats the vote on augmented images. Features are fixed here, so there is one
        vote. Only the ranking is implemented, without the thresholds for each class. The weight of
        a vote is clamped to 0 to 1, so rows with negative similarity do not count.
    """
    if neighbors < 2:
        raise ValueError(f"neighbors must be at least 2, not {neighbors}")
    rows = (observed >= 0).nonzero()[:, 0]  # (m,)
    quality = torch.ones(len(observed))
    others = min(neighbors - 1, len(rows) - 1)
    if others < 1:
        return quality
    z = F.normalize(features[rows].float().nan_to_num(0, 0, 0), dim=1)  # (m, d)
    labels = observed[rows]  # (m,)
    num_classes = int(labels.max()) + 1
    chunk = max(1, CHUNK_NUMBERS // len(rows))
    for place in torch.split(torch.arange(len(rows), device=z.device), chunk):
        votes = _votes(z, labels, place, others, num_classes)  # (chunk, c)
        of_observed = F.normalize(votes, dim=1).gather(1, labels[place][:, None])[:, 0]  # (chunk,)
        any_vote = votes.sum(1) > SMALLEST_VOTE
        quality[rows[place].cpu()] = torch.where(any_vote, of_observed, 1.0).clamp(0, 1).cpu()
    return quality


def _votes(z: Tensor, labels: Tensor, place: Tensor, others: int, num_classes: int) -> Tensor:
    """Votes for each class on the rows at these places (chunk, c)."""
    similarity = z[place] @ z.T  # (chunk, m)
    similarity[torch.arange(len(place), device=z.device), place] = -torch.inf  # without itself
    nearest = similarity.topk(others, dim=1)  # (chunk, others), the most similar first
    # the row itself at distance 2 d_1 - d_2, where d = 1 - similarity
    itself = 2 * nearest.values[:, :1] - nearest.values[:, min(1, others - 1), None]  # (chunk, 1)
    votes = torch.cat([itself, nearest.values], 1).clamp(0, 1)  # (chunk, 1 + others)
    voters = torch.cat([place[:, None], nearest.indices], 1)  # (chunk, 1 + others)
    counts = torch.zeros(len(place), num_classes, device=z.device)
    return counts.scatter_add(1, labels[voters], votes)
