"""Which rows a method trains on, and which it holds out to measure itself."""

from torch import Tensor

from colafier.methods.contract import TrainSet


def held_out(train: TrainSet, share: float) -> Tensor:
    """Row numbers of a random share of the labeled rows, without those that a person decided."""
    rows = train.holdout(share)
    return rows[~train.trusted[rows]]


def trained_on(train: TrainSet, share: float) -> Tensor:
    """Row numbers of the labeled rows that are not held out."""
    return others(train, held_out(train, share))


def others(train: TrainSet, held: Tensor) -> Tensor:
    """Row numbers of the labeled rows that are not among these."""
    learned = train.labeled.clone()
    learned[held] = False
    return learned.nonzero()[:, 0]
