"""DISC: each row has its own confidence threshold; two views split rows into clean, hard, purified.

Clean rows are learned with cross entropy, hard ones with a robust loss, and all that were selected
or relabeled once more as mixes.
"""

from typing import Annotated, Any

import torch
from torch import Tensor

from colafier.core.functional import cross_entropy, gce
from colafier.core.mixing import mixed_labels, mixup
from colafier.core.schedules import scaled
from colafier.methods._row_losses import no_losses
from colafier.methods.contract import Batch, MakeNet, Method, Range, Terms, TrainSet
from colafier.methods.row_table import RowTable

AUTHORS_EPOCHS = 200
MOST_SURE = 0.99  # a threshold for purified rows is never above
NEITHER, PURIFIED, HARD, CLEAN = range(4)


class Disc(Method):
    """Dynamic instance-specific selection and correction.

    Args:
        warmup: Epochs of plain training on both views; by default scaled from 20 in 200.
        momentum: Share of the old threshold in the new one after an epoch; by default 0.99 to the
            power of 200 / epochs, so that thresholds get as far in a shorter run.
        margin: How far above its threshold a row must be to be relabeled, sigma.
        hard_weight: Weight of the hard rows' loss, lambda_h.
        hard_q: q of their generalized cross entropy.
        alpha: Of Beta(alpha, alpha), from which the shares in a mix are drawn.

    Note:
        The defaults are the code's. The authors have other values for some noises: warm-up of 15
        epochs for instance noise, momentum 0.95 for asymmetric and heavy noise, margin 0.3 for
        light noise, hard weight 0.2 for heavy noise. They train with SGD without momentum, the
        rate divided by 10 after 80 and 160 epochs; another version of their code caps thresholds at
        0.90, not 0.99. A person's labels count as clean. `purify` asks the classifier, as it can
        say more than the labels of those rows that were relabeled.
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
        """A net, and for each row its thresholds, its group, its label and its last loss."""
        super().setup(make_net, train, epochs)
        self.num_classes = train.num_classes
        self.warmup_epochs = scaled(20, epochs, AUTHORS_EPOCHS, self.warmup)
        keep = 0.99 ** (AUTHORS_EPOCHS / epochs)
        self.keep = keep if self.momentum is None else self.momentum
        self.thresholds = RowTable(torch.full((train.n, 2), 1 / train.n))  # one for each view
        self.groups = RowTable(torch.full((train.n,), CLEAN), trusted=train.trusted)
        self.labels = RowTable(train.observed, trusted=train.trusted)
        self.row_losses = no_losses(train.n)

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy of both views at first, then one term for each kind of row."""
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
        """Warm-up in epochs of this run, and the thresholds' momentum."""
        return {"warmup": self.warmup_epochs, "momentum": self.keep}

    def rows_now(self) -> dict[str, Tensor]:
        """Labels that purified rows were given, and losses of the observed ones."""
        return {"labels": self.labels.values, "loss": self.row_losses.values}

    @torch.no_grad()
    def _judge(self, batch: Batch, views: tuple[Tensor, ...]) -> None:
        """Stage group, label and thresholds of the next epoch; groups by the old thresholds.

        A row is met once in an epoch, so this is the authors' update at the end of the epoch.
        """
        old = self.thresholds[batch.index]  # (b, 2)
        p = torch.stack([view.softmax(1) for view in views], 1)  # (b, 2, c)
        of_observed = p.gather(2, batch.y[:, None, None].expand(-1, 2, 1))[:, :, 0]  # (b, 2)
        passed = (of_observed > old).sum(1)  # (b,) how many views are sure of the observed label
        confidence, prediction = p.mean(1).max(1)  # (b,), (b,)
        surer = confidence > (old.mean(1) + self.margin).clamp(max=MOST_SURE)  # (b,)
        groups = torch.where(surer, PURIFIED, NEITHER)
        groups = torch.where(passed == 1, HARD, torch.where(passed == 2, CLEAN, groups))
        labels = torch.where(groups == PURIFIED, prediction, self.labels[batch.index])
        self.groups.write(batch.index, groups)
        self.labels.write(batch.index, torch.where(groups >= HARD, batch.y, labels))
        new = self.keep * old + (1 - self.keep) * p.max(2).values  # (b, 2)
        self.thresholds.write(batch.index, new)

    def _mixed(self, batch: Batch, logits: tuple[Tensor, ...], chosen: Tensor) -> Tensor:
        """Mean loss of mixes of the chosen rows, for each view with mixes of its own; a scalar.

        A lone row can only be mixed with itself, and its logits are known. BatchNorm would refuse a
        batch of one.

        Args:
            batch: The rows.
            logits: Of their views, two of (b, c).
            chosen: Mask (b,).
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
