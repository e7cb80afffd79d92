"""What goes out and what comes back, whatever the tool: rows with labels, and answers to them."""

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
from colafier.review.decisions import (
    Choice,
    Decision,
    Review,
    classes_of,
    stamp,
    undecided,
)


@dataclass(frozen=True, eq=False)  # tables have no plain equality
class Known:
    """The result table of a run, and of which data set it is."""

    fingerprint: str
    lines: pd.DataFrame  # as text, all rows in order

    @cached_property
    def classes(self) -> list[str]:
        """All labels, sorted."""
        return classes_of(self.lines)

    @cached_property
    def _labels(self) -> set[str]:
        return set(self.classes)

    def check(self, fingerprint: object, where: str) -> None:
        """Refuse what was made from another data set."""
        if fingerprint != self.fingerprint:
            raise ValueError(
                f"{where} is about another data set: it has the fingerprint {fingerprint!r}, this "
                f"run has {self.fingerprint!r}; give the folder of the run that it came from"
            )

    def row(self, value: object, where: str) -> int:
        """A row number that exists; tools may give it back as text."""
        text = str(value)
        if isinstance(value, bool) or not text.isdecimal() or int(text) >= len(self.lines):
            raise ValueError(f"{where}: {value!r} is not the number of a row")
        return int(text)

    def label(self, value: object, where: str) -> str:
        """A label that exists."""
        if not isinstance(value, str) or value not in self._labels:
            raise ValueError(
                f"{where}: there is no class {value!r}; there are {listed(self.classes)}"
            )
        return value


@dataclass(frozen=True, eq=False)
class Sheet(Known):
    """Rows that go out, with what they show."""

    kind: str  # image or text
    source: Path
    items: Sequence[Any]  # of all rows: paths, bytes or texts
    rows: list[int]  # those that go out, in this order

    def cell(self, row: int, column: str) -> str:
        """Of the result table; empty where there is nothing."""
        return str(self.lines[column].iat[row])

    def number(self, row: int, column: str) -> float | None:
        """A number of the result table."""
        text = self.cell(row, column)
        value = float(text) if text else None
        return value if value is None or isfinite(value) else None


@dataclass(frozen=True)
class Answer:
    """What a person said about a row: its label, or None if it is to be excluded."""

    row: int
    label: str | None
    at: str


@dataclass
class Answers:
    """All that came back, and what is to be said about the rest."""

    found: list[Answer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, count: int, what: str) -> None:
        """Say how many rows something is the case for, if there are any."""
        if count:
            self.notes.append(f"{counted(count, 'row')} {what}")


def chosen(lines: pd.DataFrame, *, everything: bool = False, limit: int | None = None) -> list[int]:
    """The rows for a person to look at, most doubtful first.

    Rows that were decided before and those that could not be read stay at home.

    Args:
        lines: The result table as text.
        everything: Also rows whose label is to be kept.
        limit: At most so many.
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


def as_review(answers: Iterable[Answer], known: Known) -> Review:
    """Answers as the decisions that `colafier apply` takes."""
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
    return Review(known.fingerprint, len(known.lines), stamp(datetime.now(UTC)), tuple(made))


def written(path: Path) -> str:
    """When a file was written, for tools that do not say when each answer was given."""
    return stamp(datetime.fromtimestamp(int(path.stat().st_mtime), UTC))


def images(sheet: Sheet) -> list[tuple[int, Path | bytes]]:
    """The rows that go out with their images."""
    if sheet.kind != "image":
        raise ValueError(
            f"this format is for images, the rows of this run are of kind {sheet.kind}"
        )
    return [(row, sheet.items[row]) for row in sheet.rows]


def image_paths(sheet: Sheet) -> list[tuple[int, Path]]:
    """The rows that go out with the files of their images."""
    found = [(row, item) for row, item in images(sheet) if isinstance(item, Path)]
    if len(found) < len(sheet.rows):
        raise ValueError(
            "this format names image files, but images of this run are bytes in a table; "
            "send them out as cvat or imagefolder"
        )
    return found
