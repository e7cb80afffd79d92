"""The figures of the report with matplotlib: axes in, axes out.

Tables are labels.csv as pandas reads it, or `issues_` of an estimator. Needs `colafier[plots]`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from colafier._optional import required
from colafier.report import figures

Axes = Any  # matplotlib's, which is an extra
TEXTS = ("original_label", "label")
WIDE, SQUARE = (7.0, 3.5), (6.0, 5.5)


def lid(lines: pd.DataFrame, truth: Sequence[Any] | None = None, ax: Axes | None = None) -> Axes:
    """Distribution of LID for kept and changed labels, split by the truth if it is known."""
    found = figures.lid_histogram(_as_text(lines), _truth(truth))
    if found is None:
        raise ValueError("this table has no LID: only the method colafier measures it")
    ax = _axes(ax, WIDE)
    for name, counts in found["groups"].items():
        total = sum(counts)
        if total >= found["min_rows"]:
            shares = np.array(counts) / total
            ax.stairs(shares, found["edges"], fill=True, alpha=0.4, label=f"{name} ({total:,})")
    ax.set(xlabel="LID with the original label, mean over training", ylabel="share of the group")
    ax.set_xscale("log")
    ax.legend()
    return ax


def confusion(lines: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """How often each original label (down) became each purified one (across)."""
    found = figures.confusion(_as_text(lines))
    counts = np.array(found["counts"])
    ax = _axes(ax, SQUARE)
    moved = np.where(np.eye(len(counts), dtype=bool), 0, counts)  # the diagonal would hide the rest
    ax.imshow(moved, cmap="Blues", vmin=0, vmax=max(1, 1.4 * moved.max()))
    for i, j in np.argwhere(counts > 0):
        ax.text(j, i, f"{counts[i, j]:,}", ha="center", va="center", fontsize="small")
    places = range(len(counts))
    ax.set_xticks(places, found["classes"], rotation=60, ha="right")
    ax.set_yticks(places, found["classes"])
    ax.set(xlabel="purified label", ylabel="original label")
    return ax


def per_class(
    lines: pd.DataFrame, truth: Sequence[Any] | None = None, ax: Axes | None = None
) -> Axes:
    """Wrong labels of each class: expected ones, or before and after if the truth is known."""
    found = figures.per_class(_as_text(lines), _truth(truth))
    places = np.arange(len(found))
    ax = _axes(ax, WIDE)
    if truth is None:
        shares = [line["expected_wrong"] / max(line["before"], 1) for line in found]
        ax.bar(places, shares, label="expected")
    else:
        for name, shift in (("before", -0.2), ("after", 0.2)):
            right = [line[f"right_{name}"] for line in found]
            wrong = [0.0 if share is None else 1 - share for share in right]
            ax.bar(places + shift, wrong, width=0.4, label=name)
    ax.set_xticks(places, [line["class"] for line in found], rotation=60, ha="right")
    ax.set(ylabel="share of wrong labels")
    ax.legend()
    return ax


def curve(
    epochs: Sequence[Mapping[str, Any]], name: str = "labels_changed", ax: Axes | None = None
) -> Axes:
    """A metric over the epochs, such as `loss`, `test_accuracy` or `labels_changed`.

    Args:
        epochs: Lines of metrics.jsonl, or `result.history.epochs`.
        name: Name of the metric.
        ax: Where to draw; by default new axes.
    """
    values = [epoch.get(name) for epoch in epochs]
    if all(value is None for value in values):
        there = sorted({key for epoch in epochs for key in epoch})
        raise ValueError(f"no epoch has {name!r}; there are {', '.join(there) or 'no epochs'}")
    ax = _axes(ax, WIDE)
    numbers = np.array([np.nan if value is None else value for value in values], dtype=float)
    ax.plot(np.arange(1, len(numbers) + 1), numbers)
    ax.set(xlabel="epoch", ylabel=name.replace("_", " "))
    return ax


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is not None:
        return ax
    figure = required("matplotlib.pyplot", "plots").figure(figsize=size, layout="constrained")
    return figure.add_subplot()


def _as_text(lines: pd.DataFrame) -> pd.DataFrame:
    """Labels as text, empty for none, as the report reads them from the file."""
    missing = [name for name in (*TEXTS, "label_quality") if name not in lines]
    if missing:
        raise ValueError(f"the table has no column {missing[0]!r}; give labels.csv of a run")
    texts = {name: _texts(lines[name]) for name in TEXTS}
    return lines.assign(**texts, lid=lines.get("lid", np.nan)).reset_index(drop=True)


def _truth(truth: Sequence[Any] | None) -> list[str] | None:
    return None if truth is None else _texts(pd.Series(list(truth), dtype=object))


def _texts(values: pd.Series) -> list[str]:
    """As in the file: pandas reads 1 as 1.0 if another cell is empty."""
    return [
        "" if pd.isna(v) else str(int(v) if isinstance(v, float) and v.is_integer() else v)
        for v in values
    ]
