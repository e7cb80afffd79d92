"""What a person decided: read from decisions.json with distrust, checked, put into the table."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from colafier._io import atomic_file
from colafier._validation import checked
from colafier.audit.policy import EXCLUDE, KEEP, RELABEL
from colafier.ingest.dataset import Dataset, counted, listed

FORMAT = "colafier-decisions-1"
LARGEST = 200_000_000  # bytes: room for a decision about each of a million rows
AT, FROM, TO, WHY = REVIEW = ("reviewed_at", "reviewed_from", "reviewed_to", "reviewed_why")
Choice = Literal["keep", "suggestion", "other", "exclude"]
TEXTS = ("original_label", "label", "action", "reason")


@dataclass(frozen=True)
class Decision:
    """What a person said about one row."""

    row: int
    name: str
    original: str | None
    choice: Choice
    label: str | None  # None where the row is excluded
    at: str


@dataclass(frozen=True)
class Review:
    """The content of a decisions.json."""

    fingerprint: str  # of the data set that it is about
    rows: int
    saved: str
    decisions: tuple[Decision, ...]


def moment(text: str) -> datetime:
    """A point in time, of a text such as 2026-11-16T09:59:00Z."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{text!r} is not a time with its zone, as 2026-11-16T09:59:00Z")


def stamp(at: datetime) -> str:
    """A point in time as text, in UTC."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def strict_json(path: Path) -> Any:
    """The content of a JSON file that comes from outside, however damaged or hostile it is."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; give one that was saved or exported")
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} is larger than {LARGEST:,} bytes, and is not read")
    try:
        return json.loads(path.read_bytes(), object_pairs_hook=_once)  # UTF-8, marked or not
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON, or is damaged: {error}") from None


def read(path: Path) -> Review:
    """The decisions of a file; anything that is not as agreed is an error."""
    content = strict_json(path)
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise ValueError(f"{path} does not hold decisions: its format is not {FORMAT!r}")
    records = content.pop("decisions", None)
    if not isinstance(records, list):
        raise ValueError(f"{path}: decisions must be a list")
    kinds = {"fingerprint": str, "rows": int, "saved": str}
    head = _whole_record(content, kinds, str(path))
    found = [_decision(record, f"{path}, decision {i}") for i, record in enumerate(records, 1)]
    try:
        saved = stamp(moment(head["saved"]))
    except ValueError as error:
        raise ValueError(f"{path}: saved: {error}") from None
    return Review(head["fingerprint"], head["rows"], saved, tuple(found))


def save(review: Review, path: Path) -> None:
    """Write a decisions.json."""
    content = {"format": FORMAT, **asdict(review)}
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def classes_of(lines: pd.DataFrame) -> list[str]:
    """The labels that a result table knows, sorted."""
    return sorted(set(lines["original_label"]) - {""})


def undecided(lines: pd.DataFrame) -> pd.Series:
    """Which rows of a result table nobody has decided yet, as a boolean mask."""
    return lines[AT].eq("") if AT in lines else pd.Series(True, index=lines.index)


def check(review: Review, lines: pd.DataFrame, fingerprint: str, where: str) -> None:
    """Refuse decisions that were not made about this table.

    Args:
        review: The decisions.
        lines: The result table as text, all rows in order.
        fingerprint: Of the data set that the table is about.
        where: What to call the decisions in an error.
    """
    if review.fingerprint != fingerprint:
        raise ValueError(
            f"{where} was made for another data set: it has the fingerprint "
            f"{review.fingerprint!r}, this run has {fingerprint!r}; apply it to the folder of the "
            "report that it was saved from"
        )
    if review.rows != len(lines):
        raise ValueError(f"{where} is about {review.rows} rows, but this run has {len(lines)}")
    classes = set(classes_of(lines))
    names, original = lines["name"].tolist(), lines["original_label"].tolist()
    seen: set[int] = set()
    for one in review.decisions:
        if not 0 <= one.row < len(lines):
            raise ValueError(f"{where}: there is no row {one.row}, they are 0 to {len(lines) - 1}")
        if one.row in seen:
            raise ValueError(f"{where}: row {one.row} is decided twice; leave one of both")
        seen.add(one.row)
        if problem := _problem(one, names[one.row], original[one.row] or None, classes):
            raise ValueError(f"{where}: row {one.row}: {problem}")


def applied(lines: pd.DataFrame, review: Review) -> pd.DataFrame:
    """The table with these decisions, and when, from what, to what and why beside each row.

    Of two decisions about a row the later one counts. Columns that say what was found stay.

    Args:
        lines: The result table as text; it may hold earlier decisions.
        review: Decisions that were checked against it.
    """
    names = ("label", "action", *REVIEW)
    cells: dict[str, list[str]]
    cells = {k: lines[k].tolist() if k in lines else [""] * len(lines) for k in names}
    original, reasons = lines["original_label"].tolist(), lines["reason"].tolist()
    for one in review.decisions:
        row = one.row
        if not cells[AT][row]:
            cells[FROM][row] = cells["label"][row]
        elif moment(cells[AT][row]) > moment(one.at):
            continue
        label = original[row] if one.label is None else one.label
        action = KEEP if label == original[row] else RELABEL
        cells["label"][row] = label
        cells["action"][row] = EXCLUDE if one.label is None else action
        cells[AT][row], cells[TO][row] = one.at, one.label or ""
        cells[WHY][row] = f"{one.choice}: {reasons[row]}" if reasons[row] else one.choice
    return lines.assign(**cells)


@dataclass(frozen=True, eq=False)  # tables have no plain equality
class Decided:
    """The rows of a table that a person decided: pinned when the others are judged again."""

    fingerprint: str
    lines: pd.DataFrame  # as text, these rows alone, by row number

    @classmethod
    def of(cls, lines: pd.DataFrame, fingerprint: str) -> "Decided":
        """Those of a table that decisions were applied to."""
        return cls(fingerprint, lines[~undecided(lines)])

    def __len__(self) -> int:
        return len(self.lines)

    def labels(self) -> dict[int, str | None]:
        """The decided label of each row; None where it is to be excluded."""
        out = self.lines["action"] == EXCLUDE
        found = self.lines["label"].where(~out, "")
        return {int(row): label or None for row, label in found.items()}

    def told(self, dataset: Dataset) -> Dataset:
        """The data set with the decided labels as given ones."""
        found = dataset.fingerprint()
        if found != self.fingerprint:
            raise ValueError(
                f"{dataset.source} was changed since the decisions were made: it has the "
                f"fingerprint {found!r}, then it had {self.fingerprint!r}; put it back as it was, "
                "or purify it anew"
            )
        labels = self.labels()
        original = [labels.get(row, label) for row, label in enumerate(dataset.original)]
        return replace(dataset, original=original)

    def trusted(self, rows: Iterable[int]) -> Tensor:
        """Which of these rows have a label that a person decided, as a boolean mask."""
        labels = self.labels()
        return torch.tensor([labels.get(row) is not None for row in rows])

    def digest(self) -> str:
        """Tells these decisions from others."""
        content = json.dumps(sorted(self.labels().items()))
        return hashlib.sha256(content.encode()).hexdigest()

    def pin(self, lines: pd.DataFrame) -> pd.DataFrame:
        """A new table of all rows in which the decided ones are as they were decided."""
        rows, old = self.lines.index, self.lines
        pinned = lines.astype({**dict.fromkeys(TEXTS, object), "label_quality": float})
        for name in TEXTS:
            empty = None if name in ("original_label", "label") else ""
            pinned.loc[rows, name] = pd.Series(
                [cell or empty for cell in old[name]], index=rows, dtype=object
            )
        known = (old["original_label"] != "") & (old["action"] != EXCLUDE)
        right = old["label"] == old["original_label"]
        pinned.loc[rows, "label_quality"] = right.astype(float).where(known, np.nan)
        pinned.loc[rows, "is_label_issue"] = known & ~right
        pinned.loc[rows[~right], "lid"] = np.nan  # that of the original label was not measured anew
        for name in REVIEW:
            pinned[name] = self.lines[name].reindex(pinned.index, fill_value="")
        return pinned


def _problem(one: Decision, name: str, original: str | None, classes: set[str]) -> str | None:
    """What is wrong with a decision about a row of this name and original label."""
    if one.name != name:
        return f"it is {name!r} in this run, not {one.name!r}"
    if one.original != original:
        return f"its original label is {original!r}, not {one.original!r}"
    if one.choice == "exclude":
        return None if one.label is None else "an excluded row has no label: it must be null"
    if one.label is None:
        return f"the choice {one.choice!r} needs a label"
    if one.choice == "keep" and one.label != original:
        return f"to keep its label means {original!r}, not {one.label!r}"
    if one.label not in classes:
        return f"there is no class {one.label!r}; there are {listed(sorted(classes))}"
    return None


def _decision(record: Any, where: str) -> Decision:
    kinds = {field.name: field.type for field in fields(Decision)}
    values = _whole_record(record, kinds, where)
    try:
        values["at"] = stamp(moment(values["at"]))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return Decision(**values)


def _whole_record(record: Any, kinds: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values of an object that has these names and no others."""
    if not isinstance(record, dict):
        raise ValueError(f"{where}: an object with named values is needed")
    try:
        values = checked(record, kinds, "key")
    except (TypeError, ValueError) as error:  # a list is no key of anything
        raise ValueError(f"{where}: {error}") from None
    if missing := [name for name in kinds if name not in values]:
        raise ValueError(f"{where}: {counted(len(missing), 'key')} missing: {listed(missing)}")
    return values


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} is there twice")
        found[name] = value
    return found
