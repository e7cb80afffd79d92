"""Real image files of every kind, made with Pillow, and what is broken in them."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from own_data import write_images

from colafier.embed.encode import encode
from colafier.embed.images import Unreadable, decode, decode_all, decode_many
from colafier.ingest.read import read

Image = pytest.importorskip("PIL.Image", reason="pip install 'colafier[images]'")

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def content(image, kind="PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def colors(image) -> set[tuple[int, ...]]:
    """All colors in decoded pixels (3, h, w)."""
    return {tuple(pixel) for pixel in image.reshape(3, -1).T.tolist()}


def halves(left, right, mode="RGB", size=(8, 4)):
    image = Image.new(mode, size, left)
    image.paste(right, (size[0] // 2, 0, *size))
    return image


def test_color_file_is_channels_height_width(tmp_path: Path) -> None:
    halves(RED, BLUE).save(tmp_path / "a.png")
    pixels = decode(tmp_path / "a.png", None)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (3, 4, 8)
    assert pixels[:, 0, 0].tolist() == list(RED)
    assert pixels[:, 3, 7].tolist() == list(BLUE)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.new("L", (5, 5), 77), (77, 77, 77)),
        (Image.new("1", (5, 5), 1), WHITE),
        (Image.new("RGBA", (5, 5), (*RED, 0)), WHITE),
        (Image.new("RGBA", (5, 5), (*RED, 255)), RED),
        (Image.new("RGBA", (5, 5), (0, 0, 0, 51)), (204, 204, 204)),
        (Image.new("LA", (5, 5), (0, 51)), (204, 204, 204)),
        (Image.new("RGB", (5, 5), BLUE).convert("P"), BLUE),
        (Image.fromarray(np.full((5, 5), 200 * 256 + 9, np.uint16)), (200, 200, 200)),
    ],
    ids=["gray", "one bit", "transparent", "opaque", "part", "gray part", "palette", "16 bit"],
)
def test_every_mode_becomes_color(image, expected) -> None:
    assert colors(decode(content(image), 4)) == {expected}


def test_transparent_entry_of_a_palette_is_white() -> None:
    image = Image.new("P", (6, 6), 0)
    image.putpalette([*RED, *GREEN])
    assert colors(decode(content(image, transparency=0), None)) == {WHITE}
    assert colors(decode(content(image), None)) == {RED}


def test_print_colors() -> None:
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    (color,) = colors(decode(content(image, "JPEG", quality=100), None))
    assert np.abs(np.subtract(color, RED)).max() < 6


def test_16_bit_color_png() -> None:
    """Written by hand: Pillow reads these but does not write them."""

    def chunk(name, data):
        named = name + data
        return struct.pack(">I", len(data)) + named + struct.pack(">I", zlib.crc32(named))

    header = struct.pack(">IIBBBBB", 2, 2, 16, 2, 0, 0, 0)
    rows = b"".join(b"\0" + struct.pack(">6H", *[40000, 0, 65535] * 2) for _ in range(2))
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
    png += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    assert colors(decode(png, None)) == {(40000 >> 8, 0, 255)}


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_exif_rotation_is_applied(kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: left becomes top
    turned = decode(content(halves(RED, BLUE, size=(64, 32)), kind, exif=exif), None)
    assert turned.shape == (3, 64, 32)
    assert turned[0, 5].min() > 240  # red on top
    assert turned[2, -5].min() > 240


def test_damaged_exif_is_left_alone() -> None:
    image = content(halves(RED, BLUE), "PNG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xffgarbage")
    assert decode(image, None).shape == (3, 4, 8)


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_first_frame_of_an_animation(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in (RED, GREEN, BLUE)]
    options = {"lossless": True} if kind == "WEBP" else {}
    moving = content(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert colors(decode(moving, None)) == {RED}


@pytest.mark.parametrize("shape", [(40, 120, 3), (120, 40, 3), (10, 30, 3)])
def test_shorter_side_resized_then_center(shape) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    height, width = (round(side * 20 / min(shape[:2])) for side in shape[:2])
    resized = Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)
    top, left = (height - 20) // 2, (width - 20) // 2
    expected = np.asarray(resized)[top : top + 20, left : left + 20].transpose(2, 0, 1)
    away = np.abs(decode(pixels, 20).astype(int) - expected)
    assert away.max() <= 1


def test_resizing_does_not_alias() -> None:
    checks = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    assert np.abs(decode(checks, 8).astype(int) - 127).max() <= 2


def test_small_images_are_enlarged() -> None:
    enlarged = decode(content(halves(RED, BLUE, size=(4, 4))), 128)
    assert enlarged.shape == (3, 128, 128)
    assert enlarged[:, 64, 0].tolist() == list(RED)
    assert len(colors(enlarged)) > 10  # bicubic, not blocks


def test_a_long_strip_does_not_fill_the_memory() -> None:
    assert decode(np.zeros((1, 2_000_000), np.uint8), 64).shape == (3, 64, 64)


def test_a_large_photograph_looks_the_same_decoded_small(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 1200).astype(np.uint8)
    photo = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None], np.uint8(90)), -1)
    Image.fromarray(photo).save(tmp_path / "a.jpg", quality=95)
    Image.fromarray(photo).save(tmp_path / "a.png")
    small, exact = (decode(tmp_path / name, 32).astype(int) for name in ("a.jpg", "a.png"))
    assert np.abs(small - exact).max() <= 4


@pytest.mark.parametrize(
    ("array", "shape"),
    [
        (np.zeros((6, 5), np.uint8), (3, 6, 5)),
        (np.zeros((6, 5), bool), (3, 6, 5)),
        (np.zeros((6, 5, 1), np.uint8), (3, 6, 5)),
        (np.zeros((6, 5, 3), np.uint16), (3, 6, 5)),
        (np.zeros((6, 5, 4), np.uint8), (3, 6, 5)),
        (np.zeros((3, 6, 5), np.uint8), (3, 6, 5)),
        (np.zeros((1, 6, 5), np.uint8), (3, 6, 5)),
    ],
)
def test_arrays(array, shape) -> None:
    assert decode(array, None).shape == shape


def test_channels_first_keeps_its_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 6, 5), np.uint8)
    assert np.array_equal(decode(pixels, None), pixels)
    assert np.array_equal(decode(pixels.transpose(1, 2, 0), None), pixels)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (b"", "zero bytes"),
        (b"hello", "not an image"),
        (np.zeros((5, 5), np.float32), "uint8"),
        (np.zeros((3, 5, 3), np.uint8), "exactly one"),
        (np.zeros((5, 5, 2), np.uint8), "exactly one"),
        (np.zeros((0, 5), np.uint8), "shape"),
        ("a.png", "Path"),
        (Path("nowhere.png"), "missing file"),
        (Path("."), "not a file"),
    ],
)
def test_unreadable(item, reason) -> None:
    with pytest.raises(Unreadable, match=reason):
        decode(item, 8)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF"])
def test_truncated_file(kind: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    sound = content(Image.fromarray(noise), kind)
    assert decode(sound, 8).shape == (3, 8, 8)
    (tmp_path / "a").write_bytes(sound[: len(sound) // 2])
    with pytest.raises(Unreadable):
        decode(tmp_path / "a", 8)


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    with pytest.raises(Unreadable, match="zero bytes"):
        decode(tmp_path / "a.jpg", 8)


@pytest.mark.parametrize("limit", [99, 40], ids=["warning", "error"])
def test_limit_of_pillow_is_kept(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    image = content(Image.new("RGB", (10, 10)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(Unreadable, match="too large"):
        decode(image, 8)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert decode(image, 8).shape == (3, 8, 8)


def test_float_tiff_is_refused() -> None:
    image = Image.fromarray(np.full((5, 5), 0.5, np.float32))
    with pytest.raises(Unreadable, match="8 or 16 bits"):
        decode(content(image, "TIFF"), 8)


def test_many_name_the_places_of_problems() -> None:
    good = content(Image.new("RGB", (8, 8), RED))
    images, problems = decode_many([good, b"", good], 8)
    assert problems == {1: "zero bytes"}
    assert images[:, 0, 0, 0].tolist() == [255, 0, 255]


def test_all_rows_are_decoded_once_into_a_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("colafier.embed.images.CHUNK", 4)
    items = [content(Image.new("L", (8, 8), 20 * row + 1)) for row in range(10)]
    items[5] = b"broken"
    images, problems = decode_all(items, 8, tmp_path / "images.npy", progress=False)
    assert isinstance(images, np.memmap)
    assert list(problems) == [5]
    expected = [20 * row + 1 if row != 5 else 0 for row in range(10)]
    assert images[:, 1, 3, 3].tolist() == expected
    assert np.array_equal(np.load(tmp_path / "images.npy"), images)
    assert [path.name for path in tmp_path.iterdir()] == ["images.npy"]
    images[0] = 7
    assert np.load(tmp_path / "images.npy")[0, 1, 3, 3] == 1, "the file does not change"


def test_nothing_is_left_of_an_interrupted_decoding(tmp_path: Path, monkeypatch) -> None:
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("colafier.embed.images.decode_many", interrupt)
    with pytest.raises(KeyboardInterrupt):
        decode_all([b""], 8, tmp_path / "images.npy", progress=False)
    assert not list(tmp_path.iterdir())


def test_no_images_to_decode(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no images"):
        decode_all([], 8, tmp_path / "images.npy")


def test_pixels_of_a_file_that_is_replaced_are_not_used(tmp_path: Path) -> None:
    dataset = read(write_images(tmp_path / "images", each=3))
    keys = dataset.content_keys()
    dataset.items[1].write_bytes(dataset.items[5].read_bytes())
    rows = encode(dataset, mode="end-to-end", size=8, work=tmp_path, progress=False)
    assert list(rows.problems) == [1]
    assert "was changed while the data set was read" in rows.problems[1]
    assert dataset.content_keys() == keys
