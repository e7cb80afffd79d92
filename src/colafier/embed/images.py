"""Images of any kind to bytes of one size; one that cannot be read gives a reason, no error."""

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colafier._io import atomic_file
from colafier._optional import required
from colafier._progress import progress_bar
from colafier.ingest.content import KeyedFile
from colafier.ingest.image_files import EMPTY, problem_of

Bytes = npt.NDArray[np.uint8]
EXTRA = "images"
GAP = 2  # a JPEG is decoded at least this many times larger than needed, then resized
THREADS = min(os.cpu_count() or 1, 16)
CHUNK = 256  # rows decoded between two updates of the bar


class Unreadable(ValueError):
    """An image that cannot be read; the message is the reason, for the result table."""


def decode(item: Path | KeyedFile | bytes | npt.NDArray[Any], size: int | None) -> Bytes:
    """The image as bytes (3, size, size): its central square, resized.

    Transparent parts become white, the first frame of an animation is taken, EXIF rotation is
    applied, and of 16-bit values the upper 8 bits are kept.

    Args:
        item: A file, its bytes, or an array (h, w), (h, w, c) or (c, h, w) of uint8 or uint16.
        size: Side in pixels; None keeps height and width as they are.

    Raises:
        Unreadable: The image is damaged, beyond Pillow's size limit, or of an unknown format.
    """
    with _warnings_of_pillow():
        return _decode(item, size)


def decode_many(items: Sequence[Any], size: int) -> tuple[Bytes, dict[int, str]]:
    """Images (n, 3, size, size), zeros for unreadable ones, and the reasons by position."""
    images: Bytes = np.zeros((len(items), 3, size, size), np.uint8)
    problems = {}
    # Pillow releases the lock while it decodes; warning filters are set once for all threads
    with _warnings_of_pillow(), ThreadPoolExecutor(THREADS) as pool:
        for place, found in enumerate(pool.map(partial(_attempt, size=size), items)):
            if isinstance(found, str):
                problems[place] = found
            else:
                images[place] = found
    return images, problems


def decode_all(
    items: Sequence[Any], size: int, path: Path, *, progress: bool = True
) -> tuple["np.memmap[Any, np.dtype[np.uint8]]", dict[int, str]]:
    """Decode all rows into a `.npy` file that appears whole, and map it into memory.

    Returns:
        The images (n, 3, size, size), all zeros for rows with a problem, and the problems by row
        number. What is written to these images does not reach the file.
    """
    if not len(items):
        raise ValueError("there are no images to decode")
    problems: dict[int, str] = {}
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(items), 3, size, size)}
    with (
        atomic_file(path) as partial_path,
        partial_path.open("wb") as file,  # a full disk is an error here; a mapped file would crash
        progress_bar("decoding", len(items), progress) as advance,
    ):
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            images, reasons = decode_many(chunk, size)
            file.write(images.tobytes())
            problems |= {start + place: reason for place, reason in reasons.items()}
            advance(len(chunk))
    return np.lib.format.open_memmap(path, mode="c"), problems  # torch warns of read-only memory


@contextmanager
def _warnings_of_pillow() -> Iterator[None]:
    """Inside, an image over Pillow's limit is an error, and its other warnings are ignored."""
    image = required("PIL.Image", EXTRA)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", image.DecompressionBombWarning)
        yield


def _attempt(item: Any, size: int) -> Bytes | str:
    try:
        return _decode(item, size)
    except Unreadable as error:
        return str(error)


def _decode(item: Any, size: int | None) -> Bytes:
    pillow = required("PIL.Image", EXTRA)
    try:
        with _open(pillow, item) as image:
            if size is not None and image.format in ("JPEG", "MPO"):
                image.draft(None, (GAP * size, GAP * size))  # large photographs: many times faster
            color = _over_white(pillow, _to_8_bits(pillow, _upright(image)))
            return _pixels(color if size is None else _square(pillow, color, size))
    except Unreadable:
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise Unreadable(f"too large, or made to fill the memory: {error}") from error
    except pillow.UnidentifiedImageError:
        raise Unreadable("not an image, or of a format that Pillow does not know") from None
    except Exception as error:  # a damaged file can fail in any way
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise Unreadable(f"cannot be read: {reason}") from error


def _open(pillow: Any, item: Any) -> Any:
    """The image, with its header read but not its pixels."""
    if isinstance(item, np.ndarray):
        return pillow.fromarray(_height_width_channels(item))
    if isinstance(item, Path | KeyedFile):
        path = item.path if isinstance(item, KeyedFile) else item
        if reason := problem_of(path):
            raise Unreadable(reason)
        item = item.read() if isinstance(item, KeyedFile) else item.read_bytes()
    if isinstance(item, bytes | bytearray | memoryview):
        if not len(item):
            raise Unreadable(EMPTY)
        return pillow.open(io.BytesIO(item))
    raise Unreadable(f"a Path, bytes or an array is needed, not {type(item).__name__}")


def _height_width_channels(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array as Pillow takes it; a shape that can be read in two ways is refused."""
    if array.dtype not in (np.uint8, np.uint16, np.bool_):
        raise Unreadable(f"an array of {array.dtype}; give bytes from 0 to 255 (uint8)")
    if array.size == 0 or array.ndim not in (2, 3):
        raise Unreadable(f"an array of shape {array.shape}; give (h, w), (h, w, c) or (c, h, w)")
    if array.ndim == 3:
        last, first = array.shape[2] in (1, 3, 4), array.shape[0] in (1, 3, 4)
        if last == first:
            raise Unreadable(
                f"an array of shape {array.shape}: exactly one of its first and last side must be "
                "1, 3 or 4 channels"
            )
        array = array if last else array.transpose(1, 2, 0)
        array = array[:, :, 0] if array.shape[2] == 1 else array
    if array.dtype == np.uint16 and array.ndim == 3:
        array = (array >> 8).astype(np.uint8)  # Pillow has 16 bits for gray only
    return np.ascontiguousarray(array)


def _upright(image: Any) -> Any:
    """Rotated by its EXIF data; damaged EXIF data is ignored."""
    image.load()
    try:
        return required("PIL.ImageOps", EXTRA).exif_transpose(image)
    except Exception:  # the pixels are good: they were loaded above
        return image


def _to_8_bits(pillow: Any, image: Any) -> Any:
    """Gray images of more than 8 bits as 8 bits: the upper 8 of 16."""
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 0xFFFF:
        raise Unreadable(
            "its values are not within 8 or 16 bits, so black and white are not known; "
            "store it with 8 or 16 bits"
        )
    return pillow.fromarray((values >> 8).astype(np.uint8))


def _over_white(pillow: Any, image: Any) -> Any:
    """As RGB; transparent parts become white."""
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    white = pillow.new("RGBA", image.size, (255, 255, 255, 255))
    return pillow.alpha_composite(white, image).convert("RGB")


def _square(pillow: Any, image: Any, size: int) -> Any:
    """The central square, resized; in one step, as resizing a long strip would fill the memory.

    Bicubic, as in the training of pretrained nets: with bilinear interpolation the features of
    efficientnet_lite0 separate the classes of enlarged CIFAR-10 images clearly worse.
    """
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), pillow.Resampling.BICUBIC, box=box)


def _pixels(image: Any) -> Bytes:
    return np.ascontiguousarray(np.asarray(image, np.uint8).transpose(2, 0, 1))
