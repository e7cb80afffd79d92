"""Arrays of a user as rows: which axis is what, what a pixel is, which rows are the same."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from colafier.ingest.content import content_key, duplicate_groups

Array = npt.NDArray[Any]
Channels = Literal["first", "last"]

NUMBERS_OF_CHANNELS = (1, 3, 4)  # by these the axis of the channels is known
WHITE = 255
DARK = 64  # the brightest pixel below which images are too dark for color operations


@dataclass(frozen=True)
class ImageLayout:
    """How images of a user become bytes (n, c, h, w); fixed by the first ones that are seen."""

    row_shape: tuple[int, ...]  # of one image, as it is given
    axis: int | None  # of the channels; None: there is none, images are gray
    whole: bool  # whether pixels are whole numbers
    scale: int  # what a pixel is multiplied by

    @classmethod
    def of(cls, x: Array, channels: Channels | None = None) -> "ImageLayout":
        """The layout of images (n, h, w), (n, h, w, c) or (n, c, h, w).

        An axis of 1, 3 or 4 is taken for the channels, if only the first or only the last one is
        such. Whole numbers are 0 to 255. Floats are 0 to 1 if none is larger, otherwise 0 to 255.
        """
        if x.size == 0:
            raise ValueError(f"X is empty: its shape is {x.shape}")
        axis = None if x.ndim == 3 else _channel_axis(x.shape, channels)
        whole = x.dtype.kind in "iu"
        scale = WHITE if not whole and x.max() <= 1 else 1
        if x.max() * scale < DARK:
            warnings.warn(
                f"the brightest pixel of X is {x.max():g} of {WHITE // scale}; "
                "scale the images to the whole range",
                stacklevel=4,
            )
        return cls(x.shape[1:], axis, whole, scale)

    def bring(self, x: Array) -> Tensor:
        """Images as bytes (n, c, h, w)."""
        if x.shape[1:] != self.row_shape:
            raise ValueError(f"X has rows of shape {x.shape[1:]}, but in fit of {self.row_shape}")
        if (x.dtype.kind in "iu") != self.whole:
            kind = "whole numbers" if self.whole else "floats"
            raise ValueError(f"X has pixels of type {x.dtype}, but in fit they were {kind}")
        top = WHITE // self.scale
        if x.min() < 0 or x.max() > top:
            raise ValueError(
                f"X has pixels from {x.min():g} to {x.max():g}; they must be from 0 to {top}"
                " (floats also from 0 to 1, all of them)"
            )
        x = x[:, None] if self.axis is None else np.moveaxis(x, self.axis, 1)
        if x.dtype != np.uint8:
            x = np.rint(x * float(self.scale)).astype(np.uint8)
        return as_tensor(x)


def trusted_mask(trusted: Any, observed: Tensor) -> Tensor | None:
    """Rows whose label is known to be right (n,), None if nobody said so."""
    if trusted is None:
        return None
    mask = np.asarray(trusted)
    if mask.dtype != bool or mask.shape != (len(observed),):
        raise ValueError(
            f"trusted must be {len(observed)} times True or False, one for each row, "
            f"not {mask.dtype} of shape {mask.shape}"
        )
    rows = torch.tensor(mask)
    without = (rows & (observed < 0)).nonzero()[:, 0]
    if len(without):
        raise ValueError(f"row {without[0]} is trusted but has no label")
    return rows


def same_rows(x: Tensor) -> Tensor:
    """For each row the number of its group of exact duplicates, -1 for rows without one (n,)."""
    return torch.tensor(duplicate_groups([content_key(row) for row in x.numpy()]))


def as_tensor(x: Array) -> Tensor:
    """The same memory where torch can take it, otherwise a copy."""
    return torch.from_numpy(np.require(x, requirements=["C", "W"]))


def _channel_axis(shape: tuple[int, ...], channels: Channels | None) -> int:
    if channels is not None:
        if channels not in ("first", "last"):
            raise ValueError(f"channels is 'first' or 'last', not {channels!r}")
        return 1 if channels == "first" else 3
    first, last = (shape[axis] in NUMBERS_OF_CHANNELS for axis in (1, 3))
    if first == last:
        found = "both the first and the last" if first else "neither the first nor the last"
        raise ValueError(
            f"X of shape {shape}: {found} axis of an image looks like channels (1, 3 or 4); "
            "say which one it is by channels='first' or channels='last'"
        )
    return 1 if first else 3
