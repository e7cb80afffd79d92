"""A user's rows as numbers: embedded, encoded or decoded; and new rows in the same way."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colafier import embed
from colafier.ingest.content import keyed
from colafier.ingest.dataset import Dataset

TABLE = "table.json"
BRIGHTNESS = (0.299, 0.587, 0.114)  # of red, green and blue
PIXELS = "pixels.npy"
SIZE = 32  # side of images in mode end-to-end
NEEDED = {"table": ("file",), "image": ("size",), "text": ("embedder",)}  # without an embedder
Files = dict[str, Callable[[Path], Any]]


@dataclass(frozen=True)
class EncodedData:
    """The usable rows of a data set as numbers."""

    x: Tensor  # (m, d) floats, or (m, channels, size, size) bytes
    rows: list[int]  # their row numbers in the data set
    problems: dict[int, str]  # the other row numbers, and why these rows cannot be used
    input: dict[str, Any]  # how rows become numbers; stored with the model
    files: Files = field(default_factory=dict)  # what the model needs beside its weights


def encode(
    dataset: Dataset,
    *,
    mode: str = "features",
    embedder: str = "auto",
    size: int | None = None,
    cache: Path | None = None,
    work: Path | None = None,
    progress: bool = True,
) -> EncodedData:
    """Turn the rows of a data set into numbers for the first time.

    Args:
        dataset: What was read.
        mode: `features` embeds images and texts; `end-to-end` leaves images as pixels.
        embedder: See `embed.embedder`.
        size: Side of the images in pixels.
        cache: Folder of the cache of embeddings; None: no cache.
        work: Folder for the decoded pixels of mode `end-to-end`; None: they are kept in memory.
        progress: Whether to show a bar.
    """
    kind = dataset.kind
    how: dict[str, Any]
    if mode == "end-to-end" and kind != "image":
        raise ValueError(f"mode end-to-end is for images, these rows are of kind {kind}")
    if mode == "end-to-end":
        items = dataset.items  # an array is in memory already; files are compared with their keys
        if isinstance(items, list):
            items = keyed(items, dataset.content_keys())
        how = {"kind": "image", "size": size or SIZE}
        return _decoded(dataset, items, how, work, progress)
    if kind in ("image", "text"):
        net = embed.embedder(embedder, "image" if kind == "image" else "text", size)
        how = {"kind": kind, "embedder": net.name, "embedder_key": net.key, "size": size}
        return _embedded(dataset, net, how, cache, progress)
    if kind == "vector":
        return _usable(dataset, np.asarray(dataset.items, np.float32), {"kind": "vector"})
    from colafier.embed.tables import TableEncoder

    encoder = TableEncoder()
    rows = _rows_without(dataset.problems, dataset)
    x = torch.from_numpy(encoder.fit(dataset.items.iloc[rows]))  # (m, d)
    how = {"kind": "table", "file": TABLE, "columns": list(encoder.kinds)}
    return EncodedData(x, rows, dict(dataset.problems), how, {TABLE: encoder.save})


def encode_again(
    dataset: Dataset,
    how: Mapping[str, Any],
    folder: Path,
    *,
    cache: Path | None = None,
    progress: bool = True,
) -> EncodedData:
    """Turn new rows into numbers in the way of the rows that a model was trained on.

    Args:
        dataset: The new rows.
        how: `EncodedData.input` of those rows, from the model.
        folder: Of the model, with the files that belong to it.
        cache: Folder of the cache of embeddings; None: no cache.
        progress: Whether to show a bar.
    """
    kind = how["kind"]
    needed = ("embedder_key",) if "embedder" in how else NEEDED.get(kind, ())
    if missing := [name for name in needed if how.get(name) is None]:
        raise ValueError(
            f"the model in {folder} does not say how rows become numbers: its input "
            f"has no {missing[0]}; save it again with the run that made it"
        )
    if dataset.kind != kind:
        raise ValueError(
            f"the model was trained on rows of kind {kind}, but {dataset.source} was read as "
            f"{dataset.kind}; name the columns with --image, --text or --features"
        )
    if kind == "vector":
        return _usable(dataset, np.asarray(dataset.items, np.float32), dict(how))
    if kind == "table":
        from colafier.embed.tables import TableEncoder

        rows = _rows_without(dataset.problems, dataset)
        encoder = TableEncoder.load(folder / how["file"])
        x = torch.from_numpy(encoder.transform(dataset.items.iloc[rows]))  # (m, d)
        return EncodedData(x, rows, dict(dataset.problems), dict(how))
    if "embedder" not in how:
        return _decoded(dataset, dataset.items, dict(how), None, progress)
    net = embed.embedder(how["embedder"], kind, how.get("size"))
    if net.key != how["embedder_key"]:
        raise ValueError(f"{net.name} here is not the one that the model was trained with")
    return _embedded(dataset, net, dict(how), cache, progress)


def _embedded(
    dataset: Dataset,
    net: embed.Embedder,
    how: dict[str, Any],
    cache: Path | None,
    progress: bool,
) -> EncodedData:
    keys = dataset.content_keys()
    features, problems = embed.embed(dataset.items, keys, net, cache=cache, progress=progress)
    return _usable(dataset, features, how, problems)


def _decoded(
    dataset: Dataset, items: Sequence[Any], how: dict[str, Any], work: Path | None, progress: bool
) -> EncodedData:
    from colafier.embed import images

    pixels: np.ndarray
    if work is None:
        pixels, problems = images.decode_many(items, how["size"])
    else:
        path = work / PIXELS
        pixels, problems = images.decode_all(items, how["size"], path, progress=progress)
    if how.get("channels") == 1:
        pixels = _gray(pixels)
    return _usable(dataset, pixels, how, problems)


def _gray(pixels: np.ndarray) -> np.ndarray:
    """Images (m, 3, size, size) in color as their brightness (m, 1, size, size)."""
    brightness = np.tensordot(pixels, BRIGHTNESS, axes=(1, 0))  # (m, size, size)
    return np.rint(brightness)[:, None].astype(np.uint8)


def _rows_without(problems: Mapping[int, str], dataset: Dataset) -> list[int]:
    return [row for row in range(len(dataset)) if row not in problems]


def _usable(
    dataset: Dataset,
    x: np.ndarray,
    how: dict[str, Any],
    found: Mapping[int, str] | None = None,
) -> EncodedData:
    """The rows without a problem; the others are listed with their reasons."""
    problems = {**(found or {}), **dataset.problems}
    rows = _rows_without(problems, dataset)
    if not rows:
        reasons = "; ".join(sorted(set(problems.values()))[:3])
        raise ValueError(f"none of the {len(dataset):,} rows can be used: {reasons}")
    x = x[rows] if problems else x
    return EncodedData(torch.from_numpy(np.ascontiguousarray(x)), rows, problems, how)
