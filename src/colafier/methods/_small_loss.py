"""Learning from the rows with a small loss, which more often have a right label."""

from typing import Annotated, Any

import torch
from torch import Tensor

from colafier.core.schedules import plain_epochs
from colafier.methods._two_nets import SideBySide
from colafier.methods.contract import MakeNet, Range, TrainSet

UNTOLD_RATE = 0.2  # where nobody says how many labels are wrong
AUTHORS_RAMP = 10


def dropped(noise_rate: float, progress: float, ramp_epochs: int) -> float:
    """The share of rows to leave out by now: from 0 up to the noise rate, 1 - R(T).

    Args:
        noise_rate: tau.
        progress: Epochs done so far, with their fraction, T.
        ramp_epochs: T_k.
    """
    return noise_rate * min(progress / ramp_epochs, 1.0)


def small_loss(losses: Tensor, drop: float, among: Tensor | None = None) -> Tensor:
    """Which rows to learn from (b,): those with the smallest losses, at least one.

    Args:
        losses: Of all rows of the batch (b,), gathered from all processes.
        drop: Share of the rows that is left out.
        among: Only these rows compete, as a mask (b,); None: all.
    """
    rows = torch.ones_like(losses, dtype=torch.bool) if among is None else among
    keep = max(int((1 - drop) * int(rows.sum())), 1)
    order = losses.masked_fill(~rows, torch.inf).argsort(stable=True)  # (b,)
    chosen = torch.zeros_like(rows)
    chosen[order[:keep]] = True
    return chosen & rows


def mean_over(chosen: Tensor, min: float = 0.0) -> Tensor:
    """Weights (b,) that turn a mean over the whole batch into a mean over the chosen rows.

    Several processes need it: each has some of the chosen rows only, so none can divide by itself.

    Args:
        chosen: Mask of the rows of all processes (b,).
        min: Divide by at least this many rows.
    """
    return chosen * (len(chosen) / max(float(chosen.sum()), min, 1.0))


class SmallLossPair(SideBySide):
    """Two nets that leave out ever more of the rows with a large loss, up to the noise rate.

    Note: A ramp is too short if the nets know little at its end, as on a small data set: then rows
        are left out by chance or by class. So it is not scaled to a shorter run as long as it fits.
    Note: The share rises with every step, as the papers' formula does if epochs have fractions; the
        authors' codes raise it from epoch to epoch.
    """

    needs_noise_rate = True

    def __init__(
        self,
        *,
        noise_rate: Annotated[float, Range(0, 1)] | None = None,
        ramp: Annotated[int, Range(1)] | None = None,
    ) -> None:
        super().__init__()
        self.noise_rate = UNTOLD_RATE if noise_rate is None else noise_rate
        self.ramp = ramp

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both nets, and the length of the ramp in this run."""
        super().setup(make_net, train, epochs)
        self.ramp_epochs = plain_epochs(AUTHORS_RAMP, epochs, self.ramp)

    def picked(self, losses: Tensor, progress: float, among: Tensor | None = None) -> Tensor:
        """Weights of this process's rows (b,), whose mean is one over the rows of small loss.

        Args:
            losses: Of this process's rows (b,).
            progress: Epochs done so far, with their fraction.
            among: Only these rows of all processes compete, as a mask; None: all.
        """
        drop = dropped(self.noise_rate, progress, self.ramp_epochs)
        return self.local_slice(mean_over(small_loss(self.all_gather(losses), drop, among)))

    def resolved(self) -> dict[str, Any]:
        """The ramp in epochs of this run."""
        return {"ramp": self.ramp_epochs}
