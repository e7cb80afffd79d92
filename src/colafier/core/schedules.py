"""Values that change over the epochs."""

from math import cos, pi


def scaled(authors_value: int, epochs: int, authors_epochs: int, own: int | None = None) -> int:
    """An epoch-like setting of a paper, scaled to a run of another length; at least 1 if it was.

    Args:
        authors_value: Of the setting, in the authors' run.
        epochs: Of this run.
        authors_epochs: Of the authors' run.
        own: The value that a user chose instead; None: none.
    """
    if own is not None:
        return own
    if authors_value == 0:
        return 0
    return max(1, round(authors_value * epochs / authors_epochs))


def plain_epochs(authors_value: int, epochs: int, own: int | None = None) -> int:
    """A warm-up that does not shrink with the run: the authors', but no more than half of it.

    For methods that lose for good what the net has not learned when it ends, such as a class.

    Args:
        authors_value: Epochs of the warm-up in the authors' run.
        epochs: Of this run.
        own: The value that a user chose instead; None: none.
    """
    return min(authors_value, max(1, epochs // 2)) if own is None else own


def ramp(epoch: int, begin: int, length: int, start: float, end: float) -> float:
    """`start` at epoch `begin`, then linear, `end` at the last of `length` epochs and after."""
    if length <= 1:
        return end if epoch >= begin else start
    done = min(max((epoch - begin) / (length - 1), 0.0), 1.0)
    return start + (end - start) * done


def cosine(epoch: int, epochs: int, floor: float = 0.0) -> float:
    """1 at epoch 0, falling along a half cosine towards `floor` at the end."""
    return floor + (1 - floor) * (1 + cos(pi * epoch / max(epochs, 1))) / 2
