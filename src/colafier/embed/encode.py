"""A user's rows as numbers: embedded once, encoded, or decoded; and new rows in the same way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colafier import embed
from colafier.ingest.dataset import Collection

TABLE = "table.skops"
PIXELS = "pixels.npy"
Files = dict[str, Callable[[Path], Any]]


@dataclass(frozen=True)
class Numbers:
    """The rows of a collection that can be used."""

    x: Tensor  # (m, d) floats, or (m, 3, size, size) bytes
    rows: list[int]  # their places in the collection
    problems: dict[int, str]  # the other places, and why
    input: dict[str, Any]  # how they came to be, for the model
    files: Files = field(default_factory=dict)  # what the model needs beside its weights


def encode(
    collection: Collection,
    *,
    lane: str = "frozen",
    embedder: str = "auto",
    size: int | None = None,
    cache: Path | None = None,
    work: Path | None = None,
    progress: bool = True,
) -> Numbers:
    """Turn a collection into numbers for the first time.

    Args:
        collection: What was read.
        lane: `frozen` embeds images and texts; `scratch` leaves images as pixels.
        embedder: See `embed.embedder`.
        size: Side of the images in pixels.
        cache: Folder of the cache of embeddings; None: no cache.
        work: Folder for the decoded pixels of the scratch lane.
        progress: Whether to show a bar.
    """
    kind = collection.kind
    if lane == "scratch" and kind != "image":
        raise ValueError(f"the scratch lane is for images, these rows are of kind {kind}")
    if lane == "scratch":
        side = size or 32
        return _decoded(collection, {"kind": "image", "size": side}, work, progress)
    if kind in ("image", "text"):
        net = embed.embedder(embedder, "image" if kind == "image" else "text", size)
        said: dict[str, Any] = {
            "kind": kind,
            "embedder": net.name,
            "embedder_key": net.key,
            "size": size,
        }
        return _embedded(collection, net, said, cache, progress)
    if kind == "vector":
        return _usable(collection, np.asarray(collection.items, np.float32), {"kind": "vector"})
    from colafier.embed.tables import TableEncoder

    encoder = TableEncoder()
    good = _without_problems(collection)
    x = encoder.fit(collection.items.iloc[good])
    said = {"kind": "table", "file": TABLE, "columns": list(encoder.kinds)}
    return Numbers(
        torch.from_numpy(x), good, dict(collection.problems), said, {TABLE: encoder.save}
    )


def encode_again(
    collection: Collection,
    how: Mapping[str, Any],
    folder: Path,
    *,
    cache: Path | None = None,
    progress: bool = True,
) -> Numbers:
    """Turn new rows into numbers as those that a model was trained on.

    Args:
        collection: The new rows.
        how: `Numbers.input` of then, from the model.
        folder: Of the model, with the files that belong to it.
        cache: Folder of the cache of embeddings; None: no cache.
        progress: Whether to show a bar.
    """
    kind = how["kind"]
    if collection.kind != kind:
        raise ValueError(
            f"the model was trained on rows of kind {kind}, but {collection.source} was read as "
            f"{collection.kind}; name the columns with --image, --text or --features"
        )
    if kind == "vector":
        return _usable(collection, np.asarray(collection.items, np.float32), dict(how))
    if kind == "table":
        from colafier.embed.tables import TableEncoder

        good = _without_problems(collection)
        x = TableEncoder.load(folder / how["file"]).transform(collection.items.iloc[good])
        return Numbers(torch.from_numpy(x), good, dict(collection.problems), dict(how))
    if "embedder" not in how:
        return _decoded(collection, dict(how), None, progress)
    net = embed.embedder(how["embedder"], kind, how.get("size"))
    if net.key != how["embedder_key"]:
        raise ValueError(f"{net.name} here is not the one that the model was trained with")
    return _embedded(collection, net, dict(how), cache, progress)


def _embedded(
    collection: Collection,
    net: embed.Embedder,
    said: dict[str, Any],
    cache: Path | None,
    progress: bool,
) -> Numbers:
    keys = collection.content_keys()
    features, problems = embed.embed(collection.items, keys, net, cache=cache, progress=progress)
    return _usable(collection, features, said, problems)


def _decoded(
    collection: Collection, said: dict[str, Any], work: Path | None, progress: bool
) -> Numbers:
    from colafier.embed import images

    if work is None:
        pixels, problems = images.decode_many(collection.items, said["size"])
    else:
        path = work / PIXELS
        _, problems = images.decode_all(collection.items, said["size"], path, progress=progress)
        pixels = np.lib.format.open_memmap(path, mode="c")  # torch warns of memory to read only
    return _usable(collection, pixels, said, problems)


def _without_problems(collection: Collection) -> list[int]:
    return [row for row in range(len(collection)) if row not in collection.problems]


def _usable(
    collection: Collection,
    x: np.ndarray,
    said: dict[str, Any],
    found: Mapping[int, str] | None = None,
) -> Numbers:
    """Without the rows that have a problem; they are named, not lost."""
    problems = {**(found or {}), **collection.problems}
    if not problems:
        rows = list(range(len(collection)))
    else:
        rows = [row for row in range(len(collection)) if row not in problems]
        x = x[rows]
    if not rows:
        reasons = "; ".join(sorted(set(problems.values()))[:3])
        raise ValueError(f"none of the {len(collection):,} rows can be used: {reasons}")
    return Numbers(torch.from_numpy(np.ascontiguousarray(x)), rows, problems, said)
