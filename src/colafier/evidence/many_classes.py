"""EM for the noise model of many classes: of each row only the likeliest classes count.

With c classes a round of EM takes n c^2 steps, which is hours for thousands of classes. Here it is
n k^2, with the k classes that a row can plausibly be. The other classes of a row have no part in
its posterior, and all have the mean of their own values in its feature-dependent term.
"""

import torch
from torch import Tensor

KEPT = 10  # classes per row, beside the observed one


class LikelyClasses:
    """The classes of each row that count, and its values for these.

    Args:
        prior: P(true class | row) (n, c).
        plausible: What the feature-dependent term is made of (n, c).
        observed: Observed labels (n,).
    """

    def __init__(self, prior: Tensor, plausible: Tensor, observed: Tensor) -> None:
        c = prior.shape[1]
        others = prior.scatter(1, observed[:, None], -1.0).topk(KEPT).indices  # (n, k - 1)
        self.c = c
        self.classes = torch.cat([observed[:, None], others], 1)  # (n, k) the observed one first
        self.pairs = self.classes[:, :, None] * c + self.classes[:, None]  # (n, k, k) in (c, c)
        self.prior = prior.gather(1, self.classes)  # (n, k)
        self.plausible = plausible.gather(1, self.classes)  # (n, k)
        rest = plausible.sum(1) - self.plausible.sum(1)
        self.rest = (rest / (c - self.classes.shape[1]))[:, None]  # (n, 1) mean of all others

    def round(self, transition: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One round of EM: counts (c, c), those that features explain (c, c), mean likelihood."""
        between = transition.take(self.pairs)  # (n, k, k) from true class to observed one
        above = (self.plausible - self.rest)[:, None]  # (n, 1, k)
        total = self.rest + (between * above).sum(2)  # (n, k) as each row of the matrix sums to 1
        joint = self.prior * between[:, :, 0] * self.plausible[:, :1] / total  # (n, k)
        evidence = joint.sum(1, keepdim=True)  # (n, 1)
        believed = joint / evidence  # (n, k)
        counts = self._added(self.pairs[:, :, 0], believed)
        share = believed / total  # (n, k)
        of_rest = torch.zeros(self.c).to(share)
        of_rest.index_add_(0, self.classes.flatten(), (share * self.rest).flatten())  # (c,)
        expected = self._added(self.pairs, share[:, :, None] * above).add_(of_rest[:, None])
        return counts, expected, evidence.log().mean()

    def _added(self, places: Tensor, values: Tensor) -> Tensor:
        """A matrix (c, c) with these values added at these places."""
        flat = torch.zeros(self.c * self.c).to(values)
        return flat.index_add_(0, places.flatten(), values.flatten()).view(self.c, self.c)
