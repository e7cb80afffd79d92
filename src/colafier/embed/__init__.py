"""Features of rows: frozen backbones by name, columns of tables, and a cache of features."""

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from colafier._progress import progress_bar
from colafier.embed.cache import Cache, default_folder
from colafier.ingest.content import keyed

__all__ = ["NAMES", "Embedder", "default_folder", "embed", "embedder"]

log = logging.getLogger(__name__)

Kind = Literal["image", "text"]
Floats = npt.NDArray[np.float32]
Found = tuple[Floats, dict[int, str]]  # features, and problems by row
NAMES: dict[Kind, tuple[str, ...]] = {  # need no model hub; the first of each kind is the default
    "image": ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2"),
    "text": ("minilm",),
}
STEP = 128  # rows between two updates of the bar
SHARD = 1024  # rows of a shard of the cache; a kill loses at most so many


class Embedder(Protocol):
    """A frozen backbone; `key` is made of all that decides its features, down to preprocessing."""

    name: str
    key: str
    num_features: int

    def __call__(self, items: Sequence[Any]) -> tuple[Floats, dict[int, str]]:
        """Features (n, d), zeros for items with a problem, and these problems by place."""


class Joined:
    """Several embedders, whose features stand side by side; each has a cache of its own.

    Args:
        parts: The embedders, see `Embedder`.
    """

    def __init__(self, parts: Sequence[Embedder]) -> None:
        self.parts = parts
        self.name = "+".join(part.name for part in parts)
        self.key = "\n".join(part.key for part in parts)
        self.num_features = sum(part.num_features for part in parts)

    def __call__(self, items: Sequence[Any]) -> tuple[Floats, dict[int, str]]:
        """Features (n, d), zeros for items with a problem, and these problems by place."""
        return _side_by_side([part(items) for part in self.parts])


def embedder(name: str, kind: Kind, size: int | None = None) -> Embedder:
    """The embedder of this name; heavy packages are imported here, not before.

    Args:
        name: `efficientnet_lite0`, `..1` or `..2` (images), `minilm` (texts), `hf:NAME` or the
            folder of a transformers model, or `auto`, see `choose`. Several, joined by `+`, give
            features side by side.
        kind: What the rows are.
        size: Side in pixels that images are resized to; None: the embedder's default.
    """
    if kind not in NAMES:
        raise ValueError(f"rows to embed are of kind {' or '.join(NAMES)}, not {kind!r}")
    if size is not None and (kind == "text" or size < 1):
        raise ValueError(f"size is a number of pixels of images, not {size} for {kind}s")
    if Path(name).is_dir():  # its name may have a + in it
        return _single(name, kind, size)
    parts = [_single(part, kind, size) for part in name.split("+")]
    return parts[0] if len(parts) == 1 else Joined(parts)


def _single(name: str, kind: Kind, size: int | None) -> Embedder:
    if name == "auto":
        name = choose(kind)
    if name in NAMES[kind] and kind == "image":
        from colafier.embed.efficientnet_lite import LiteEmbedder

        return LiteEmbedder(name, size)
    if name in NAMES[kind]:
        from colafier.embed.texts import MiniLM

        return MiniLM()
    known = [other for names in NAMES.values() for other in names]
    if name in known or not (name.startswith("hf:") or Path(name).is_dir()):
        raise ValueError(
            f"no embedder {name!r} for {kind}s; there are {', '.join(NAMES[kind])}, auto, hf:NAME, "
            "the path of the folder of a transformers model, and several of them joined by +"
        )
    from colafier.embed.hub import open_model

    return open_model(name, kind, size)


def choose(kind: Kind) -> str:
    """The embedder that `auto` stands for: a strong one from the Hugging Face cache, else ours.

    Nothing is downloaded, and the choice is logged.
    """
    name = NAMES[kind][0]
    if find_spec("transformers") and find_spec("huggingface_hub"):
        from colafier.embed import hub

        name = next((f"hf:{model}" for model in hub.CACHED[kind] if hub.cached(model, kind)), name)
    log.info("%ss are embedded by %s, chosen from what is on this machine", kind, name)
    return name


def embed(
    items: Sequence[Any],
    content_keys: Sequence[str],
    embedder: Embedder,
    *,
    cache: Path | None,
    progress: bool = True,
) -> tuple[Floats, dict[int, str]]:
    """Features (n, d) of all rows, zeros for rows with a problem, and these problems by row.

    Rows of the same content are embedded once. Rows with a problem are not cached. A file is read
    once here: the bytes that are decoded are the ones that are compared with its key, so that no
    features are stored under the key of another content.

    Args:
        items: Images as `images.decode` takes them, or texts.
        content_keys: One for each row, see `ingest.content.content_key`; features of a row whose
            key is empty are not kept.
        embedder: From the function `embedder`.
        cache: Its folder, such as `default_folder()`; None: no cache.
        progress: Whether to show a bar.
    """
    if len(items) != len(content_keys):
        raise ValueError(f"{len(items)} rows but {len(content_keys)} content keys")
    if isinstance(embedder, Joined):
        return _side_by_side(
            [
                embed(items, content_keys, part, cache=cache, progress=progress)
                for part in embedder.parts
            ]
        )
    features = np.zeros((len(items), embedder.num_features), np.float32)
    store = Cache(cache, embedder.name, embedder.key, embedder.num_features) if cache else None
    known = store.read(content_keys, features) if store else np.zeros(len(items), bool)  # (n,)
    twins = _twins(np.flatnonzero(~known).tolist(), content_keys)
    fresh = [row for row, twin in twins.items() if row == twin]
    problems: dict[int, str] = {}
    with progress_bar(f"embedding with {embedder.name}", len(items), progress) as advance:
        advance(len(items) - len(fresh))
        for rows in _chunks(fresh, SHARD):
            for part in _chunks(rows, STEP):
                chosen = keyed([items[row] for row in part], [content_keys[row] for row in part])
                features[part], reasons = _checked(embedder, chosen)
                problems |= {part[place]: reason for place, reason in reasons.items()}
                advance(len(part))
            good = [row for row in rows if row not in problems and content_keys[row]]
            if store and not store.write([content_keys[row] for row in good], features[good]):
                store = None  # one warning is enough
    for row, twin in twins.items():
        if row != twin:  # one by one: all at once would need the features twice
            features[row] = features[twin]
    return features, {row: problems[twin] for row, twin in twins.items() if twin in problems}


def _side_by_side(found: Sequence[Found]) -> Found:
    """Features of several embedders in one array; a problem of one is a problem of the row."""
    features = np.concatenate([part for part, _ in found], 1)  # (n, d)
    problems = {row: reason for _, reasons in found for row, reason in reasons.items()}
    features[list(problems)] = 0
    return features, problems


def _twins(rows: list[int], content_keys: Sequence[str]) -> dict[int, int]:
    """For each row the first row of the same content; a row without a key equals no other."""
    first: dict[str | int, int] = {}
    return {row: first.setdefault(content_keys[row] or row, row) for row in rows}


def _chunks(rows: list[int], size: int) -> list[list[int]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _checked(embedder: Embedder, items: list[Any]) -> tuple[Floats, dict[int, str]]:
    """Features of some rows; a row with numbers that are not finite has a problem, too."""
    features, problems = embedder(items)
    for place in np.flatnonzero(~np.isfinite(features).all(1)).tolist():
        problems[place] = f"{embedder.name} gave numbers that are not finite"
        features[place] = 0
    return features, problems
