"""The normalization of a classifier's input, fitted once on the training rows."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Normalize:
    """Brings each channel of images, or each feature of vectors, to mean 0 and deviation 1."""

    mean: Tensor  # (c,) or (d,)
    std: Tensor  # (c,) or (d,)

    @classmethod
    def fit(cls, x: Tensor) -> "Normalize":
        """Fit on training rows; a constant feature gets deviation 1."""
        if x.dtype == torch.uint8:  # count bytes: exact, and no float copy of all images
            counts = torch.stack(
                [x[:, i].flatten().bincount(minlength=256) for i in range(x.shape[1])]
            )
            share = counts.double() / (x.numel() / x.shape[1])  # (c, 256)
            levels = torch.arange(256).double() / 255
            mean = share @ levels  # (c,)
            variance = (share * (levels - mean[:, None]).square()).sum(1)  # (c,)
        else:
            over = [i for i in range(x.ndim) if i != 1]
            variance, mean = torch.empty(2, x.shape[1], dtype=torch.double)
            for some in torch.split(torch.arange(x.shape[1]), 64):  # to save memory
                part = x[:, some].double()
                variance[some], mean[some] = torch.var_mean(part, over, correction=0)
        std = torch.where(variance > 0, variance.sqrt(), 1.0)
        return cls(mean.float(), std.float())

    def __call__(self, x: Tensor) -> Tensor:
        """Normalize images in [0, 1], or vectors."""
        shape = (-1,) + (1,) * (x.ndim - 2)
        return (x - self.mean.to(x).view(shape)).div_(self.std.to(x).view(shape))
