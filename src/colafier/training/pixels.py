"""Image operations on whole batches with parameters for each row, which match Pillow's results.

Images are (b, c, h, w) floats that hold whole numbers from 0 to 255. Each operation returns whole
numbers again, so that a sequence of them still matches Pillow. Outside the image, pixels are black.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

GRAY = 127  # fill of `square`


def per_row(values: Tensor, x: Tensor) -> Tensor:
    """Values (b,) reshaped to broadcast over the images of x, on its device."""
    return values.to(x)[:, None, None, None]


def pick(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The pixels at these positions of each image; rows and columns broadcast to (b, h, w)."""
    place = (rows * x.shape[3] + columns).flatten(1)  # (b, h * w)
    places = place.to(x.device)[:, None].expand(-1, x.shape[1], -1)
    return x.flatten(2).gather(2, places).view_as(x)


def luma(x: Tensor) -> Tensor:
    """Gray images (b, 1, h, w): weights of ITU-R 601 for 3 channels, otherwise the mean."""
    if x.shape[1] == 3:
        weights = x.new_tensor([19595, 38470, 7471])  # out of 65536: sums stay exact in float32
        total = (x * weights[:, None, None]).sum(1, keepdim=True)  # (b, 1, h, w)
        return (total / 65536 + 0.5).floor()
    return x.mean(1, keepdim=True).add(0.5).floor()


def blend(start: Tensor, x: Tensor, factor: Tensor) -> Tensor:
    """Interpolate from `start` (factor 0) to x (factor 1), and extrapolate beyond it."""
    return (start + per_row(factor, x) * (x - start)).clamp(0, 255).floor()


def brightness(x: Tensor, factor: Tensor) -> Tensor:
    """Change the brightness; factor 0 gives black."""
    return blend(torch.zeros_like(x), x, factor)


def color(x: Tensor, factor: Tensor) -> Tensor:
    """Change the color saturation; factor 0 gives gray. One-channel images stay as they are."""
    return x if x.shape[1] == 1 else blend(luma(x), x, factor)


def contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Change the contrast; factor 0 gives the mean gray of the image."""
    return blend(luma(x).mean((2, 3), keepdim=True).add(0.5).floor(), x, factor)


def sharpness(x: Tensor, factor: Tensor) -> Tensor:
    """Change the sharpness; factor 0 gives a smoothed image. Border pixels are not smoothed."""
    if min(x.shape[2:]) < 3:
        return x  # all pixels are border pixels
    kernel = x.new_ones(3, 3)
    kernel[1, 1] = 5
    smooth = x.clone()
    inner = F.conv2d(x.flatten(0, 1)[:, None], kernel[None, None] / 13)  # (b * c, 1, h - 2, w - 2)
    smooth[:, :, 1:-1, 1:-1] = inner.view_as(smooth[:, :, 1:-1, 1:-1]).add(0.5).floor()
    return blend(smooth, x, factor)


def autocontrast(x: Tensor) -> Tensor:
    """Stretch each channel to the range 0 to 255."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)  # (b, c, 1, 1)
    stretched = ((x - low) * 255 / (high - low).clamp(min=1)).floor()
    return torch.where(high > low, stretched, x)


def equalize(x: Tensor) -> Tensor:
    """Flatten the histogram of each channel; as in Pillow, below 256 pixels nothing changes."""
    values = x.flatten(0, 1).flatten(1).long()  # (b * c, h * w)
    channels, size = values.shape
    offset = torch.arange(channels, device=x.device)[:, None] * 256
    counts = torch.bincount((values + offset).flatten(), minlength=channels * 256).view(-1, 256)
    brightest = counts.gather(1, values.amax(1, keepdim=True))  # (b * c, 1)
    step = (size - brightest) // 255  # (b * c, 1)
    below = counts.cumsum(1) - counts  # (b * c, 256)
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table.gather(1, values), values).view(x.shape).to(x)


def invert(x: Tensor) -> Tensor:
    """The negative of the image."""
    return 255 - x


def posterize(x: Tensor, bits: Tensor) -> Tensor:
    """Keep only the highest bits of each value."""
    step = per_row(2.0 ** (8 - bits), x)
    return (x / step).floor() * step


def solarize(x: Tensor, threshold: Tensor) -> Tensor:
    """Invert values at or above the threshold."""
    return torch.where(x < per_row(threshold, x), x, 255 - x)


def solarize_add(x: Tensor, addition: Tensor) -> Tensor:
    """Add to all values, then invert those at or above 128."""
    moved = (x + per_row(addition, x)).clamp(0, 255)
    return torch.where(moved < 128, moved, 255 - moved)


def square(x: Tensor, place: Tensor, side: Tensor) -> Tensor:
    """Draw a gray square around a place (b, 2), given as fractions of height and width.

    Note:
        Both end pixels are filled, as Pillow does: `side` 4 covers 5 x 5 pixels. A square that
        would start outside the image is moved inside; one that would end outside is cut off.
    """
    height, width = x.shape[2:]
    start = (
        (place * torch.tensor([height, width]) - side[:, None] / 2).clamp(min=0).floor()
    )  # (b, 2)
    away = [torch.arange(size) - start[:, i : i + 1] for i, size in enumerate((height, width))]
    down, right = ((d >= 0) & (d <= side[:, None]) for d in away)  # (b, h), (b, w)
    inside = (down[:, :, None] & right[:, None, :])[:, None]  # (b, 1, h, w)
    return x.masked_fill(inside.to(x.device), GRAY)


def affine(x: Tensor, matrix: Tensor) -> Tensor:
    """Take each pixel from the position that the matrix (b, 2, 3) maps it to, nearest neighbor.

    Note:
        Coordinates are pixel centers in fixed point with 16 binary digits, as in Pillow.
    """
    height, width = x.shape[2:]
    centered = matrix.clone()
    centered[:, :, 2] += matrix[:, :, :2].sum(2) / 2
    fixed = (centered * 65536 + 0.5).floor()  # (b, 2, 3)
    number = torch.arange(height * width)
    grid = torch.stack([number % width, number // width, torch.ones_like(number)])  # (3, h * w)
    source = (fixed @ grid.double() / 65536).floor().long()  # (b, 2, h * w)
    kept = source.clamp(min=0).minimum(torch.tensor([[width - 1], [height - 1]]))
    inside = (source == kept).all(1).view(-1, 1, height, width)
    columns, rows = kept.view(-1, 2, height, width).unbind(1)
    return pick(x, rows, columns) * inside.to(x)


def shear_x(x: Tensor, amount: Tensor) -> Tensor:
    """Shift each line by `amount` times its distance from the top."""
    matrix = _identity(len(x))
    matrix[:, 0, 1] = amount
    return affine(x, matrix)


def shear_y(x: Tensor, amount: Tensor) -> Tensor:
    """Shift each column by `amount` times its distance from the left."""
    matrix = _identity(len(x))
    matrix[:, 1, 0] = amount
    return affine(x, matrix)


def translate_x(x: Tensor, share: Tensor) -> Tensor:
    """Shift the image left by a share of its width."""
    matrix = _identity(len(x))
    matrix[:, 0, 2] = share * x.shape[3]
    return affine(x, matrix)


def translate_y(x: Tensor, share: Tensor) -> Tensor:
    """Shift the image up by a share of its height."""
    matrix = _identity(len(x))
    matrix[:, 1, 2] = share * x.shape[2]
    return affine(x, matrix)


def rotate(x: Tensor, degrees: Tensor) -> Tensor:
    """Rotate counterclockwise around the center."""
    angle = -degrees.double() * math.pi / 180
    cos, sin = angle.cos(), angle.sin()
    center_y, center_x = x.shape[2] / 2, x.shape[3] / 2
    first = [cos, sin, center_x - cos * center_x - sin * center_y]
    second = [-sin, cos, center_y + sin * center_x - cos * center_y]
    return affine(x, torch.stack([torch.stack(first, 1), torch.stack(second, 1)], 1))


def _identity(n: int) -> Tensor:
    """Identity transforms (n, 2, 3)."""
    return torch.eye(2, 3, dtype=torch.float64).repeat(n, 1, 1)
