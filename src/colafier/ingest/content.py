"""Rows by their content: a key for each row, and rows that hold the same."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colafier._io import content_digest, file_digest
from colafier.ingest.image_files import EMPTY, problem_of


def content_key(item: "Path | bytes | str | np.ndarray[Any, Any] | None") -> str:
    """SHA-256 of what a row holds: of a file its bytes, not its name; empty if it cannot be read.

    A key is part of the names of cached features and of fingerprints that are stored with runs.
    """
    if item is None:
        return ""
    if isinstance(item, np.ndarray):
        return content_digest(f"{item.dtype} {item.shape} ", [item.tobytes()])
    if isinstance(item, bytes | str):
        return content_digest(item)
    if problem_of(item) not in (None, EMPTY):
        return ""
    try:
        return file_digest(item)
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class KeyedFile:
    """A file, and the key of the content that it had when the data set was read."""

    path: Path
    key: str

    def read(self) -> bytes:
        """The content, if it is still the one that the key stands for."""
        content = self.path.read_bytes()
        if content_digest(content) != self.key:
            raise ValueError("the file was changed while the data set was read")
        return content


def keyed(items: Sequence[Any], keys: Sequence[str]) -> list[Any]:
    """The items of some rows, files among them with their keys."""
    return [
        KeyedFile(item, key) if key and isinstance(item, Path) else item
        for item, key in zip(items, keys, strict=True)
    ]


def duplicate_groups(keys: Sequence[str]) -> list[int]:
    """For each row the number of its group of equal keys; -1 for a row without a key or an equal.

    Groups are numbered in the order in which they occur.
    """
    counts = Counter(keys)
    numbers: dict[str, int] = {}
    return [
        numbers.setdefault(key, len(numbers)) if key and counts[key] > 1 else -1 for key in keys
    ]
