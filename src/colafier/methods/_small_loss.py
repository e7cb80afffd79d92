"""Learning from the rows with a small loss, which more often have a right label."""

import torch
from torch import Tensor

UNTOLD_RATE = 0.2  # where nobody says how many labels are wrong


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


def mean_over(chosen: Tensor, fewest: float = 0.0) -> Tensor:
    """Weights (b,) that turn a mean over the whole batch into a mean over the chosen rows.

    Several processes need it: each has some of the chosen rows only, so none can divide by itself.

    Args:
        chosen: Mask of the rows of all processes (b,).
        fewest: Divide by at least this many rows.
    """
    return chosen * (len(chosen) / max(float(chosen.sum()), fewest, 1.0))
