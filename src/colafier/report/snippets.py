"""How a row is shown: a small picture, the start of a text, or the most informative columns."""

import base64
import io
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from colafier.ingest.dataset import Dataset

Bytes = npt.NDArray[np.uint8]
Show = Callable[[int, bool], dict[str, Any]]  # row number, small or not -> what the page shows

SIDE, SMALL_SIDE = 192, 72  # of pictures, in pixels
LENGTH, SMALL_LENGTH = 600, 200  # of texts, in characters
MAX_COLUMNS = 10  # of a table
MAX_CELL = 60  # characters


@dataclass(frozen=True)
class Snippets:
    """How to show the rows of a data set, and the typical values of table columns."""

    show: Show
    typical: dict[str, dict[str, str]] = field(default_factory=dict)  # column -> class -> value


def of_dataset(dataset: Dataset) -> Snippets:
    """For the rows of a user's data set."""
    items = dataset.items
    if dataset.kind == "image":
        return Snippets(lambda row, small: _of_file(items[row], small))
    if dataset.kind == "text":
        return Snippets(
            lambda row, small: {"text": _cut(items[row], SMALL_LENGTH if small else LENGTH)}
        )
    return of_table(items if dataset.kind == "table" else _as_frame(items), dataset.original)


def of_arrays(x: npt.NDArray[Any], original: Sequence[str | None]) -> Snippets:
    """For images (n, c, h, w) of bytes, or vectors (n, d)."""
    if x.ndim == 2:
        return of_table(_as_frame(x), original)
    return Snippets(lambda row, small: {"image": picture(x[row], SMALL_SIDE if small else SIDE)})


def of_table(frame: pd.DataFrame, original: Sequence[str | None]) -> Snippets:
    """The columns that separate the classes best, with typical values of each class."""
    labels = pd.Series(list(original), index=frame.index, dtype=object)
    columns = _informative(frame, labels)
    typical = {name: _typical(frame[name], labels) for name in columns}
    cells = frame[columns]

    def show(row: int, small: bool) -> dict[str, Any]:  # noqa: ARG001
        values = zip(columns, cells.iloc[row], strict=True)
        return {"features": [[str(name), _cell(value)] for name, value in values]}

    return Snippets(show, typical)


def picture(pixels: Bytes, side: int) -> str:
    """A data URI of an image (c, h, w), shrunk to a side; JPEG with Pillow, else PNG."""
    try:
        from colafier._optional import required

        pillow = required("PIL.Image", "images")
    except ImportError:  # the demo works without extras
        step = -(-max(pixels.shape[1:]) // side)
        return _uri("png", _png(pixels[:, ::step, ::step]))
    return _shrunk(pillow, pillow.fromarray(_channels_last(pixels)), side)


def _of_file(item: Any, small: bool) -> dict[str, Any]:
    """The picture of an image file, bytes or an array; the problem if it cannot be read."""
    from colafier.embed.images import Unreadable, decode

    try:
        return {"image": picture(decode(item, None), SMALL_SIDE if small else SIDE)}
    except Unreadable as error:  # it may have changed since the run started
        return {"text": f"no picture: {error}"}


def _shrunk(pillow: Any, image: Any, side: int) -> str:
    tiny = max(image.size) <= 64  # JPEG would blur so few pixels
    image.thumbnail((side, side), pillow.Resampling.LANCZOS)
    file = io.BytesIO()
    if tiny:
        image.save(file, "PNG", optimize=True)
    else:
        image.convert("RGB").save(file, "JPEG", quality=80)
    return _uri("png" if tiny else "jpeg", file.getvalue())


def _channels_last(pixels: Bytes) -> Bytes:
    """The form that Pillow expects: gray without a channel axis, or red, green, blue."""
    shown = pixels[:3] if len(pixels) >= 3 else pixels[:1]
    return np.ascontiguousarray(shown[0] if len(shown) == 1 else shown.transpose(1, 2, 0))


def _png(pixels: Bytes) -> bytes:
    """The content of a PNG file of an image (c, h, w), gray or in color."""
    rows = _channels_last(pixels)
    height, width = rows.shape[:2]
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if rows.ndim == 3 else 0, 0, 0, 0)
    lines = b"".join(b"\0" + row.tobytes() for row in rows)  # each line starts with its filter
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _uri(form: str, content: bytes) -> str:
    return f"data:image/{form};base64,{base64.b64encode(content).decode()}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length].rstrip() + " \u2026"


def _as_frame(x: npt.NDArray[Any]) -> pd.DataFrame:
    return pd.DataFrame(x, columns=[f"feature {number}" for number in range(x.shape[1])])


def _informative(frame: pd.DataFrame, labels: pd.Series) -> list[str]:
    """Names of the columns whose values differ most between classes."""
    if frame.shape[1] <= MAX_COLUMNS:
        return list(frame.columns)
    codes = labels.astype("category").cat.codes.to_numpy()
    known = codes >= 0
    scores = {}
    for name in frame.columns:
        values = frame[name]
        numeric = pd.api.types.is_numeric_dtype(values)
        numbers = values if numeric else values.astype(str).astype("category").cat.codes
        numbers = numbers.astype(float).to_numpy()[known]
        scores[name] = _between(np.nan_to_num(numbers), codes[known])
    return sorted(scores, key=lambda name: -scores[name])[:MAX_COLUMNS]


def _between(values: npt.NDArray[Any], codes: npt.NDArray[Any]) -> float:
    """The share of the variance that is between classes."""
    total = values.var()
    if not np.isfinite(total) or total == 0:
        return 0.0
    counts = np.bincount(codes)
    means = np.bincount(codes, weights=values) / np.maximum(counts, 1)
    return float((counts * (means - values.mean()) ** 2).sum() / len(values) / total)


def _typical(values: pd.Series, labels: pd.Series) -> dict[str, str]:
    """The median, or the most frequent value, of each class."""
    numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    found = {}
    for name, own in values.dropna().groupby(labels):
        found[str(name)] = _cell(own.median() if numeric else own.mode().iloc[0])
    return found


def _cell(value: Any) -> str:
    if value is None or value is pd.NA or value != value:
        return ""
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return _cut(str(value), MAX_CELL)
