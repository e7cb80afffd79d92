"""The file decisions.json: what a person decided about rows, read strictly and written whole."""

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from colafier._io import atomic_file
from colafier.readers import json_files

FORMAT: Literal["colafier-decisions-2"] = "colafier-decisions-2"
SAVE_AGAIN = "save or export it again"
Choice = Literal["keep", "suggestion", "other", "exclude"]


@dataclass(frozen=True)
class Decision:
    """What a person decided about one row."""

    row: int
    name: str
    original: str | None
    choice: Choice
    label: str | None  # None if the row is excluded
    at: str


@dataclass(frozen=True)
class Review:
    """The content of a decisions.json."""

    fingerprint: str  # of the data set that was reviewed
    rows: int
    saved: str
    decisions: tuple[Decision, ...]


@dataclass(frozen=True)
class _Stored:
    """The content of the file."""

    format: Literal["colafier-decisions-2"]
    fingerprint: str
    rows: int
    saved: str
    decisions: tuple[Decision, ...]


def parse_time(text: str) -> datetime:
    """The point in time of a text such as 2026-11-16T09:59:00Z, in UTC."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{text!r} is not a time with a time zone, such as 2026-11-16T09:59:00Z")


def format_time(at: datetime) -> str:
    """A point in time as text, in UTC."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def read(path: Path) -> Review:
    """The decisions in a file; a file in any other form is an error."""
    stored: _Stored = json_files.read(path, _Stored, SAVE_AGAIN)
    try:
        saved = format_time(parse_time(stored.saved))
        found = [replace(one, at=format_time(parse_time(one.at))) for one in stored.decisions]
    except ValueError as error:
        raise json_files.damaged(path, error, SAVE_AGAIN) from None
    return Review(stored.fingerprint, stored.rows, saved, tuple(found))


def save(review: Review, path: Path) -> None:
    """Write a decisions.json."""
    content = asdict(_Stored(FORMAT, **vars(review)))
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
