"""A user's rows as numbers: embedded once, encoded, or decoded; and new rows in the same way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colafier import embed
from colafier.ingest.dataset import Dataset

TABLE = "table.skops"
PIXELS = "pixels.npy"
Files = dict[str, Callable[[Path], Any]]


@dataclass(frozen=True)
class EncodedData:
    """The rows of a collection that can be used."""

    x: Tensor  # (m, d) floats, or (m, 3, size, size) bytes
    rows: list[int]  # their places in the collection
    problems: dict[int, str]  # the other places, and why
    input: dict[str, Any]  # how they came to be, for the model
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
    """Turn a collection into numbers for the first time.

    Args:
        dataset: What was read.
        mode: `frozen` embeds images and texts; `scratch` leaves images as pixels.
        embedder: See `embed.embedder`.
        size: Side of the images in pixels.
        cache: Folder of the cache of embeddings; None: no cache.
        work: Folder for the decoded pixels of the scratch lane.
        progress: Whether to show a bar.
    """
    kind = dataset.kind
    if mode == "end-to-end" and kind != "image":
        raise ValueError(f"the scratch lane is for images, these rows are of kind {kind}")
    if mode == "end-to-end":
        side = size or 32
        return _decoded(dataset, {"kind": "image", "size": side}, work, progress)
    if kind in ("image", "text"):
        net = embed.embedder(embedder, "image" if kind == "image" else "text", size)
        said: dict[str, Any] = {
            "kind": kind,
            "embedder": net.name,
            "embedder_key": net.key,
            "size": size,
        }
        return _embedded(dataset, net, said, cache, progress)
    if kind == "vector":
        return _usable(dataset, np.asarray(dataset.items, np.float32), {"kind": "vector"})
    from colafier.embed.tables import TableEncoder

    encoder = TableEncoder()
    good = _without_problems(dataset)
    x = encoder.fit(dataset.items.iloc[good])
    said = {"kind": "table", "file": TABLE, "columns": list(encoder.kinds)}
    return EncodedData(
        torch.from_numpy(x), good, dict(dataset.problems), said, {TABLE: encoder.save}
    )


def encode_again(
    dataset: Dataset,
    how: Mapping[str, Any],
    folder: Path,
    *,
    cache: Path | None = None,
    progress: bool = True,
) -> EncodedData:
    """Turn new rows into numbers as those that a model was trained on.

    Args:
        dataset: The new rows.
        how: `Numbers.input` of then, from the model.
        folder: Of the model, with the files that belong to it.
        cache: Folder of the cache of embeddings; None: no cache.
        progress: Whether to show a bar.
    """
    kind = how["kind"]
    if dataset.kind != kind:
        raise ValueError(
            f"the model was trained on rows of kind {kind}, but {dataset.source} was read as "
            f"{dataset.kind}; name the columns with --image, --text or --features"
        )
    if kind == "vector":
        return _usable(dataset, np.asarray(dataset.items, np.float32), dict(how))
    if kind == "table":
        from colafier.embed.tables import TableEncoder

        good = _without_problems(dataset)
        x = TableEncoder.load(folder / how["file"]).transform(dataset.items.iloc[good])
        return EncodedData(torch.from_numpy(x), good, dict(dataset.problems), dict(how))
    if "embedder" not in how:
        return _decoded(dataset, dict(how), None, progress)
    net = embed.embedder(how["embedder"], kind, how.get("size"))
    if net.key != how["embedder_key"]:
        raise ValueError(f"{net.name} here is not the one that the model was trained with")
    return _embedded(dataset, net, dict(how), cache, progress)


def _embedded(
    dataset: Dataset,
    net: embed.Embedder,
    said: dict[str, Any],
    cache: Path | None,
    progress: bool,
) -> EncodedData:
    keys = dataset.content_keys()
    features, problems = embed.embed(dataset.items, keys, net, cache=cache, progress=progress)
    return _usable(dataset, features, said, problems)


def _decoded(
    dataset: Dataset, said: dict[str, Any], work: Path | None, progress: bool
) -> EncodedData:
    from colafier.embed import images

    if work is None:
        pixels, problems = images.decode_many(dataset.items, said["size"])
    else:
        path = work / PIXELS
        _, problems = images.decode_all(dataset.items, said["size"], path, progress=progress)
        pixels = np.lib.format.open_memmap(path, mode="c")  # torch warns of memory to read only
    return _usable(dataset, pixels, said, problems)


def _without_problems(dataset: Dataset) -> list[int]:
    return [row for row in range(len(dataset)) if row not in dataset.problems]


def _usable(
    dataset: Dataset,
    x: np.ndarray,
    said: dict[str, Any],
    found: Mapping[int, str] | None = None,
) -> EncodedData:
    """Without the rows that have a problem; they are named, not lost."""
    problems = {**(found or {}), **dataset.problems}
    if not problems:
        rows = list(range(len(dataset)))
    else:
        rows = [row for row in range(len(dataset)) if row not in problems]
        x = x[rows]
    if not rows:
        reasons = "; ".join(sorted(set(problems.values()))[:3])
        raise ValueError(f"none of the {len(dataset):,} rows can be used: {reasons}")
    return EncodedData(torch.from_numpy(np.ascontiguousarray(x)), rows, problems, said)
