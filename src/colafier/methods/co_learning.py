"""Co-learning: one backbone learns from noisy labels and, without labels, from pairs of views.

The head that sees labels also learns to keep the distances that the label-free head finds.
"""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from colafier.core import losses
from colafier.core.functional import cross_entropy
from colafier.core.mixing import mixup
from colafier.methods._row_losses import WithRowLosses
from colafier.methods.contract import (
    Batch,
    Engine,
    MakeNet,
    MakeOptimizer,
    Range,
    Terms,
    TrainSet,
)

TINY = 1e-12


def similarity(rows: Tensor) -> Tensor:
    """exp(-squared distance) of each of n rows (n, d) to each other (n, n).

    The similarity of a row to itself has no gradient.
    """
    lengths = rows.square().sum(1)  # (n,)
    distance = lengths[:, None] + lengths - 2 * rows @ rows.T  # (n, n)
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    return torch.exp(-distance.masked_fill(itself, 0).clamp(min=TINY))


class CoLearning(WithRowLosses):
    """A label head with mixup, a label-free contrastive head, and the same distances in both.

    Args:
        mix_alpha: Parameter of Beta(alpha, alpha) for mixup.
        temperature: Temperature of the contrastive loss.
        width: Number of features of the label-free head.

    Note: The structure loss can only pull rows together, and with Adam even small gradients count.
        So rows must rarely be close in the label-free head, which takes many features: with 64
        instead of 512 the label head learned little on digits.
    Note: A mix keeps at least half of its first row. This is no restriction: which of two rows is
        the partner is drawn at random, and all mixes have the same weight.
    Note: As in the authors' code, the structure loss has a separate step that changes the label
        head only, at the full learning rate.
    Note: The views are those of this package, not the authors'. Their weak view is a random part of
        the image, from 8 % of its area to all of it, scaled to full size, and mirrored at random;
        here it is a shift by up to an eighth. Their strong views are such parts with color jitter
        (probability 0.8) and turned gray with probability 0.2; here they are shifted images with
        RandAugment and a small gray square. They train with Adam, whose rate falls linearly from
        epoch 80 of 200.
    """

    reference = (
        "Tan et al.: Co-learning: Learning from noisy labels with self-supervision, ACM Multimedia"
    )
    year = 2021
    views = ("weak", "strong", "strong")

    def __init__(
        self,
        *,
        mix_alpha: Annotated[float, Range(1e-3)] = 5.0,
        temperature: Annotated[float, Range(1e-3)] = 0.5,
        width: Annotated[int, Range(1)] = 512,
    ) -> None:
        super().__init__()
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
        """First a step of the label head alone, then one of all parameters."""
        terms = engine.minimize(self.structure, batch, only=("head",))
        return terms | engine.minimize(self.loss, batch, only=("all",))

    def structure(self, batch: Batch) -> Terms:
        """Make the label head's distances between rows those of the label-free head."""
        with torch.no_grad():
            features = self.net.backbone(batch.x)  # (b, d)
            projected = self.projector(features)  # (b, d)
        # Without the bias: it changes no distance, but Adam would turn rounding errors into steps.
        unbiased = F.linear(features, self.net.head.weight)  # (b, c)
        self.row_losses.write(batch.index, cross_entropy(unbiased + self.net.head.bias, batch.y))
        found = similarity(self.all_gather(projected))  # (all b, all b)
        kept = similarity(self._among_all(unbiased))  # (all b, all b)
        return {"structure": self._shared(-(found * (kept + TINY).log()).mean(), batch)}

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of mixed rows, and the contrastive loss of two strong views."""
        mixed = mixup(batch.x, self.mix_alpha)
        labels = losses.mixed(self.net(mixed.x), batch.y, batch.y[mixed.partner], mixed.keep)
        contrast = self._shared(self._contrast(batch.views[1:]).mean(), batch)
        return {"labels": labels.mean(), "contrast": contrast}

    def _contrast(self, views: tuple[Tensor, ...]) -> Tensor:
        """NT-Xent loss (2n,): find the other view of a row among all other rows."""
        projected = self.projector(self.net.backbone(torch.cat(views)))  # (2b, d)
        anchors = torch.cat([self._among_all(view) for view in projected.chunk(2)])  # (2n, d)
        places = torch.arange(len(anchors), device=anchors.device)  # (2n,)
        directions = F.normalize(anchors)  # (2n, d)
        logits = directions @ directions.T / self.temperature  # (2n, 2n)
        itself = places[:, None] == places
        return cross_entropy(logits.masked_fill(itself, -torch.inf), places.roll(len(places) // 2))

    def _among_all(self, rows: Tensor) -> Tensor:
        """Rows of all processes (all b, d); only those of this process have a gradient."""
        every = self.all_gather(rows)  # (all b, d)
        place = self.local_slice(torch.arange(len(every), device=rows.device))  # (b,)
        return every.index_copy(0, place, rows)

    def _shared(self, value: Tensor, batch: Batch) -> Tensor:
        """A mean over all pairs of rows, where each process has the gradient of its rows only.

        The engine weights gradients by the process's share of the rows, as if they were of a mean
        over its rows. Here they are already a part of the whole, so the weight is removed again.
        """
        rows = len(self.all_gather(batch.index))
        return value.detach() + (value - value.detach()) * (rows / len(batch))
