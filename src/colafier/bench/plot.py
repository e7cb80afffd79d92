"""Plots of a suite: a score of each entry, one panel for each noise."""

from math import ceil
from pathlib import Path
from statistics import quantiles
from typing import Any

from colafier._optional import required
from colafier.bench.scores import BASELINE, METRICS, Cell, Collected
from colafier.bench.tables import RATE_MARK

PANELS = 5  # side by side, at most
OURS, OTHERS = "#c0392b", "#34495e"
FAR = 2.5  # scores this many interquartile ranges below the first quartile are cut off


def plot(found: Collected, path: Path, metric: str = "test_accuracy") -> None:
    """Write a picture: a dot is the mean, a line one deviation to each side, a tick one seed.

    Args:
        found: The scores.
        path: Its ending names the format, such as .svg or .png.
        metric: What to show.
    """
    plt = required("matplotlib.pyplot", "plots")
    columns = found.scores[metric].columns
    down = ceil(len(columns) / PANELS)
    across = ceil(len(columns) / down)
    size = (1.6 + 2.3 * across, (0.9 + 0.2 * len(found.order)) * down + 0.6)
    figure, axes = plt.subplots(
        down, across, squeeze=False, sharey=True, figsize=size, layout="constrained"
    )
    try:
        for number, ax in enumerate(axes.flat):
            ax.set_visible(number < len(columns))
            if number < len(columns):
                _panel(ax, found, metric, number)
        figure.suptitle(found.suite.title, fontsize=10)
        what = f"{METRICS[metric]}, %; mean and one standard deviation over seeds"
        figure.supxlabel(what, fontsize=8)
        figure.savefig(path, dpi=130)
    finally:
        plt.close(figure)


def _panel(ax: Any, found: Collected, metric: str, number: int) -> None:
    scores = found.scores[metric]
    column = scores.columns[number]
    cells = {entry: scores.cells[entry][number] for entry in found.order}
    known = {entry: cell for entry, cell in cells.items() if cell is not None}
    low, high = _limits(list(known.values()))
    places = {entry: place for place, entry in enumerate(found.order)}
    for color, ours in ((OTHERS, False), (OURS, True)):
        some = {places[e]: cell for e, cell in known.items() if _ours(e) is ours}
        _draw(ax, some, color, low)
    base = next((known[name] for name in (BASELINE, "colafier") if name in known), None)
    if base is not None:
        ax.axvline(base.mean, color="0.6", lw=0.8, ls="--", zorder=1)
    marks = [f"{name} {RATE_MARK}" if name in found.knows_rate else name for name in found.order]
    ax.set_yticks(range(len(marks)), marks, fontsize=7)
    ax.set_ylim(len(marks) - 0.5, -0.5)  # the best on top
    ax.set_xlim(low, high)
    ax.set_title(f"{column.title} ({column.rate})", fontsize=8)
    ax.tick_params(axis="x", labelsize=7)
    ax.grid(color="0.92", lw=0.6)
    ax.set_axisbelow(True)


def _draw(ax: Any, cells: dict[int, Cell], color: str, low: float) -> None:
    """Means, deviations and seeds by place; an arrow with the mean where it is off to the left."""
    near = {place: cell for place, cell in cells.items() if cell.mean >= low}
    for place in cells.keys() - near.keys():
        ax.annotate(
            f"◂ {cells[place].mean:.1f}", (0.01, place), xycoords=("axes fraction", "data"),
            va="center", fontsize=6, color=color,
        )  # fmt: skip
    means, spread = [c.mean for c in near.values()], [c.deviation or 0.0 for c in near.values()]
    ax.errorbar(means, list(near), xerr=spread, fmt="o", ms=4, lw=1.5, color=color, zorder=3)
    seeds = [(value, place) for place, cell in near.items() for value in cell.values]
    values, places = [value for value, _ in seeds], [place for _, place in seeds]
    ax.plot(values, places, "|", ms=5, color=color, alpha=0.5)


def _limits(cells: list[Cell]) -> tuple[float, float]:
    """Ends of the axis, so that a few very low scores do not squeeze the others."""
    values = [value for cell in cells for value in cell.values]
    low, high = min(values), max(values)
    if len(cells) > 3:
        first, _, third = quantiles((cell.mean for cell in cells), n=4)
        cut = first - FAR * (third - first)
        low = min(value for cell in cells if cell.mean >= cut for value in cell.values)
    space = 0.05 * (high - low) or 1.0
    return low - space, high + space


def _ours(entry: str) -> bool:
    """Whether an entry is CoLafier as a whole."""
    return entry.startswith("colafier") and ":" not in entry
