"""Detection baselines: what other tools make of the same rows, as a quality of each label.

All take evidence about the rows and the observed labels (-1: none), and give a quality in [0, 1]
that is low where the label is suspicious. It is 1 where there is no label or no evidence.
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

    Below one half is exactly what its filter would prune; on either side of it, rows are ranked by
    the probability of the observed label.

    Args:
        probabilities: P(class | row) (n, c), of a classifier that was not taught the row's label.
        observed: Observed labels (n,).
    """
    find_label_issues = required("cleanlab.filter", "bench").find_label_issues
    told = probabilities.isfinite().all(1) & (probabilities.sum(1) > 0)  # (n,)
    rows = ((observed >= 0) & told.to(observed.device)).nonzero()[:, 0]  # (m,)
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
    """Rows with a small loss are right (Han et al., Co-teaching, 2018), quality (n,).

    It is the share of labeled rows that have a larger loss, where equals count half: below a noise
    rate are the rows that small-loss selection would drop at this rate.

    Args:
        losses: Of the observed labels (n,), any loss; not a number for rows that have none.
        observed: Observed labels (n,).
    """
    rows = ((observed >= 0) & ~losses.isnan()).nonzero()[:, 0]  # (m,)
    own = losses[rows].double().contiguous()  # (m,)
    ordered = own.sort().values  # (m,)
    smaller = torch.searchsorted(ordered, own)  # (m,)
    not_larger = torch.searchsorted(ordered, own, right=True)  # (m,)
    rank = (smaller + not_larger) / (2 * max(len(rows), 1))  # (m,)
    return torch.ones(len(observed)).index_put((rows.cpu(),), (1 - rank).float().cpu())


def margin(logits: Tensor, observed: Tensor) -> Tensor:
    """How far the observed label's logit is above the largest other one (n,); 0 without a label."""
    known = observed.clamp(min=0)[:, None]  # (n, 1)
    others = logits.scatter(1, known, -torch.inf).max(1).values  # (n,)
    return torch.where(observed >= 0, logits.gather(1, known)[:, 0] - others, 0.0)


def mean_margin(margins: Tensor, observed: Tensor) -> Tensor:
    """Rows ahead of the other classes all along are right (Pleiss et al., AUM, 2020), quality (n,).

    One half is where the observed label was on average level with the best other one.

    Args:
        margins: Mean over the epochs of each row's `margin` (n,), from a running sum; not a number
            for rows that have none.
        observed: Observed labels (n,).

    Note: The paper takes its threshold from rows that are given a class of their own on purpose;
        only the ranking is here.
    """
    finite = margins.float().clamp(-LARGEST_MARGIN, LARGEST_MARGIN)  # (n,)
    quality = (1 + F.softsign(finite)) / 2  # (n,) sigmoid would make large margins all equal
    return torch.where((observed >= 0) & ~margins.isnan(), quality, 1.0).cpu()


def knn_voting(features: Tensor, observed: Tensor, neighbors: int = 10) -> Tensor:
    """Neighbors vote on a row's label, as in SimiFeat (Zhu et al., ICML 2022), quality (n,).

    The votes of the nearest labeled rows for each class, by cosine similarity and brought to unit
    length; the quality is the observed label's. The row itself has a vote too, as if it were as far
    away as the nearest two others suggest, so that it does not outvote them.

    Args:
        features: Vectors that were not trained on these labels (n, d).
        observed: Observed labels (n,).
        neighbors: Number of voters with the row itself, k.

    Note: SimiFeat repeats the vote on augmented images. Features are fixed here, so it is held
        once; and only the ranking is here, without its thresholds for each class. A vote counts
        from 0 to 1: rows that point the other way have none.
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
        heard = votes.sum(1) > SMALLEST_VOTE
        quality[rows[place].cpu()] = torch.where(heard, of_observed, 1.0).clamp(0, 1).cpu()
    return quality


def _votes(z: Tensor, labels: Tensor, place: Tensor, others: int, num_classes: int) -> Tensor:
    """Votes for each class on the rows at these places (chunk, c)."""
    similarity = z[place] @ z.T  # (chunk, m)
    similarity[torch.arange(len(place), device=z.device), place] = -torch.inf  # not yet itself
    nearest = similarity.topk(others, dim=1)  # (chunk, others), the most similar first
    # with distances 2 d_1 - d_2, where d = 1 - similarity
    itself = 2 * nearest.values[:, :1] - nearest.values[:, min(1, others - 1), None]  # (chunk, 1)
    votes = torch.cat([itself, nearest.values], 1).clamp(0, 1)  # (chunk, 1 + others)
    voters = torch.cat([place[:, None], nearest.indices], 1)  # (chunk, 1 + others)
    counts = torch.zeros(len(place), num_classes, device=z.device)
    return counts.scatter_add(1, labels[voters], votes)
