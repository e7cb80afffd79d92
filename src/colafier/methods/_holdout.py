"""The rows of a training set that the holdout check is based on."""

from torch import Tensor

from colafier.core.holdout_check import NoHoldoutCheck
from colafier.methods import _selection
from colafier.methods.contract import TrainSet


def held_out(train: TrainSet, check: NoHoldoutCheck) -> Tensor:
    """Numbers of the rows that are kept out of training.

    Where the original labels are known, rows that a person decided may be among them. People look
    at the worst rows first: without these, the labels would look better than they are.
    """
    share = check.share(int((_original(train) >= 0).sum()))
    return _selection.held_out(train, share) if train.original is None else train.holdout(share)


def trained_on(train: TrainSet, check: NoHoldoutCheck) -> Tensor:
    """Numbers of the labeled rows that are not held out."""
    return _selection.others(train, held_out(train, check))


def evidence(train: TrainSet, check: NoHoldoutCheck) -> tuple[Tensor, Tensor]:
    """Numbers of the held-out rows (m,), and the labels to compare their predictions with (m,).

    Rows that a person decided count with their original labels, where these are known.
    """
    held = held_out(train, check)
    return held, _original(train)[held]


def _original(train: TrainSet) -> Tensor:
    """The labels that came with the data (n,), as far as they are known."""
    return train.observed if train.original is None else train.original
