"""Image files and bytes, recognized by name and first bytes; nothing is decoded here."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
BEGINNINGS = {
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG\r\n\x1a\n": ".png",
    b"GIF8": ".gif",
    b"BM": ".bmp",
    b"II*\x00": ".tif",
    b"MM\x00*": ".tif",
}

NO_IMAGE, NO_FILE, NOT_A_FILE, EMPTY = "no image", "missing file", "not a file", "zero bytes"
MAX_MIB = 512  # of a file: an image at Pillow's limit, not compressed, with 16 bits, has less

ImageItem = Path | bytes | None


def is_image_name(name: str) -> bool:
    """Whether a path has the suffix of an image file."""
    return os.path.splitext(name)[1].lower() in SUFFIXES


def suffix_of(content: bytes) -> str | None:
    """The usual file suffix for these bytes; None if they are not an image."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return ".webp"
    return next((end for begin, end in BEGINNINGS.items() if content.startswith(begin)), None)


def looks_like_image(value: Any) -> bool:
    """Whether a cell can be an image: a path, bytes, or a dictionary of both (Hugging Face)."""
    if isinstance(value, dict):
        return looks_like_image(value.get("bytes") or value.get("path"))
    if isinstance(value, bytes):
        return suffix_of(value) is not None
    return isinstance(value, str) and is_image_name(value)


def from_cells(cells: Sequence[Any], folder: Path) -> tuple[list[ImageItem], list[str]]:
    """Images of the cells of a column, whose paths are relative to a folder, and their names."""
    items = [_item(cell, folder) for cell in cells]
    return items, [_name(cell, row) for row, cell in enumerate(cells)]


def problem_of(item: ImageItem) -> str | None:
    """Why an image cannot be used; None if nothing is wrong without decoding it."""
    if item is None:
        return NO_IMAGE
    if isinstance(item, bytes):
        return None if item else EMPTY
    try:
        found = os.stat(item)
    except (OSError, ValueError):  # a NUL character in a path is a ValueError
        return NO_FILE
    if not stat.S_ISREG(found.st_mode):
        return NOT_A_FILE
    if found.st_size > MAX_MIB << 20:
        return f"larger than {MAX_MIB} MiB"
    return None if found.st_size else EMPTY


def problems_of(items: Sequence[ImageItem]) -> dict[int, str]:
    """The rows whose images cannot be used, with the reason."""
    reasons = {row: problem_of(item) for row, item in enumerate(items)}
    return {row: reason for row, reason in reasons.items() if reason is not None}


def check_image_array(images: "np.ndarray[Any, Any]", name: str) -> None:
    """Refuse arrays that are not images (n, h, w) or (n, h, w, c) of bytes."""
    if images.dtype != np.uint8:
        raise ValueError(
            f"array {name} is {images.dtype} of shape {images.shape}: images must be uint8, "
            "0 to 255; convert them, or give vectors of shape (n, d)"
        )
    if 0 in images.shape[1:]:
        raise ValueError(f"array {name} has shape {images.shape}: its images have no pixels")
    if images.ndim == 4 and images.shape[3] not in (1, 3, 4):
        raise ValueError(
            f"array {name} has shape {images.shape}: images are (n, h, w, c) with 1, 3 or 4 "
            f"channels last; move them with numpy.moveaxis({name}, 1, 3)"
        )


def _item(cell: Any, folder: Path) -> ImageItem:
    """None for an empty cell."""
    if isinstance(cell, dict):
        content = cell.get("bytes")
        return _item(cell.get("path") if content is None else content, folder)
    if isinstance(cell, bytes):
        return cell
    return folder / cell if isinstance(cell, str) and cell.strip() else None


def _name(cell: Any, row: int) -> str:
    """The path of an image, or else the row number."""
    if isinstance(cell, dict):
        cell = cell.get("path")
    return cell if isinstance(cell, str) and cell.strip() else str(row)
