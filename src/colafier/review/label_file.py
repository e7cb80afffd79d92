"""The label table of a run, labels.csv, as it is read again: as text, and checked."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from colafier._validation import Range
from colafier.audit.label_table import COLUMNS
from colafier.audit.policy import EXCLUDE, KEEP, RELABEL, REVIEW
from colafier.ingest import table_files
from colafier.readers.json_files import damaged
from colafier.review.decided import REVIEW_COLUMNS, REVIEWED_AT
from colafier.review.decisions import parse_time

REQUIRED = ("row", "name", *(name for name in COLUMNS if name != "method_label"))
SHARE = Range(0, 1)
POSITIVE = Range(0, infinite=True)


def read(path: Path, rows: int) -> pd.DataFrame:
    """The label table of a run with this number of rows, all cells as text.

    It has at least the columns that a run writes; those of a review are there together, or not.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} is gone; put it back, or start over with --overwrite")
    try:
        lines = table_files.load(path).frame
        _check(lines, rows)
    except ValueError as error:
        raise damaged(path, error) from error
    return lines


def _check(lines: pd.DataFrame, rows: int) -> None:
    """Refuse a table that a run cannot have written."""
    review = REVIEW_COLUMNS if REVIEWED_AT in lines else ()
    if missing := [name for name in (*REQUIRED, *review) if name not in lines]:
        raise ValueError(f"it has no column {missing[0]!r}")
    if len(lines) != rows or lines["row"].tolist() != [str(row) for row in range(rows)]:
        raise ValueError(f"it does not hold the {rows:,} rows of the run in their order")
    for column, (is_right, words) in CELLS.items():
        if column in lines:
            known = {cell: is_right(cell) for cell in lines[column].unique()}
            if wrong := [cell for cell, right in known.items() if not right]:
                raise ValueError(f"{column} must be {words}, not {wrong[0][:80]!r}")


def _number(allowed: Range) -> Callable[[str], bool]:
    """Whether a cell is empty or a number in this range."""

    def is_right(cell: str) -> bool:
        try:
            return not cell or float(cell) in allowed
        except ValueError:
            return False

    return is_right


def _is_time(cell: str) -> bool:
    try:
        return not cell or bool(parse_time(cell))
    except ValueError:
        return False


CELLS: dict[str, tuple[Callable[[str], bool], str]] = {
    "confidence": (_number(SHARE), "a number from 0 to 1, or empty"),
    "label_quality": (_number(SHARE), "a number from 0 to 1, or empty"),
    "lid": (_number(POSITIVE), "a number of at least 0, or empty"),
    "is_label_issue": ({"True", "False"}.__contains__, "True or False"),
    "action": (
        {KEEP, RELABEL, REVIEW, EXCLUDE}.__contains__,
        f"{KEEP}, {RELABEL}, {REVIEW} or {EXCLUDE}",
    ),
    REVIEWED_AT: (_is_time, "a time with a time zone, or empty"),
}
