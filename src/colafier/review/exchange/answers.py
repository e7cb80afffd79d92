"""Rows to export and answers to import, in a form that is the same for all labeling tools."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

import pandas as pd

from colafier.audit.policy import KEEP, UNUSABLE
from colafier.ingest.dataset import counted, listed
from colafier.review.apply import classes_of
from colafier.review.decided import undecided
from colafier.review.decisions import Choice, Decision, Review, format_time

NUMBER = re.compile("[0-9]{1,12}")


@dataclass(frozen=True, eq=False)  # tables have no plain equality
class KnownRows:
    """The label table of a run, against which answers are checked."""

    fingerprint: str  # of the data set
    lines: pd.DataFrame  # as text, all rows in order

    @cached_property
    def classes(self) -> list[str]:
        """All labels, sorted."""
        return classes_of(self.lines)

    @cached_property
    def _labels(self) -> set[str]:
        return set(self.classes)

    def check(self, fingerprint: object, where: str) -> None:
        """Refuse answers about another data set."""
        if fingerprint != self.fingerprint:
            raise ValueError(
                f"{where} is about another data set: its fingerprint is {fingerprint!r}, that of "
                f"this run is {self.fingerprint!r}; give the run that it was exported from"
            )

    def row(self, value: object, where: str) -> int:
        """The number of an existing row; some tools return it as text."""
        text = str(value)
        if not NUMBER.fullmatch(text) or int(text) >= len(self.lines):
            raise ValueError(f"{where}: {value!r} is not the number of a row")
        return int(text)

    def label(self, value: object, where: str) -> str:
        """The name of an existing class."""
        if not isinstance(value, str) or value not in self._labels:
            raise ValueError(
                f"{where}: there is no class {value!r}; the classes are {listed(self.classes)}"
            )
        return value


@dataclass(frozen=True, eq=False)
class OutgoingRows(KnownRows):
    """Rows to export, with their content."""

    kind: str  # image or text
    source: Path
    items: Sequence[Any]  # of all rows: paths, bytes or texts
    rows: list[int]  # to export, in this order

    def cell(self, row: int, column: str) -> str:
        """A cell of the label table; may be empty."""
        return str(self.lines[column].iat[row])

    def number(self, row: int, column: str) -> float | None:
        """A number of the label table; None if there is none."""
        text = self.cell(row, column)
        value = float(text) if text else None
        return value if value is None or isfinite(value) else None

    def images(self) -> list[tuple[int, Path | bytes]]:
        """The rows to export, each with its image."""
        if self.kind != "image":
            raise ValueError(
                f"this format is for images, but the rows of this run are of kind {self.kind}"
            )
        return [(row, self.items[row]) for row in self.rows]

    def image_paths(self) -> list[tuple[int, Path]]:
        """The rows to export, each with its image file."""
        found = [(row, item) for row, item in self.images() if isinstance(item, Path)]
        if len(found) < len(self.rows):
            raise ValueError(
                "this format refers to image files, but the images of this run are stored in a "
                "table; export them as cvat or imagefolder"
            )
        return found


@dataclass(frozen=True)
class Answer:
    """The label that a person set for a row; None if the row is to be excluded."""

    row: int
    label: str | None
    at: str


@dataclass
class Answers:
    """The answers in a file, and notes about rows without one."""

    found: list[Answer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def mark_seen(self, row: int, where: str) -> None:
        """Refuse a row that appears a second time in the file."""
        if row in self.seen:
            raise ValueError(f"{where}: row {row} appears twice; remove one of the two")
        self.seen.add(row)

    def note(self, count: int, what: str) -> None:
        """Add a note about this many rows, unless there are none."""
        if count:
            self.notes.append(f"{counted(count, 'row')} {what}")


def rows_to_review(
    lines: pd.DataFrame, *, everything: bool = False, limit: int | None = None
) -> list[int]:
    """The rows that a person should review, most doubtful first; never unreadable ones.

    Args:
        lines: The label table as text.
        everything: Include rows whose label is kept, and rows that are already decided.
        limit: At most this many.
    """
    take = ~lines["reason"].str.startswith(UNUSABLE)
    if not everything:
        take &= lines["action"] != KEEP
        take &= undecided(lines)
    quality = (
        pd.to_numeric(lines["label_quality"], errors="coerce")
        .where(take)
        .sort_values(kind="stable")
    )
    rows = [int(row) for row in quality.index if take[row]]
    return rows[:limit]


def as_review(answers: Iterable[Answer], known: KnownRows) -> Review:
    """Answers as decisions, which `colafier apply` reads."""
    made = []
    columns = ("name", "original_label", "suggested_label")
    names, labels, suggested = (known.lines[column].tolist() for column in columns)
    for one in sorted(answers, key=lambda one: one.row):
        original = labels[one.row] or None
        choice: Choice = "other"
        if one.label is None:
            choice = "exclude"
        elif one.label == original:
            choice = "keep"
        elif one.label == suggested[one.row]:
            choice = "suggestion"
        made.append(Decision(one.row, names[one.row], original, choice, one.label, one.at))
    return Review(known.fingerprint, len(known.lines), format_time(datetime.now(UTC)), tuple(made))


def modified_at(path: Path) -> str:
    """When a file was last written; for tools that do not record the time of each answer."""
    return format_time(datetime.fromtimestamp(int(path.stat().st_mtime), UTC))
