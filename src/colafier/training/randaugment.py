"""RandAugment that draws operations and strengths for each row, computed in groups of rows."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from colafier.training import pixels

SLOTS = 2  # operations drawn for each row, with replacement
APPLY = 0.5  # probability that a drawn operation is applied
LEVELS = 4  # strengths are drawn from 1 to this; the scale ends at 10
SQUARE = 0.15  # side of the gray square that is drawn last, as a share of the image


@dataclass(frozen=True)
class Strength:
    """Random numbers of one operation for a group of b rows, on the CPU."""

    level: Tensor  # (b,) whole numbers, on a scale to 10
    sign: Tensor  # (b,) -1 or 1
    place: Tensor  # (b, 2) in [0, 1)

    def scaled(self, span: float, start: float = 0.0) -> Tensor:
        """The level scaled to `span` at level 10, plus `start`."""
        return self.level.double() * span / 10 + start

    def whole(self, span: int) -> Tensor:
        """The level scaled to `span` at level 10, rounded down to a whole number."""
        return self.level * span // 10


Operation = Callable[[Tensor, Strength], Tensor]

# The sixteen operations of the authors' pool with their ranges, which are mild ones.
POOL: dict[str, Operation] = {
    "autocontrast": lambda x, _: pixels.autocontrast(x),
    "brightness": lambda x, s: pixels.brightness(x, s.scaled(1.8, 0.1)),
    "color": lambda x, s: pixels.color(x, s.scaled(1.8, 0.1)),
    "contrast": lambda x, s: pixels.contrast(x, s.scaled(1.8, 0.1)),
    "cutout": lambda x, s: pixels.square(x, s.place, (s.scaled(0.1) * min(x.shape[2:])).floor()),
    "equalize": lambda x, _: pixels.equalize(x),
    "invert": lambda x, _: pixels.invert(x),
    "posterize": lambda x, s: pixels.posterize(x, 4 + s.whole(4)),
    "rotate": lambda x, s: pixels.rotate(x, s.sign * s.whole(30)),
    "sharpness": lambda x, s: pixels.sharpness(x, s.scaled(1.8, 0.1)),
    "shear_x": lambda x, s: pixels.shear_x(x, s.sign * s.scaled(0.1)),
    "shear_y": lambda x, s: pixels.shear_y(x, s.sign * s.scaled(0.1)),
    "solarize": lambda x, s: pixels.solarize(x, 256 - s.whole(256)),
    "solarize_add": lambda x, s: pixels.solarize_add(x, s.sign * s.whole(110)),
    "translate_x": lambda x, s: pixels.translate_x(x, s.sign * s.scaled(0.05)),
    "translate_y": lambda x, s: pixels.translate_y(x, s.sign * s.scaled(0.05)),
}


def draw(n: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Draw operations, strengths and places for n rows; operation -1 means none."""
    operation = torch.randint(len(POOL), (n, SLOTS), generator=generator)
    applied = torch.rand(n, SLOTS, generator=generator) < APPLY
    return {
        "operation": operation.where(applied, -1),  # (n, SLOTS)
        "level": torch.randint(1, LEVELS + 1, (n, SLOTS), generator=generator),
        "sign": torch.randint(2, (n, SLOTS), generator=generator) * 2 - 1,
        "place": torch.rand(n, SLOTS + 1, 2, generator=generator),  # the last is of the square
    }


def apply(x: Tensor, draws: dict[str, Tensor]) -> Tensor:
    """Apply the drawn operations to images (b, c, h, w) in [0, 1], then draw a gray square.

    Note:
        Pool and ranges are those of the authors' code. Their code rounds shifts down to whole
        pixels, so images of 32 pixels never move; here shifts are rounded to the nearest pixel.
    """
    values = (x * 255).add_(0.5).floor_()  # a new tensor, so it may be changed in place
    for slot in range(SLOTS):
        drawn = draws["operation"][:, slot] + 1  # (b,), 0: none
        sizes = drawn.bincount(minlength=len(POOL) + 1).tolist()
        groups = torch.split(drawn.argsort(), sizes)[1:]  # row numbers, for each operation
        for operation, rows in zip(POOL.values(), groups, strict=True):
            if len(rows) == 0:
                continue
            strength = Strength(*(draws[k][rows, slot] for k in ("level", "sign", "place")))
            rows = rows.to(x.device)
            values[rows] = operation(values[rows], strength)
    side = torch.full((len(x),), int(min(x.shape[2:]) * SQUARE))
    return pixels.square(values, draws["place"][:, SLOTS], side).div_(255)
