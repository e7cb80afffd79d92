"""Find wrong labels from probabilities or features, with the signature of cleanlab's function."""

from typing import Any, Literal

import numpy as np
import torch
from sklearn.utils import check_array, check_random_state
from torch import Tensor

from colafier._surroundings import own_surroundings
from colafier.audit.policy import most_doubtful
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import posterior
from colafier.evidence.out_of_fold import cross_fit
from colafier.ingest.arrays import Array, as_tensor
from colafier.ingest.labels import EncodedLabels, check_class_numbers
from colafier.nets.normalize import Normalize

RankedBy = Literal["self_confidence", "normalized_margin", "confidence_weighted_entropy"]

EPSILON = 1e-12
TOLERANCE = 0.01  # for the sum of a row: probabilities may have been rounded


@own_surroundings()
def find_label_issues(
    labels: Any,
    pred_probs: Any = None,
    features: Any = None,
    return_indices_ranked_by: RankedBy | None = None,
    *,
    frac_noise: float = 1.0,
    random_state: Any = 0,
) -> Array:
    """Find the rows whose observed label is probably wrong.

    As many rows are returned as labels are estimated to be wrong.

    Args:
        labels: Observed labels (n,): column numbers of `pred_probs`, 0 to K-1; with features alone,
            any numbers or texts.
        pred_probs: P(class | row), (n, K), from a classifier that was not trained on the row's own
            label, for example by cross-validation.
        features: Vectors (n, d) of the rows, used if `pred_probs` is None: small heads are then
            trained on them, and their out-of-fold predictions are the probabilities.
        return_indices_ranked_by: The label score to rank rows by, the worst first:
            `self_confidence`, `normalized_margin` or `confidence_weighted_entropy`.
        frac_noise: Return only this share of the estimated number, the most doubtful rows.
        random_state: Seed or generator of the heads.

    Returns:
        A boolean mask (n,); with `return_indices_ranked_by`, the row numbers of the issues.
    """
    if not 0 <= frac_noise <= 1:
        raise ValueError(f"frac_noise must be from 0 to 1, not {frac_noise}")
    if return_indices_ranked_by is not None and return_indices_ranked_by not in SCORES:
        raise ValueError(
            f"return_indices_ranked_by must be one of {', '.join(SCORES)}, "
            f"not {return_indices_ranked_by!r}"
        )
    if pred_probs is not None:
        p, observed = _checked(pred_probs, labels)
    elif features is not None:
        p, observed = _out_of_fold(features, labels, random_state)
    else:
        raise ValueError("give pred_probs, or features to compute them from")
    found = posterior(p, Labels(observed))
    every = torch.ones(len(observed), dtype=torch.bool)
    issue = most_doubtful(found.quality, every, found.rate * frac_noise)
    if return_indices_ranked_by is None:
        return issue.numpy()
    rows = issue.nonzero()[:, 0]
    score = SCORES[return_indices_ranked_by](p[rows], observed[rows])  # (m,)
    return rows[score.argsort(stable=True)].numpy()


def self_confidence(p: Tensor, observed: Tensor) -> Tensor:
    """Probability of the observed label (n,)."""
    return p.gather(1, observed[:, None])[:, 0]


def normalized_margin(p: Tensor, observed: Tensor) -> Tensor:
    """Probability of the observed label minus that of the best other one (n,)."""
    others = p.scatter(1, observed[:, None], -1.0)
    return self_confidence(p, observed) - others.max(1).values


def confidence_weighted_entropy(p: Tensor, observed: Tensor) -> Tensor:
    """Minus the entropy, divided by the probability of the observed label (n,); low is bad."""
    entropy = -(p * p.clamp(min=EPSILON).log()).sum(1)
    return -entropy / self_confidence(p, observed).clamp(min=EPSILON)


SCORES = {
    "self_confidence": self_confidence,
    "normalized_margin": normalized_margin,
    "confidence_weighted_entropy": confidence_weighted_entropy,
}


def _checked(pred_probs: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Probabilities (n, K) and labels (n,) that fit them."""
    p = check_array(pred_probs, dtype=np.float64, input_name="pred_probs")
    n, c = p.shape
    observed = np.asarray(labels)
    if observed.ndim != 1:
        raise ValueError(f"labels must be one dimensional, not of shape {observed.shape}")
    if len(observed) != n:
        raise ValueError(
            f"pred_probs and labels must have the same length, not {n} and {len(observed)}"
        )
    if c < 2:
        raise ValueError("pred_probs must have a column for each class, two or more")
    if p.min() < 0 or p.max() > 1 or abs(p.sum(1) - 1).max() > TOLERANCE:
        raise ValueError("rows of pred_probs must be probabilities: from 0 to 1, with the sum 1")
    if observed.dtype.kind not in "iu":
        raise TypeError(
            f"labels must be whole numbers (columns of pred_probs), not {observed.dtype}"
        )
    return as_tensor(p), check_class_numbers(observed, c, "labels, the columns of pred_probs,")


def _out_of_fold(features: Any, labels: Any, random_state: Any) -> tuple[Tensor, Tensor]:
    """Out-of-fold predictions of heads on the features (n, c), and labels (n,)."""
    x = as_tensor(check_array(features, dtype=np.float32, input_name="features"))
    found = EncodedLabels.of(labels)
    observed = found.numbers
    if len(observed) != len(x):
        raise ValueError(
            f"features and labels must have the same length, not {len(x)} and {len(observed)}"
        )
    if (observed < 0).any():
        raise ValueError("each row needs a label; leave out rows without one")
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    p = cross_fit(x, Labels(observed), len(found.classes), Normalize.fit(x), seed=seed)
    return p.double(), observed
