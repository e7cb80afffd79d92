"""Local Intrinsic Dimensionality by maximum likelihood, in a batch or against a reference set."""

import numpy as np
import torch
from torch import Tensor

SMALLEST_DISTANCE = 1e-12  # duplicates: ln of it stays finite
SMALLEST_SPREAD = 1e-6  # equal distances: the score is large and positive, never infinite
# Squared distances below this share of the squared lengths are rounding in a matmul, in part
ROUNDING = {torch.float64: 1e-8, torch.float32: 1e-1}
FAR = 1e15  # where broken values are put: its square is still a float32
CHUNK_NUMBERS = 2**24  # bounds the memory of one chunk of rows against the whole reference set


def lid(
    z: Tensor,
    k: int | Tensor = 20,
    reference: Tensor | None = None,
    own: Tensor | None = None,
) -> Tensor:
    """LID of each row among its k nearest others, Eq. 3.2 (supplement 1.4, 1.5).

    Args:
        z: Rows to score (b, d).
        k: Number of neighbors, one number or one for each row (b,), at least 2. Where fewer rows
            are there, all are taken.
        reference: Rows to look for neighbors in (m, d); the batch itself by default.
        own: For each row its position in `reference`, which is not its own neighbor; -1 for none.

    Returns:
        One positive finite score for each row (b,), float32, without gradient. With fewer than two
        neighbors there is no dimension to estimate: every score is 1. A row with a NaN or an
        infinity in it gets the highest score and is nobody's near neighbor.

    Note: The paper divides by k although the k-th term is ln 1 = 0; so do we. Where the authors'
        code adds 1e-12 to the sum of logarithms, which flips its sign for equal distances, the sum
        is bounded away from zero here.
    """
    z = z.detach().float()
    if reference is None:
        reference, own = z, torch.arange(len(z), device=z.device)
    reference = reference.detach().float()  # (m, d)
    others = len(reference) - (1 if own is not None else 0)
    if len(z) == 0 or others < 2:
        return torch.ones(len(z), device=z.device)
    k_rows = torch.as_tensor(k, device=z.device).expand(len(z)).clamp(2, others)  # (b,)
    distances = _nearest_distances(z, reference, own, int(k_rows.max()))  # (b, k_max)
    log_distances = distances.clamp(min=SMALLEST_DISTANCE).log()
    radius = log_distances.gather(1, k_rows[:, None] - 1)  # (b, 1) ln r_max of each row's own k
    inside = torch.arange(distances.shape[1], device=z.device) < k_rows[:, None]  # (b, k_max)
    spread = ((radius - log_distances) * inside).sum(1)  # (b,) = -sum of ln(r_j / r_max)
    broken = ~z.isfinite().all(1)
    return k_rows / spread.masked_fill(broken, 0).clamp(min=SMALLEST_SPREAD)


def _nearest_distances(z: Tensor, reference: Tensor, own: Tensor | None, k: int) -> Tensor:
    """The k smallest Euclidean distances of each row, ascending (b, k)."""
    # Rows with a broken value are far from everything instead of poisoning their neighbors.
    z = z.nan_to_num(nan=FAR).clamp(-FAR, FAR)
    reference = reference.nan_to_num(nan=FAR).clamp(-FAR, FAR)
    if own is None:
        own = torch.full((len(z),), -1, device=z.device)
    chunk = max(1, CHUNK_NUMBERS // max(len(reference), k * z.shape[1]))
    parts = zip(torch.split(z, chunk), torch.split(own, chunk), strict=True)
    return torch.cat([_exact_nearest(part, reference, rows, k) for part, rows in parts])


def _exact_nearest(z: Tensor, reference: Tensor, own: Tensor, k: int) -> Tensor:
    """One matmul gives all distances; where its rounding would show, differences are taken."""
    # In float32 the matmul's error is larger than the distances inside a tight cluster.
    wide = torch.float32 if z.device.type == "mps" else torch.float64  # mps has no float64
    ours, others = z.to(wide), reference.to(wide)  # (b, d), (m, d)
    sizes = (ours * ours).sum(1, keepdim=True) + (others * others).sum(1)  # (b, m)
    squared = torch.addmm(sizes, ours, others.T, alpha=-2)  # (b, m)
    rows = (own >= 0).nonzero()[:, 0]
    squared[rows, own[rows]] = torch.inf
    close = (squared < ROUNDING[wide] * sizes).nonzero()  # (pairs, 2)
    for i, j in (some.T for some in torch.split(close, max(1, CHUNK_NUMBERS // z.shape[1]))):
        squared[i, j] = (z[i] - reference[j]).to(wide).square().sum(1)
    return _smallest(squared, k).clamp(min=0).sqrt().float()


def _smallest(values: Tensor, k: int) -> Tensor:
    """The k smallest of each row, ascending (b, k)."""
    if values.device.type != "cpu":
        return values.topk(k, largest=False).values
    # numpy's vectorized partition and sort take a quarter of the time of topk on a CPU
    chosen = np.partition(values.numpy(), k - 1, axis=1)[:, :k]
    return torch.from_numpy(np.sort(chosen, axis=1))


def neighbors(labels: Tensor, reference_labels: Tensor, fixed: int = 0) -> Tensor:
    """Number of neighbors of each row (b,): a fixed one, or by `reach` if that is 0."""
    return torch.full_like(labels, fixed) if fixed else reach(labels, reference_labels)


def reach(labels: Tensor, reference_labels: Tensor, factor: float = 1.25) -> Tensor:
    """The k that reaches just past the rows that share each row's label (b,).

    LID tells wrong labels from right ones only there: a smaller k sees one cluster, a much larger
    one sees all of them alike.
    """
    counts = torch.bincount(reference_labels, minlength=int(labels.max()) + 1)  # (c,)
    return (factor * counts[labels]).round().long()
