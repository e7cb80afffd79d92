"""Training on the rows with a small loss, whose labels are more often correct."""

from typing import Annotated, Any

import torch
from torch import Tensor

from colafier.core.schedules import plain_epochs
from colafier.methods._two_nets import SideBySide
from colafier.methods.contract import MakeNet, Range, TrainSet

DEFAULT_NOISE_RATE = 0.2  # if the share of wrong labels is not known
AUTHORS_RAMP = 10


def dropped(noise_rate: float, progress: float, ramp_epochs: int) -> float:
    """The share of rows to leave out: it rises from 0 to the noise rate, 1 - R(T).

    Args:
        noise_rate: tau.
        progress: Finished epochs, with the fraction of the current one, T.
        ramp_epochs: Length of the rise, T_k.
    """
    return noise_rate * min(progress / ramp_epochs, 1.0)


def small_loss(losses: Tensor, drop: float, among: Tensor | None = None) -> Tensor:
    """Mask of the rows to train on (b,): those with the smallest losses, at least one.

    Args:
        losses: Of all rows of the batch (b,), gathered from all processes.
        drop: Share of the rows to leave out.
        among: Mask of the rows to choose from (b,); None: all.
    """
    rows = torch.ones_like(losses, dtype=torch.bool) if among is None else among
    keep = max(int((1 - drop) * int(rows.sum())), 1)
    order = losses.masked_fill(~rows, torch.inf).argsort(stable=True)  # (b,)
    chosen = torch.zeros_like(rows)
    chosen[order[:keep]] = True
    return chosen & rows


def mean_over(chosen: Tensor, min_rows: float = 0.0) -> Tensor:
    """Weights (b,) that turn a mean over the whole batch into a mean over the chosen rows.

    Several processes need this: each has only some of the chosen rows and cannot count them all.

    Args:
        chosen: Mask of the rows of all processes (b,).
        min_rows: Divide by at least this many rows.
    """
    return chosen * (len(chosen) / max(float(chosen.sum()), min_rows, 1.0))


class SmallLossPair(SideBySide):
    """Two nets that leave out more and more rows with a large loss, up to the noise rate.

    Note: If the nets know little at the end of the ramp, as on a small data set, rows are left out
        by chance or by class. So the ramp is not shortened with the run unless it does not fit.
    Note: The share rises with every step. The authors' code raises it once per epoch.
    """

    needs_noise_rate = True

    def __init__(
        self,
        *,
        noise_rate: Annotated[float, Range(0, 1)] | None = None,
        ramp: Annotated[int, Range(1)] | None = None,
    ) -> None:
        super().__init__()
        self.noise_rate = DEFAULT_NOISE_RATE if noise_rate is None else noise_rate
        self.ramp = ramp

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, and the length of the ramp in this run."""
        super().setup(make_net, train, epochs)
        self.ramp_epochs = plain_epochs(AUTHORS_RAMP, epochs, self.ramp)

    def small_loss_weights(
        self, losses: Tensor, progress: float, among: Tensor | None = None
    ) -> Tensor:
        """Weights of this process's rows (b,): a mean with them is one over the rows of small loss.

        Args:
            losses: Of this process's rows (b,).
            progress: Finished epochs, with the fraction of the current one.
            among: Mask of the rows of all processes to choose from; None: all.
        """
        drop = dropped(self.noise_rate, progress, self.ramp_epochs)
        return self.local_slice(mean_over(small_loss(self.all_gather(losses), drop, among)))

    def resolved(self) -> dict[str, Any]:
        """The ramp in epochs of this run."""
        return {"ramp": self.ramp_epochs}
