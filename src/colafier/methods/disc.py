"""DISC: per-row confidence thresholds on two views split rows into clean, hard and purified ones.

Clean rows are trained with cross entropy and hard rows with a robust loss. All selected or
relabeled rows are also trained as mixes.
"""

from typing import Annotated, Any

import torch
from torch import Tensor

from colafier.core.functional import cross_entropy, gce
from colafier.core.mixing import mixed_labels, mixup
from colafier.core.schedules import scaled
from colafier.methods._row_losses import WithRowLosses
from colafier.methods.contract import Batch, MakeNet, Range, Terms, TrainSet
from colafier.methods.row_table import RowTable

AUTHORS_EPOCHS = 200
MAX_THRESHOLD = 0.99  # of purified rows
NEITHER, PURIFIED, HARD, CLEAN = range(4)


class Disc(WithRowLosses):
    """Dynamic instance-specific selection and correction.

    Args:
        warmup: Epochs of plain training on both views; by default scaled from 20 in 200.
        momentum: Share of the old threshold in the new one after an epoch; by default 0.99 to the
            power of 200 / epochs, so that thresholds move as far in a shorter run.
        margin: How far above its threshold the confidence must be to relabel a row, sigma.
        hard_weight: Weight of the hard rows' loss, lambda_h.
        hard_q: q of their generalized cross entropy.
        alpha: Parameter of Beta(alpha, alpha), from which the shares in a mix are drawn.

    Note:
        The defaults are those of the authors' code. They use other values for some kinds of noise:
        a warm-up of 15 epochs for instance-dependent noise, momentum 0.95 for asymmetric and heavy
        noise, margin 0.3 for light noise, hard weight 0.2 for heavy noise. They train with SGD
        without momentum and divide the rate by 10 after 80 and 160 epochs. Another version of their
        code caps thresholds at 0.90, not 0.99. Labels that a person decided count as clean. The
        purified labels are the classifier's predictions for all rows, not only the relabeled ones.
    """

    reference = (
        "Li et al.: DISC: Learning from noisy labels via dynamic instance-specific selection and "
        "correction, CVPR"
    )
    year = 2023
    views = ("weak", "strong")

    def __init__(
        self,
        *,
        warmup: Annotated[int, Range(0)] | None = None,
        momentum: Annotated[float, Range(0, 1)] | None = None,
        margin: Annotated[float, Range(0, 1)] = 0.5,
        hard_weight: Annotated[float, Range(0)] = 1.0,
        hard_q: Annotated[float, Range(1e-3, 1)] = 0.7,
        alpha: Annotated[float, Range(1e-3)] = 5.0,
    ) -> None:
        super().__init__()
        self.warmup = warmup
        self.momentum = momentum
        self.margin = margin
        self.hard_weight = hard_weight
        self.hard_q = hard_q
        self.alpha = alpha

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net, and the thresholds, group, label and last loss of each row."""
        super().setup(make_net, train, epochs)
        self.num_classes = train.num_classes
        self.warmup_epochs = scaled(20, epochs, AUTHORS_EPOCHS, self.warmup)
        keep = 0.99 ** (AUTHORS_EPOCHS / epochs)
        self.keep = keep if self.momentum is None else self.momentum
        self.thresholds = RowTable(torch.full((train.n, 2), 1 / train.n))  # one for each view
        self.groups = RowTable(torch.full((train.n,), CLEAN), trusted=train.trusted)
        self.labels = RowTable(train.observed, trusted=train.trusted)

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of both views in the warm-up, then one term for each group of rows."""
        views = self.net(torch.cat(batch.views)).chunk(2)  # two of (b, c)
        losses = torch.stack([cross_entropy(view, batch.y) for view in views]).sum(0)  # (b,)
        self._judge(batch, views)
        self.row_losses.write(batch.index, losses)
        if batch.epoch < self.warmup_epochs:
            return {"ce": losses.mean()}
        groups = self.groups[batch.index]  # (b,)
        robust = torch.stack([gce(view, batch.y, self.hard_q) for view in views]).sum(0)  # (b,)
        return {
            "clean": ((groups == CLEAN) * losses).mean(),
            "hard": self.hard_weight * ((groups == HARD) * robust).mean(),
            "mixed": self._mixed(batch, views, groups != NEITHER),
        }

    def resolved(self) -> dict[str, Any]:
        """Warm-up in epochs of this run, and momentum of the thresholds."""
        return {"warmup": self.warmup_epochs, "momentum": self.keep}

    def rows_now(self) -> dict[str, Tensor]:
        """The labels, changed in purified rows, and the losses of the observed ones."""
        return {"labels": self.labels.values, **super().rows_now()}

    @torch.no_grad()
    def _judge(self, batch: Batch, views: tuple[Tensor, ...]) -> None:
        """Stage group, label and thresholds for the next epoch; groups use the old thresholds.

        Each row occurs once in an epoch, so this equals the authors' update at the end of it.
        """
        old = self.thresholds[batch.index]  # (b, 2)
        p = torch.stack([view.softmax(1) for view in views], 1)  # (b, 2, c)
        of_observed = p.gather(2, batch.y[:, None, None].expand(-1, 2, 1))[:, :, 0]  # (b, 2)
        passed = (of_observed > old).sum(1)  # (b,) views that are confident of the observed label
        confidence, prediction = p.mean(1).max(1)  # (b,), (b,)
        surer = confidence > (old.mean(1) + self.margin).clamp(max=MAX_THRESHOLD)  # (b,)
        groups = torch.where(surer, PURIFIED, NEITHER)
        groups = torch.where(passed == 1, HARD, torch.where(passed == 2, CLEAN, groups))
        labels = torch.where(groups == PURIFIED, prediction, self.labels[batch.index])
        self.groups.write(batch.index, groups)
        self.labels.write(batch.index, torch.where(groups >= HARD, batch.y, labels))
        new = self.keep * old + (1 - self.keep) * p.max(2).values  # (b, 2)
        self.thresholds.write(batch.index, new)

    def _mixed(self, batch: Batch, logits: tuple[Tensor, ...], chosen: Tensor) -> Tensor:
        """Mean loss of mixes of the chosen rows, which are drawn for each view; a scalar.

        A single row can only be mixed with itself. Its logits are known already, and BatchNorm
        would refuse a batch of one row.

        Args:
            batch: The rows.
            logits: Logits of their two views, each (b, c).
            chosen: Mask of the rows to mix (b,).
        """
        share = self.all_gather(chosen.float()).mean()  # of all processes' rows
        total = torch.zeros((), device=share.device)
        if not chosen.any():
            return total
        labels = self.labels[batch.index][chosen]  # (m,)
        for view, unmixed in zip(batch.views, logits, strict=True):
            if len(labels) == 1:
                total = total + cross_entropy(unmixed[chosen], labels).sum()
                continue
            mixed = mixup(view[chosen], self.alpha)
            targets = mixed_labels(labels, mixed, self.num_classes)  # (m, c)
            total = total + cross_entropy(self.net(mixed.x), targets).sum()
        return total / len(batch) / share
