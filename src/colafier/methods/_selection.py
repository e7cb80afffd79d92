"""Which rows a method learns from, and which it keeps apart to be judged by."""

from torch import Tensor

from colafier.methods.contract import TrainSet


def held_out(train: TrainSet, share: float) -> Tensor:
    """Numbers of a share of the labeled rows; never of those that a person decided."""
    rows = train.holdout(share)
    return rows[~train.trusted[rows]]


def trained_on(train: TrainSet, share: float) -> Tensor:
    """Numbers of the labeled rows that are not held out."""
    return others(train, held_out(train, share))


def others(train: TrainSet, held: Tensor) -> Tensor:
    """Numbers of the labeled rows that are not among these."""
    learned = train.labeled.clone()
    learned[held] = False
    return learned.nonzero()[:, 0]
