"""A plot of a suite: test accuracy of each entry, one panel for each noise."""

from math import ceil
from pathlib import Path
from typing import Any

from colafier._optional import required
from colafier.bench.scores import BASELINE, Collected
from colafier.bench.tables import RATE_MARK

PANELS = 5  # side by side
OURS, OTHERS = "#c0392b", "#34495e"


def plot(found: Collected, path: Path, metric: str = "test_accuracy") -> None:
    """Write a picture: a dot is the mean, a line one deviation to each side, a tick one seed.

    Args:
        found: The scores.
        path: Its ending names the format, such as .svg or .png.
        metric: What to show.
    """
    plt = required("matplotlib.pyplot", "plots")
    scores = found.scores[metric]
    across = min(PANELS, len(scores.columns))
    down = ceil(len(scores.columns) / across)
    height = 0.9 + 0.2 * len(found.order)
    figure, axes = plt.subplots(
        down, across, squeeze=False, sharey=True,
        figsize=(1.6 + 2.3 * across, height * down + 0.6), layout="constrained",
    )  # fmt: skip
    try:
        for number, ax in enumerate(axes.flat):
            if number < len(scores.columns):
                _panel(ax, found, metric, number)
            else:
                ax.set_visible(False)
        figure.suptitle(found.suite.title, fontsize=10)
        figure.supxlabel(
            "test accuracy of the last epoch, %; mean and one standard deviation over seeds",
            fontsize=8,
        )
        figure.savefig(path, dpi=150)
    finally:
        plt.close(figure)


def _panel(ax: Any, found: Collected, metric: str, number: int) -> None:
    scores = found.scores[metric]
    column = scores.columns[number]
    for place, entry in enumerate(found.order):
        cell = scores.cells[entry][number]
        if cell is None:
            continue
        color = OURS if entry.startswith("colafier") else OTHERS
        ax.errorbar(
            cell.mean, place, xerr=cell.deviation, fmt="o", ms=4, lw=1.5, color=color, zorder=3
        )
        ax.plot(cell.values, [place] * len(cell.values), "|", ms=5, color=color, alpha=0.5)
    if BASELINE in scores.cells and (base := scores.cells[BASELINE][number]) is not None:
        ax.axvline(base.mean, color="0.6", lw=0.8, ls="--", zorder=1)
    marks = [f"{name} {RATE_MARK}" if name in found.knows_rate else name for name in found.order]
    ax.set_yticks(range(len(marks)), marks, fontsize=7)
    ax.set_ylim(len(marks) - 0.5, -0.5)  # the best on top
    ax.set_title(f"{column.title} ({column.rate})", fontsize=8)
    ax.tick_params(axis="x", labelsize=7)
    ax.grid(color="0.92", lw=0.6)
    ax.set_axisbelow(True)
