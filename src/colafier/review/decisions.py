"""The file decisions.json: what a person decided about rows, read strictly and written whole."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from colafier._io import atomic_file
from colafier._validation import checked
from colafier.ingest.dataset import counted, listed

FORMAT = "colafier-decisions-2"
MAX_BYTES = 200_000_000  # room for a decision about each of a million rows
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


def read_json(path: Path) -> Any:
    """The content of a JSON file from outside, which may be damaged or hostile."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; give one that was saved or exported")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} is larger than {MAX_BYTES:,} bytes, so it is not read")
    try:
        # UTF-8, with or without a byte order mark
        return json.loads(path.read_bytes(), object_pairs_hook=_without_repeated_keys)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None


def read(path: Path) -> Review:
    """The decisions in a file; a file in any other form is an error."""
    content = read_json(path)
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise ValueError(f"{path} does not hold decisions: its format is not {FORMAT!r}")
    records = content.pop("decisions", None)
    if not isinstance(records, list):
        raise ValueError(f"{path}: decisions must be a list")
    kinds = {"fingerprint": str, "rows": int, "saved": str}
    head = _values(content, kinds, str(path))
    saved = _utc(head["saved"], f"{path}: saved")
    found = [_decision(record, f"{path}, decision {i}") for i, record in enumerate(records, 1)]
    return Review(head["fingerprint"], head["rows"], saved, tuple(found))


def save(review: Review, path: Path) -> None:
    """Write a decisions.json."""
    content = {"format": FORMAT, **asdict(review)}
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _decision(record: Any, where: str) -> Decision:
    kinds = {field.name: field.type for field in fields(Decision)}
    values = _values(record, kinds, where)
    return Decision(**{**values, "at": _utc(values["at"], where)})


def _utc(text: str, where: str) -> str:
    """The same point in time, written in UTC."""
    try:
        return format_time(parse_time(text))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _values(record: Any, kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of an object that must have exactly these keys, with values of these types."""
    if not isinstance(record, dict):
        raise ValueError(f"{where}: an object with named values is needed")
    try:
        values = checked(record, kinds, "key")
    except (TypeError, ValueError) as error:  # TypeError: a list cannot be looked up
        raise ValueError(f"{where}: {error}") from None
    if missing := [name for name in kinds if name not in values]:
        raise ValueError(f"{where}: {counted(len(missing), 'key')} missing: {listed(missing)}")
    return values


def _without_repeated_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} appears twice")
        found[name] = value
    return found
