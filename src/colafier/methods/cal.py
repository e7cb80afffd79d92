"""CAL, Zhu et al., CVPR 2021: peer loss, corrected for instance-dependent noise.

Such noise adds a covariance between the observed label and the loss. It is estimated within classes
of proxy labels, which a first net provides; a second net then trains with it subtracted.
"""

from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from colafier.core.schedules import plain_epochs, ramp, scaled
from colafier.methods._class_losses import class_losses, label_shares
from colafier.methods._two_nets import FirstAndSecond
from colafier.methods.contract import (
    Batch,
    MakeNet,
    Pass,
    Passes,
    Range,
    Terms,
    TrainSet,
)
from colafier.methods.row_table import RowTable

AUTHORS_EPOCHS = 166  # 66 of the first net until its proxy labels are read, 100 of the second
AUTHORS_WARMUP = 10
SMALLEST = 1e-8  # added to probabilities in the loss of the observed label
SMALLEST_SUBTRACTED = 1e-5  # and in the terms that are subtracted
PROXY_RATE = 0.1  # learning rate of the first net's last epochs, as a multiple of the run's


class CAL(FirstAndSecond):
    """Peer loss for a first net, which makes proxy labels; for a second net, less the covariance.

    Args:
        proxy_epochs: Epochs of the first net; by default scaled from 66 in 166.
        warmup: Epochs of cross entropy at the start of each net; by default 10, but no more than
            half of the first net's.
        ramp: Epochs after them in which the peer term rises; by default scaled from 30 in 166.
        proxy_peer_weight: Final weight of the first net's peer term, alpha.
        peer_weight: Final weight of the second net's peer term, alpha.
        sure: A proxy label is the observed label if its loss is this far below the mean over all
            labels, else the prediction. This is for 10 classes, and is scaled for other numbers.

    Note: As in the authors' code, the covariance is a mean over the batch's rows of each proxy
        class; these means are weighted by the share of the class in the whole training set. The
        authors also center the losses by the means of the last epoch. These have no gradient, so
        they are left out here, and only the logged value differs.
    Note: Their warm-up of 10 epochs is not shortened as long as it fits: if the peer term starts
        before all classes are learned, some are lost for good. They read the proxy labels soon
        after the rate of SGD has dropped to a tenth, and so does this code. The second net then has
        the run's rate throughout, where theirs drops again (`--lr-floor` lets all rates fall). They
        divide rates by 1 + alpha; that is left out, since it has little effect on an optimizer that
        scales gradients itself.
    Note: The second net has three fifths of the epochs, which shows in short runs: on FM-mini it is
        below cross entropy with 9 of 15 epochs (mean of the last 10: .637 and .697) and above it
        with 15 of 25 (.741).
    """

    reference = (
        "Zhu, Liu, Liu: A second-order approach to learning with instance-dependent label noise, "
        "CVPR"
    )
    year = 2021

    shares: Tensor
    proxy_shares: Tensor
    flips: Tensor

    def __init__(
        self,
        *,
        proxy_epochs: Annotated[int, Range(1)] | None = None,
        warmup: Annotated[int, Range(0)] | None = None,
        ramp: Annotated[int, Range(1)] | None = None,
        proxy_peer_weight: Annotated[float, Range(0)] = 2.0,
        peer_weight: Annotated[float, Range(0)] = 1.0,
        sure: Annotated[float, Range()] = 8.0,
    ) -> None:
        super().__init__()
        self.proxy_epochs = proxy_epochs
        self.warmup = warmup
        self.ramp = ramp
        self.proxy_peer_weight = proxy_peer_weight
        self.peer_weight = peer_weight
        self.sure = sure

    @classmethod
    def preparation(cls, epochs: int) -> tuple[int, dict[str, Any]]:
        """The epochs of the first net."""
        first = scaled(66, epochs, AUTHORS_EPOCHS)
        return first, {"proxy_epochs": first}

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, proxy labels, and the distribution of the observed labels."""
        super().setup(make_net, train, epochs)
        c = self.num_classes = train.num_classes
        self.epochs = epochs
        self.first_epochs = scaled(66, epochs, AUTHORS_EPOCHS, self.proxy_epochs)
        self.warmup_epochs = plain_epochs(AUTHORS_WARMUP, self.first_epochs, self.warmup)
        self.ramp_epochs = scaled(30, epochs, AUTHORS_EPOCHS, self.ramp)
        self.proxies = RowTable(train.observed, trusted=train.trusted)
        shares = label_shares(train.observed[train.labeled], c)  # (c,)
        self.register_buffer("shares", shares, persistent=False)
        self.register_buffer("proxy_shares", shares.clone())  # (c,) share of each proxy label
        self.register_buffer("flips", torch.eye(c))  # tau (c, c): share of observed j in proxy i

    def reset_beliefs(self, train: TrainSet) -> None:
        """Count decided labels among the observed ones."""
        self._count_flips(train)

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """Epochs of the first net, the last of them at a low rate, then those of the second net."""
        if epoch < self.first_epochs and not self.corrects:
            calm = epoch >= self.first_epochs - max(1, round(self.first_epochs * 6 / 66))
            scale, span = PROXY_RATE if calm else None, (0, self.first_epochs)
            yield Pass(optimizers=("first",), lr_scale=scale, lr_span=span)
            return
        if not self.corrects:
            self._count_flips(train)
            self.corrects.fill_(True)
        span = (self.first_epochs, self.epochs)  # a new net starts with the full rate
        yield Pass(optimizers=("net",), lr_span=span)

    def loss(self, batch: Batch) -> Terms:
        """The observed label's loss, less the peer term and, for the second net, the covariance."""
        logits = self.deployed()(batch.x)  # (b, c)
        losses = class_losses(logits, SMALLEST)  # (b, c)
        own = losses.gather(1, batch.y[:, None])[:, 0]  # (b,)
        self.row_losses.write(batch.index, own)
        subtracted = class_losses(logits, SMALLEST_SUBTRACTED)  # (b, c)
        if not self.corrects:
            if batch.epoch == self.first_epochs - 1:
                self._write_proxies(batch, losses, own)
            return {"ce": own.mean(), "peer": -self._peer(batch.epoch, subtracted)}
        proxies = self.proxies[batch.index]  # (b,)
        by_row = covariance(subtracted, batch.y, self.flips[proxies])  # (b,)
        return {
            "ce": own.mean(),
            "peer": -self._peer(batch.epoch - self.first_epochs, subtracted),
            "covariance": -(self._class_weights(proxies) * by_row).mean(),
        }

    def resolved(self) -> dict[str, Any]:
        """The schedule in epochs of this run."""
        return {
            "proxy_epochs": self.first_epochs,
            "warmup": self.warmup_epochs,
            "ramp": self.ramp_epochs,
        }

    def rows_now(self) -> dict[str, Tensor]:
        """The proxy labels, and the losses of the observed ones."""
        return {"labels": self.proxies.values, **super().rows_now()}

    def _count_flips(self, train: TrainSet) -> None:
        """Count the observed labels among rows with the same proxy label."""
        observed, proxies = train.observed[train.labeled], self.proxies.values.cpu()[train.labeled]
        counts = torch.zeros(self.num_classes, self.num_classes)  # (c, c)
        counts.index_put_((proxies, observed), torch.ones(len(observed)), accumulate=True)
        of_proxies = counts.sum(1, keepdim=True)  # (c, 1)
        self.flips.copy_(counts / of_proxies.clamp(min=1))
        self.proxy_shares.copy_(of_proxies[:, 0] / of_proxies.sum().clamp(min=1))

    def _class_weights(self, proxies: Tensor) -> Tensor:
        """Weights (b,) of rows with these proxy labels.

        A mean over the batch with these weights is a mean over its rows of each proxy class, summed
        over classes by their share in the training set.
        """
        everywhere = self.all_gather(proxies)  # (all b,)
        counts = everywhere.bincount(minlength=self.num_classes)  # (c,)
        weights = self.proxy_shares * len(everywhere) / counts.clamp(min=1)  # (c,)
        return weights[proxies]

    def _peer(self, epoch: int, losses: Tensor) -> Tensor:
        """The mean loss over classes, weighted by their shares among the observed labels.

        The first net uses the square roots of the shares.
        """
        shares = self.shares if self.corrects else self.shares.sqrt()  # (c,)
        end = self.peer_weight if self.corrects else self.proxy_peer_weight
        weight = ramp(epoch, self.warmup_epochs, self.ramp_epochs, 0.0, end)
        return weight * (losses @ (shares / shares.sum())).mean()

    @torch.no_grad()
    def _write_proxies(self, batch: Batch, losses: Tensor, own: Tensor) -> None:
        """Stage proxy labels: the observed label if the net is sure of it, else the prediction."""
        needed = self.sure * (1 - 1 / self.num_classes) / 0.9
        sure = losses.mean(1) - own > needed  # (b,)
        self.proxies.write(batch.index, torch.where(sure, batch.y, losses.argmin(1)))


def covariance(losses: Tensor, observed: Tensor, flips: Tensor) -> Tensor:
    """Each row's contribution to the covariance of label and loss, summed over labels (b,).

    Args:
        losses: Of every label (b, c).
        observed: Observed labels (b,).
        flips: How often rows with the same proxy have each observed label (b, c).
    """
    return ((F.one_hot(observed, losses.shape[1]) - flips) * losses).sum(1)
