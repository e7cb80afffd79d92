"""Co-learning: one backbone learns from noisy labels and, without labels, from pairs of views.

A head that sees labels then learns to keep the distances that a head without labels finds.
"""

from math import inf

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from colafier import losses
from colafier.flow import Batch, Engine, MakeNet, MakeOptimizer, Terms, TrainSet
from colafier.functional import cross_entropy
from colafier.methods._row_losses import WithRowLosses
from colafier.mixing import mixup
from colafier.variants import within

TINY = 1e-12


def similarity(rows: Tensor, others: Tensor, same: Tensor) -> Tensor:
    """exp(-squared distance) of each of b rows to each of m others (b, m).

    Args:
        rows: (b, d).
        others: (m, d).
        same: Mask of pairs that are one row twice (b, m), whose distance has no gradient.
    """
    lengths = rows.square().sum(1)[:, None] + others.square().sum(1)  # (b, m)
    distance = lengths - 2 * rows @ others.T  # (b, m)
    return torch.exp(-distance.masked_fill(same, 0).clamp(min=TINY))


class CoLearning(WithRowLosses):
    """A label head with mixup, a label-free head with contrast, and distances kept between them.

    Args:
        mix_alpha: Of Beta(alpha, alpha) for mixup.
        temperature: Of the contrast.
        width: Number of features of the label-free head.

    Note: The structure loss can only draw rows together, and Adam makes even small ones of its
        gradients count. So nearness in the label-free head must be rare, which takes many features:
        with 64 in place of 512 the label head learned little on digits.
    Note: As in the authors' code the structure loss has a step of its own that moves the label head
        only, with the whole learning rate.
    Note: The authors train with Adam, whose rate falls linearly from epoch 80 of 200 on, and color
        jitter in their strong views.
    """

    reference = (
        "Tan et al., Co-learning: Learning from noisy labels with self-supervision, ACM Multimedia"
    )
    year = 2021
    views = ("weak", "strong", "strong")

    def __init__(
        self, *, mix_alpha: float = 5.0, temperature: float = 0.5, width: int = 512
    ) -> None:
        super().__init__()
        within(mix_alpha, 1e-3, inf, "mix_alpha")
        within(temperature, 1e-3, inf, "temperature")
        within(width, 1, inf, "width")
        self.mix_alpha = mix_alpha
        self.temperature = temperature
        self.width = width

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A classifier, the label-free head beside it, and the last loss of each row."""
        super().setup(make_net, train, epochs)
        inputs, width = self.net.backbone.num_features, self.width
        self.projector = nn.Sequential(
            nn.Linear(inputs, width, bias=False), nn.ReLU(inplace=True), nn.Linear(width, width)
        )

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """One for everything, and one for the label head alone."""
        return {"all": make(self.parameters()), "head": make(self.net.head.parameters())}

    def update(self, batch: Batch, engine: Engine) -> Terms:
        """First a step of the label head alone, then one of everything."""
        terms = engine.minimize(self.structure, batch, only=("head",))
        return terms | engine.minimize(self.loss, batch, only=("all",))

    def structure(self, batch: Batch) -> Terms:
        """The label head's distances between rows shall be those of the label-free head."""
        with torch.no_grad():
            features = self.net.backbone(batch.x)  # (b, d)
            projected = self.projector(features)  # (b, d)
        # Without the bias: it changes no distance, but Adam would make steps of rounding errors.
        unbiased = F.linear(features, self.net.head.weight)  # (b, c)
        self.row_losses.write(batch.index, cross_entropy(unbiased + self.net.head.bias, batch.y))
        others, place = self._among_all(projected)
        same = place[:, None] == torch.arange(len(others), device=place.device)  # (b, all b)
        found = similarity(projected, others, same)  # (b, all b)
        kept = similarity(unbiased, self._among_all(unbiased)[0], same)  # (b, all b)
        return {"structure": -(found * (kept + TINY).log()).mean()}

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of mixed rows, and contrast between two strong views."""
        mixed = mixup(batch.x, self.mix_alpha)
        labels = losses.mixed(self.net(mixed.x), batch.y, batch.y[mixed.partner], mixed.keep)
        return {"labels": labels.mean(), "contrast": self._contrast(batch.views[1:]).mean()}

    def _contrast(self, views: tuple[Tensor, ...]) -> Tensor:
        """How hard it is to tell the other view of a row from all other rows, NT-Xent (2b,)."""
        anchors = self.projector(self.net.backbone(torch.cat(views)))  # (2b, d)
        (first, place), (second, _) = (self._among_all(view) for view in anchors.chunk(2))
        others, n = torch.cat([first, second]), len(first)  # (2n, d)
        place = torch.cat([place, place + n])  # (2b,) where the anchors are among the others
        cosines = F.normalize(anchors) @ F.normalize(others).T  # (2b, 2n)
        itself = place[:, None] == torch.arange(2 * n, device=place.device)  # (2b, 2n)
        logits = (cosines / self.temperature).masked_fill(itself, -torch.inf)
        return cross_entropy(logits, (place + n) % (2 * n))

    def _among_all(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of all processes, and where this one's are, which alone have a gradient."""
        every = self.gather(rows)  # (all b, d)
        place = self.own(torch.arange(len(every), device=rows.device))  # (b,)
        return every.index_copy(0, place, rows), place
