"""Files: written whole or not at all, hashed, and written as JSON."""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` at the end of the block.

    If the block is left by an error, an older file stays as it was, and nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A new folder to write to, which becomes `path` at the end of the block.

    If the block is left by an error, nothing is left behind. An existing folder is not replaced.
    """
    if path.exists():
        raise FileExistsError(f"{path} exists; remove it, or give another folder")
    partial = path.with_name(path.name + ".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
        partial.mkdir(parents=True)
    except PermissionError as error:
        raise PermissionError(f"{path} may not be written; give another folder") from error
    try:
        yield partial
        os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


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


def write_text(path: Path, text: str) -> None:
    """Write a file of text in place of what it held."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def to_json(record: Mapping[str, Any]) -> str:
    """One line of valid JSON; numbers that are not finite become null."""
    return json.dumps(_plain(record), allow_nan=False)


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write one object."""
    write_json_lines(path, [record])


def write_json_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write objects, one per line, in place of what the file held."""
    write_text(path, "".join(to_json(r) + "\n" for r in records))


def append_json_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add a line with one object."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(to_json(record) + "\n")


def _plain(value: Any) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # tensors, arrays and their numbers
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return value
