"""The table of scores that the terminal shows for finished runs."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.table import Table

from colafier.report.comparison import mean_and_deviation


def percent(value: float) -> str:
    """A share as text, such as 93.1 %."""
    return f"{100 * value:.1f} %"


def whole(value: float) -> str:
    """A whole number as text, such as 1,437."""
    return f"{value:,.0f}"


def seconds(value: float) -> str:
    """A time as text, such as 12 s."""
    return f"{value:.0f} s"


LINES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("labels_right_before", "labels right before", percent),
    ("labels_right_after", "labels right after, by the method", percent),
    ("audit.labels_right_after", "labels right after the audit", percent),
    ("labels_fixed", "wrong labels fixed", whole),
    ("labels_broken", "clean labels broken", whole),
    ("precision", "label errors found: precision", percent),
    ("recall", "label errors found: recall", percent),
    ("test_accuracy", "test accuracy", percent),
    ("seconds", "training time", seconds),
)


def table(records: Mapping[str, Mapping[str, Any]], title: str) -> Table:
    """The scores of runs side by side; a figure that no run has is left out."""
    shown = Table(title=title, title_justify="left")
    shown.add_column()
    for name in records:
        shown.add_column(name, justify="right")
    for key, words, form in LINES:
        values = [_figure(record, key) for record in records.values()]
        if any(value is not None for value in values):
            shown.add_row(words, *("-" if value is None else form(value) for value in values))
    return shown


def seeds_table(records: Mapping[int, Mapping[str, Any]], title: str) -> Table:
    """The scores of runs that differ in their seeds, with mean and standard deviation."""
    shown = Table(title=title, title_justify="left")
    shown.add_column()
    for seed in records:
        shown.add_column(f"seed {seed}", justify="right")
    shown.add_column("mean ± deviation", justify="right")
    for key, words, form in LINES:
        values = [_figure(record, key) for record in records.values()]
        there = [value for value in values if value is not None]
        if there:
            texts = ["-" if value is None else form(value) for value in values]
            shown.add_row(words, *texts, " ± ".join(map(form, mean_and_deviation(there))))
    return shown


def _figure(record: Mapping[str, Any], key: str) -> Any:
    """A figure of a record; `audit.name` is one of the figures after the audit."""
    part, _, name = key.rpartition(".")
    found = record.get(part, {}) if part else record
    return found.get(name)
