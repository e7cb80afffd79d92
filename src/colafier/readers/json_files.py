"""JSON from outside, checked against a schema: a dataclass or a TypedDict beside its owner.

A dataclass lists all keys that there may be. A TypedDict lists those that are used: others are left
as they are, so that a file of a later version can be read.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from colafier._validation import as_declared
from colafier.readers.files import DamagedFileError, read_bytes

MAX_BYTES = 200_000_000  # room for a decision about each of a million rows
MAX_DEPTH = 50  # of objects and lists inside each other
MAX_DIGITS = 300  # of a whole number: as a float it would be infinite with more
AGAIN = "put it back, or run again"


def read(path: Path, schema: Any, advice: str = AGAIN) -> Any:
    """The content of a file, in its declared types.

    Args:
        path: The file.
        schema: The declared type: see `_validation.as_declared`.
        advice: What to do if the file is damaged.
    """
    text = _text(path, advice)
    try:
        return as_declared("", parse(text), schema)
    except ValueError as error:
        raise damaged(path, error, advice) from error


def read_if_there(path: Path, schema: Any) -> Any:
    """The content of a file that a run need not have; empty if there is none."""
    return read(path, schema) if path.exists() else {}


def read_lines(path: Path, schema: Any) -> list[Any]:
    """The values in a file with one of them on each line; none if there is no such file."""
    if not path.exists():
        return []
    lines = enumerate(_text(path, AGAIN).splitlines(), 1)
    return [_line(path, number, line, schema) for number, line in lines]


def parse(text: str) -> Any:
    """The value of a JSON text; repeated keys, deep nesting and endless numbers are refused."""
    try:
        found = _DECODER.decode(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    for depth, _ in enumerate(_levels(found)):
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    return found


def damaged(path: Path, reason: object, advice: str = AGAIN) -> DamagedFileError:
    """The error of a damaged file, with the same words for all kinds of file."""
    return DamagedFileError(f"{path} is damaged: {reason}; {advice}")


def _text(path: Path, advice: str) -> str:
    try:
        return read_bytes(path, MAX_BYTES).decode("utf-8-sig")  # with or without a mark
    except UnicodeDecodeError as error:
        raise damaged(path, f"it is not UTF-8 text ({error.reason})", advice) from None


def _line(path: Path, number: int, line: str, schema: Any) -> Any:
    try:
        return as_declared("", parse(line), schema)
    except ValueError as error:
        raise damaged(path, f"line {number}: {error}") from error


def _levels(value: Any) -> Iterator[list[Any]]:
    """The lists and objects at each level of nesting."""
    level = [value]
    while level := [part for part in level if isinstance(part, dict | list)]:
        yield level
        level = [
            item for part in level for item in (part.values() if isinstance(part, dict) else part)
        ]


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name[:50]!r} appears twice")
        found[name] = value
    return found


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"it has a number of {len(digits)} digits")
    return int(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeated_keys, parse_int=_whole)
