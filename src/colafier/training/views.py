"""Views: random augmentations of rows, and their normalization.

Drawing random numbers is separate from applying them. Each process draws the same numbers for the
whole batch, and applies only its share:
`view.apply(x[share], {k: v[share] for k, v in draws.items()})`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import torch
from torch import Tensor

from colafier.nets.inference import as_float
from colafier.nets.normalize import Normalize
from colafier.training import pixels, randaugment

Draws = dict[str, Tensor]
BYTE_MEAN, BYTE_DEVIATION = 127.5, ((256**2 - 1) / 12) ** 0.5  # of bytes drawn at random


class View(Protocol):
    """A random change of rows that keeps their class."""

    def draw(self, n: int, shape: tuple[int, ...], generator: torch.Generator) -> Draws:
        """Random numbers for n rows of one shape, as CPU tensors (n, ...)."""

    def apply(self, x: Tensor, draws: Draws) -> Tensor:
        """Change images (b, c, h, w) in [0, 1], or standardized vectors (b, d)."""


@dataclass(frozen=True)
class Plain:
    """Rows as they are."""

    def draw(self, n: int, shape: tuple[int, ...], generator: torch.Generator) -> Draws:  # noqa: ARG002
        """Nothing is random."""
        return {}

    def apply(self, x: Tensor, draws: Draws) -> Tensor:  # noqa: ARG002
        """The rows."""
        return x


@dataclass(frozen=True)
class WeakImage:
    """Mirrors half of the images, then crops after padding by reflection."""

    flip: bool = True

    def draw(self, n: int, shape: tuple[int, ...], generator: torch.Generator) -> Draws:
        """Whether to mirror, and where the crop starts relative to the image."""
        flipped = torch.rand(n, generator=generator) < 0.5
        border = torch.tensor([round(size / 8) for size in shape[1:]])  # (2,)
        start = (torch.rand(n, 2, generator=generator) * (2 * border + 1)).floor().long() - border
        return {"flip": flipped & self.flip, "start": start}

    def apply(self, x: Tensor, draws: Draws) -> Tensor:
        """The mirrored crops."""
        height, width = x.shape[2:]
        rows = _reflect(torch.arange(height) + draws["start"][:, :1], height)  # (b, h)
        columns = _reflect(torch.arange(width) + draws["start"][:, 1:], width)  # (b, w)
        columns = torch.where(draws["flip"][:, None], width - 1 - columns, columns)
        return pixels.pick(x, rows[:, :, None], columns[:, None, :])


@dataclass(frozen=True)
class StrongImage:
    """The weak view, then RandAugment."""

    flip: bool = True

    def draw(self, n: int, shape: tuple[int, ...], generator: torch.Generator) -> Draws:
        """Random numbers of the weak view and of RandAugment."""
        weak = WeakImage(self.flip).draw(n, shape, generator)
        return weak | randaugment.draw(n, generator)

    def apply(self, x: Tensor, draws: Draws) -> Tensor:
        """The augmented images."""
        return randaugment.apply(WeakImage(self.flip).apply(x, draws), draws)


@dataclass(frozen=True)
class NoisyVector:
    """Dropout on the features (the kept ones are scaled up to keep the mean), and a little noise.

    Expects standardized features, so that 0 is the mean and noise is in standard deviations.
    """

    drop: float  # probability that a feature is dropped
    noise: float  # standard deviation of what is added

    def draw(self, n: int, shape: tuple[int, ...], generator: torch.Generator) -> Draws:
        """Which features to keep, and the noise, as bytes: drawing floats takes longer."""
        return {
            "keep": _bytes(n, shape, generator) >= round(256 * self.drop),
            "noise": _bytes(n, shape, generator),
        }

    def apply(self, x: Tensor, draws: Draws) -> Tensor:
        """The noisy vectors."""
        kept = x * draws["keep"].to(x) / (1 - round(256 * self.drop) / 256)
        uniform = (draws["noise"].to(x) - BYTE_MEAN) / BYTE_DEVIATION  # with deviation 1
        noisy: Tensor = kept + self.noise * uniform
        return noisy


def render(x: Tensor, view: View, draws: Draws, normalize: Normalize) -> Tensor:
    """Augmented and normalized rows, ready for a net.

    Images are augmented as pixels and then normalized. Vectors are standardized first, because
    their view (0 for a dropped feature, noise of the same size for all) makes sense only then.
    """
    values = as_float(x)
    if x.ndim == 2:
        return view.apply(normalize(values), draws)
    return normalize(view.apply(values, draws))


def make_views(
    names: Sequence[str], row_shape: tuple[int, ...], *, flip: bool = True
) -> dict[str, View]:
    """Views by name for images (c, h, w) or vectors (d,); `flip`: whether to mirror images."""
    views: dict[str, View]
    if len(row_shape) == 3:
        views = {"plain": Plain(), "weak": WeakImage(flip), "strong": StrongImage(flip)}
    elif len(row_shape) == 1:
        weak, strong = NoisyVector(drop=0.1, noise=0.1), NoisyVector(drop=0.4, noise=0.2)
        views = {"plain": Plain(), "weak": weak, "strong": strong}
    else:
        raise ValueError(f"rows must be images (c, h, w) or vectors (d,), not of shape {row_shape}")
    unknown = [name for name in names if name not in views]
    if unknown:
        raise ValueError(f"no view is called {unknown[0]!r}; there are {', '.join(views)}")
    return {name: views[name] for name in names}


def _bytes(n: int, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Random bytes (n, ...); each number that is drawn gives eight of them."""
    count = n * prod(shape)
    words = torch.empty(-(-count // 8), dtype=torch.int64)
    words.random_(-(2**63), None, generator=generator)
    return words.view(torch.uint8)[:count].view(n, *shape)


def _reflect(i: Tensor, size: int) -> Tensor:
    """Positions outside 0..size-1 mirrored at the outermost pixel."""
    return size - 1 - (size - 1 - i.abs()).abs()
