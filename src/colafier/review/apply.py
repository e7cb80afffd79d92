"""Decisions of a person into a label table: checked against its rows, then applied."""

import pandas as pd

from colafier.audit.policy import EXCLUDE, KEEP, RELABEL
from colafier.ingest.dataset import listed
from colafier.review.decided import (
    REVIEW_COLUMNS,
    REVIEWED_AT,
    REVIEWED_FROM,
    REVIEWED_TO,
    REVIEWED_WHY,
)
from colafier.review.decisions import Decision, Review, parse_time


def classes_of(lines: pd.DataFrame) -> list[str]:
    """The labels that a person may choose from: all original ones, sorted."""
    return sorted(set(lines["original_label"]) - {""})


def apply_decisions(
    lines: pd.DataFrame, review: Review, fingerprint: str, where: str
) -> pd.DataFrame:
    """The table with these decisions, and when, from what, to what and why beside each row.

    If a row is decided more than once, the latest decision counts. The columns that say what the
    run found stay as they are.

    Args:
        lines: The label table as text; it may hold earlier decisions.
        review: The decisions.
        fingerprint: Of the data set that the table belongs to.
        where: What to call the decisions in an error message.
    """
    check(review, lines, fingerprint, where)
    names = ("label", "action", *REVIEW_COLUMNS)
    cells: dict[str, list[str]]
    cells = {k: lines[k].tolist() if k in lines else [""] * len(lines) for k in names}
    original, reasons = lines["original_label"].tolist(), lines["reason"].tolist()
    for one in review.decisions:
        row = one.row
        if not cells[REVIEWED_AT][row]:
            cells[REVIEWED_FROM][row] = cells["label"][row]
        elif parse_time(cells[REVIEWED_AT][row]) > parse_time(one.at):
            continue
        label = original[row] if one.label is None else one.label
        action = KEEP if label == original[row] else RELABEL
        cells["label"][row] = label
        cells["action"][row] = EXCLUDE if one.label is None else action
        cells[REVIEWED_AT][row], cells[REVIEWED_TO][row] = one.at, one.label or ""
        why = f"{one.choice}: {reasons[row]}" if reasons[row] else one.choice
        cells[REVIEWED_WHY][row] = why
    return lines.assign(**cells)


def check(review: Review, lines: pd.DataFrame, fingerprint: str, where: str) -> None:
    """Refuse decisions that were made about another table.

    Args:
        review: The decisions.
        lines: The label table as text, all rows in order.
        fingerprint: Of the data set that the table belongs to.
        where: What to call the decisions in an error message.
    """
    if review.fingerprint != fingerprint:
        raise ValueError(
            f"{where} was made for another data set: its fingerprint is {review.fingerprint!r}, "
            f"that of this run is {fingerprint!r}; apply it to the folder of the report that it "
            "was saved from"
        )
    if review.rows != len(lines):
        raise ValueError(f"{where} is about {review.rows} rows, but this run has {len(lines)}")
    classes = set(classes_of(lines))
    names, original = lines["name"].tolist(), lines["original_label"].tolist()
    seen: set[int] = set()
    for one in review.decisions:
        if not 0 <= one.row < len(lines):
            raise ValueError(f"{where}: there is no row {one.row}; rows are 0 to {len(lines) - 1}")
        if one.row in seen:
            raise ValueError(f"{where}: row {one.row} is decided twice; remove one of the two")
        seen.add(one.row)
        if problem := _problem(one, names[one.row], original[one.row] or None, classes):
            raise ValueError(f"{where}: row {one.row}: {problem}")


def _problem(one: Decision, name: str, original: str | None, classes: set[str]) -> str | None:
    """What is wrong with a decision about a row with this name and original label."""
    if one.name != name:
        return f"its name is {name!r} in this run, not {one.name!r}"
    if one.original != original:
        return f"its original label is {original!r}, not {one.original!r}"
    if one.choice == "exclude":
        return None if one.label is None else "an excluded row has no label: it must be null"
    if one.label is None:
        return f"the choice {one.choice!r} needs a label"
    if one.choice == "keep" and one.label != original:
        return f"the label to keep is {original!r}, not {one.label!r}"
    if one.label not in classes:
        return f"there is no class {one.label!r}; the classes are {listed(sorted(classes))}"
    return None
