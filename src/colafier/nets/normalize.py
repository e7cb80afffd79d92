"""The normalization of a classifier's input: fitted on the training rows, or with fixed values."""

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


# What the authors of CoLafier use. The deviations are a common mistake: those of all pixels of
# CIFAR-10 are .2470, .2435 and .2616.
CIFAR10_AUTHORS = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
STATISTICS = ("fitted", "cifar10-authors")


def check_statistics(name: str, row_shape: tuple[int, ...]) -> None:
    """Refuse a name that is not in `STATISTICS`, or statistics that do not fit the rows."""
    if name not in STATISTICS:
        raise ValueError(f"input_statistics must be one of {', '.join(STATISTICS)}, not {name!r}")
    if name != "fitted" and (len(row_shape) != 3 or row_shape[0] != len(CIFAR10_AUTHORS[0])):
        raise ValueError(f"input_statistics {name} are for images with three channels")


def input_statistics(name: str, x: Tensor) -> Normalize:
    """The normalization with this name in `STATISTICS`, for training rows `x`."""
    check_statistics(name, tuple(x.shape[1:]))
    if name == "fitted":
        return Normalize.fit(x)
    mean, std = CIFAR10_AUTHORS
    return Normalize(torch.tensor(mean), torch.tensor(std))
