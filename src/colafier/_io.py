"""Files that appear whole or not at all, and the hash of what they hold."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` at the end of the block.

    If the block is left by an error, what was there before stays, and nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def content_digest(first: bytes | str, more: Iterable[bytes | str] = ()) -> str:
    """SHA-256 of one part or several, one after the other; texts as UTF-8."""
    digest = hashlib.sha256()
    for part in chain([first], more):
        digest.update(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, which need not fit into memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
