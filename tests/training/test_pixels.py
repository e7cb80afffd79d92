"""Every operation of RandAugment against Pillow, on real and on random images."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageOps
from sklearn.datasets import load_digits

from colafier.training import pixels
from colafier.training.randaugment import POOL, Strength


def random_images(channels, size, seed=0):
    """Smooth color ramps with some grain; the last image is of one color."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 1, size)
    slopes = rng.normal(size=(6, channels, 2, 1, 1))
    smooth = slopes[:, :, 0] * ramp + slopes[:, :, 1] * ramp[:, None]
    values = 110 + 70 * smooth + rng.normal(scale=8, size=(6, channels, size, size))
    values[-1] = 77
    return torch.tensor(values.clip(0, 255).round(), dtype=torch.float32)


def real_digits():
    images = load_digits().images[:6]
    return torch.tensor((images * 255 / 16).round(), dtype=torch.float32)[:, None]


IMAGES = {
    "digits": real_digits(),
    "gray28": random_images(1, 28),
    "color8": random_images(3, 8),
    "color32": random_images(3, 32),
    "color64": random_images(3, 64),
}


def to_pil(image):
    array = image.to(torch.uint8).numpy()
    return Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0))


def from_pil(image):
    array = torch.tensor(np.asarray(image), dtype=torch.float32)
    return array[None] if array.ndim == 2 else array.permute(2, 0, 1)


def transform(image, *coefficients):
    return image.transform(image.size, Image.Transform.AFFINE, coefficients)


def gray_square(image, place, side):
    """The square drawn by Pillow around a place that is given as shares of height and width."""
    width, height = image.size
    top = int(max(0, place[0] * height - side / 2))
    left = int(max(0, place[1] * width - side / 2))
    drawn = image.copy()
    fill = 127 if image.mode == "L" else (127, 127, 127)
    ImageDraw.Draw(drawn).rectangle((left, top, left + side, top + side), fill)
    return drawn


def solarize_add(image, addition):
    moved = ImageChops.add(
        image, Image.new(image.mode, image.size, (addition,) * len(image.getbands()))
    )
    if addition < 0:
        minus = Image.new(image.mode, image.size, (-addition,) * len(image.getbands()))
        moved = ImageChops.subtract(image, minus)
    return ImageOps.solarize(moved, 128)


def pillow(name, image, level, sign, place):
    """What the authors' pool asks of Pillow at a level of 10."""
    enhance = level * 1.8 / 10 + 0.1
    shear, share = sign * level * 0.1 / 10, sign * level * 0.05 / 10
    width, height = image.size
    results = {
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "brightness": lambda: ImageEnhance.Brightness(image).enhance(enhance),
        "color": lambda: ImageEnhance.Color(image).enhance(enhance),
        "contrast": lambda: ImageEnhance.Contrast(image).enhance(enhance),
        "cutout": lambda: gray_square(image, place, int(level * 0.1 / 10 * width)),
        "equalize": lambda: ImageOps.equalize(image),
        "invert": lambda: ImageOps.invert(image),
        "posterize": lambda: ImageOps.posterize(image, int(level * 4 / 10) + 4),
        "rotate": lambda: image.rotate(sign * int(level * 30 / 10)),
        "sharpness": lambda: ImageEnhance.Sharpness(image).enhance(enhance),
        "shear_x": lambda: transform(image, 1, shear, 0, 0, 1, 0),
        "shear_y": lambda: transform(image, 1, 0, 0, shear, 1, 0),
        "solarize": lambda: ImageOps.solarize(image, 256 - int(level * 256 / 10)),
        "solarize_add": lambda: solarize_add(image, sign * int(level * 110 / 10)),
        "translate_x": lambda: transform(image, 1, 0, share * width, 0, 1, 0),
        "translate_y": lambda: transform(image, 1, 0, 0, 0, 1, share * height),
    }
    return results[name]()


# Autocontrast divides in float32, enhancing may round a product the other way: 1 of 255.
TOLERANCE = {"autocontrast": 1, "brightness": 1, "color": 1, "contrast": 1, "sharpness": 1}


@pytest.mark.parametrize("images", IMAGES.values(), ids=IMAGES)
@pytest.mark.parametrize("name", POOL)
def test_operation_equals_pillow(name, images):
    b = len(images)
    place = torch.rand(b, 2, generator=torch.Generator().manual_seed(1))
    sign = torch.tensor([1, -1]).repeat(b)[:b]
    for first in range(1, 5):
        level = (torch.arange(b) + first) % 4 + 1
        found = POOL[name](images, Strength(level, sign, place))
        expected = torch.stack(
            [
                from_pil(pillow(name, to_pil(image), int(k), int(s), p.tolist()))
                for image, k, s, p in zip(images, level, sign, place, strict=True)
            ]
        )
        assert (found - expected).abs().max() <= TOLERANCE.get(name, 0)
        assert torch.equal(found, found.round())


@pytest.mark.parametrize("name", POOL)
def test_operation_does_something(name):
    """A parity test of an operation that changes nothing on either side would prove nothing."""
    images = IMAGES["color64"][:5]
    b = len(images)
    place = torch.full((b, 2), 0.5)
    found = POOL[name](
        images, Strength(torch.full((b,), 4), torch.ones(b, dtype=torch.long), place)
    )
    assert (found != images).flatten(1).any(1).sum() >= 3


@pytest.mark.parametrize("degrees", [-170, -45, 5, 90, 133])
def test_rotate_large_angles(degrees):
    images = IMAGES["color32"]
    found = pixels.rotate(images, torch.full((len(images),), degrees))
    expected = torch.stack([from_pil(to_pil(image).rotate(degrees)) for image in images])
    assert (found != expected).float().mean() < 0.002  # ties of nearest neighbors only


def test_rotate_images_that_are_not_square():
    images = IMAGES["color32"][:, :, :20]
    found = pixels.rotate(images, torch.full((len(images),), 12))
    expected = torch.stack([from_pil(to_pil(image).rotate(12)) for image in images])
    assert torch.equal(found, expected)


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.7, 3.0])
@pytest.mark.parametrize("name", ["Brightness", "Color", "Contrast", "Sharpness"])
def test_enhance_beyond_the_pool(name, factor):
    images = IMAGES["color32"]
    found = getattr(pixels, name.lower())(images, torch.full((len(images),), factor))
    expected = [from_pil(getattr(ImageEnhance, name)(to_pil(i)).enhance(factor)) for i in images]
    assert (found - torch.stack(expected)).abs().max() <= 1


def test_luma_equals_pillow():
    images = torch.randint(256, (4, 3, 64, 64), generator=torch.Generator().manual_seed(0)).float()
    expected = torch.stack([from_pil(to_pil(image).convert("L")) for image in images])
    assert torch.equal(pixels.luma(images), expected)


def test_color_leaves_gray_images_alone():
    assert torch.equal(pixels.color(IMAGES["digits"], torch.full((6,), 0.3)), IMAGES["digits"])


def test_square_at_the_border_is_cut_or_moved():
    x = torch.zeros(3, 1, 8, 8)
    place = torch.tensor([[0.0, 0.0], [0.99, 0.99], [0.5, 0.0]])
    covered = pixels.square(x, place, torch.full((3,), 2)) == 127
    assert covered.flatten(1).sum(1).tolist() == [9, 4, 9]
    assert covered[0, 0, :3, :3].all()
    assert covered[1, 0, 6:, 6:].all()
    assert covered[2, 0, 3:6, :3].all()


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (5, 2)])
def test_every_operation_takes_tiny_images(size):
    x = torch.full((4, 3, *size), 9.0)
    strength = Strength(torch.full((4,), 4), torch.ones(4), torch.rand(4, 2))
    for operation in POOL.values():
        assert operation(x, strength).shape == x.shape
