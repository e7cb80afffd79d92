"""Features or images with their labels from an .npz file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from colafier.ingest import image_files
from colafier.ingest.column_roles import ReadOptions, labels_of
from colafier.ingest.dataset import Dataset, listed
from colafier.readers import arrays

FEATURE_NAMES = ("features", "X", "x", "embeddings")
LABEL_NAMES = ("labels", "y", "label", "given")
MAX_FEATURES = 2**18  # of a row

Array = np.ndarray[Any, Any]


def read_npz(source: Path, wanted: ReadOptions) -> Dataset:
    """Rows of an .npz file: vectors (n, d) of numbers, or images (n, h, w[, c]) of bytes."""
    if wanted.text is not None or (wanted.features is not None and len(wanted.features) > 1):
        raise ValueError(f"{source}: an .npz file has one array of features or images; name that")
    asked = wanted.features[0] if wanted.features else wanted.image
    with arrays.opened(source) as archive:
        name = _name(source, archive.names, asked, FEATURE_NAMES, "features")
        label = _label_name(source, archive.names, wanted)
        rows = archive.read(name)
        values = None if label is None else archive.read(label)
    items, kind, problems = _items(source, rows, name)
    frame = pd.DataFrame(index=range(len(items)))
    if values is not None:
        values = _label_values(source, values, str(label), name, len(items))
        frame[label] = pd.Series(values, dtype=_column_type(values))
    original = labels_of(frame, label, wanted.missing)
    names = [str(row) for row in range(len(items))]
    return Dataset(
        source, "npz", kind, names, original, items, label, (name,), problems, frame, source
    )


def _label_name(source: Path, found: Sequence[str], wanted: ReadOptions) -> str | None:
    needed = wanted.labeled or wanted.label is not None
    if not needed and not set(found) & set(LABEL_NAMES):
        return None
    return _name(source, found, wanted.label, LABEL_NAMES, "labels")


def _name(
    source: Path, found: Sequence[str], asked: str | None, usual: Sequence[str], what: str
) -> str:
    """The array that was asked for, or the first with a usual name."""
    names = [name for name in ([asked] if asked is not None else usual) if name in found]
    if not names:
        expected = repr(asked) if asked is not None else " or ".join(usual)
        raise ValueError(
            f"{source} has no array of {what} called {expected}; it has {listed(found) or 'none'}"
        )
    return names[0]


def _items(source: Path, rows: Array, name: str) -> tuple[Array, str, dict[int, str]]:
    """The rows as they are used, their kind, and those that cannot be used."""
    if rows.ndim in (3, 4):
        image_files.check_image_array(rows, name)
        return rows, "image", {}
    if rows.ndim != 2 or rows.dtype.kind not in "biuf":
        raise ValueError(
            f"{source}: array {name} is {rows.dtype} of shape {rows.shape}; expected numbers of "
            "shape (n, d), or uint8 images of shape (n, h, w) or (n, h, w, c)"
        )
    if rows.shape[1] > MAX_FEATURES:
        raise ValueError(
            f"{source}: array {name} has {rows.shape[1]:,} features per row, but no more than "
            f"{MAX_FEATURES:,} are used; give images as uint8 arrays, or reduce the features first"
        )
    with np.errstate(over="ignore"):  # beyond float32 is infinite, which is reported
        vectors = rows.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(vectors).all(1))
    return vectors, "vector", dict.fromkeys(bad.tolist(), "not finite")


def _label_values(source: Path, values: Array, label: str, features: str, n: int) -> Array:
    """The labels (n,), checked."""
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "biufSU":
        raise ValueError(
            f"{source}: array {label} is {values.dtype} of shape {values.shape}; expected one "
            "number or text per row (for one-hot rows give labels.argmax(1))"
        )
    if len(values) != n:
        raise ValueError(
            f"{source}: {features} has {n} rows but {label} has {len(values)}; they must match"
        )
    return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values


def _column_type(values: Array) -> Any:
    return object if values.dtype.kind == "U" else values.dtype
