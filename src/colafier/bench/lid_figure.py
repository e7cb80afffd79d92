"""The figure of the LID study: shares of right and wrong labels per bin of LID, and AUROC."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colafier._io import atomic_file
from colafier._optional import required
from colafier.bench.lid_study import BIN_WIDTH, NOISES, StudyRun
from colafier.methods.lid_dis import STUDIED

FIGURES = ("lid.svg", "lid.png")
TITLES = {"lid_k20": "k = 20", "lid_by_labels": "k by label counts (neighbors=0)"}
RIGHT, WRONG = "#f28e2b", "#4e79a7"  # orange and blue, as in the paper
LINES = {"lid_k20": "#8c6bb1", "lid_by_labels": "#238b45"}
SHOWN = 0.995  # of the labels; the last bin holds all higher values, too
MAX_BINS = 24

Numbers = npt.NDArray[np.float64]


def check() -> None:
    """Raise an error that names the missing package if nothing can be drawn."""
    required("matplotlib", "plots")


def draw(runs: Sequence[StudyRun], out: Path) -> list[Path]:
    """Write the figure as SVG and PNG: a line for each noise, a column for each k, and AUROC."""
    matplotlib = required("matplotlib", "plots")
    figure = required("matplotlib.figure", "plots").Figure(figsize=(12, 8.5), layout="constrained")
    panels = figure.subplots(len(NOISES), len(STUDIED) + 1, squeeze=False)
    for noise, line in zip(NOISES, panels, strict=True):
        chosen = [run for run in runs if run.noise == noise]
        for name, ax in zip(STUDIED, line[:-1], strict=True):
            _draw_shares(ax, chosen, name)
        _draw_auroc(line[-1], chosen)
        line[0].set_ylabel(f"{_noise_words(noise, chosen)}\nlabels in the bin, %")
    titles = [*(f"LID with {TITLES[name]}" for name in STUDIED), "AUROC of LID for wrong labels"]
    for ax, title in zip(panels[0], titles, strict=True):
        ax.set_title(title, fontsize="medium")
    for ax, words in zip(panels[-1], [*("LID" for _ in STUDIED), "epoch"], strict=True):
        ax.set_xlabel(words)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    panels[0][-1].legend(loc="lower right")
    paths = [out / name for name in FIGURES]
    settings = {"svg.hashsalt": "colafier", "svg.fonttype": "none"}  # the same file each time
    with matplotlib.rc_context(settings):
        for path in paths:
            with atomic_file(path) as partial:
                about = {"Date": None} if path.suffix == ".svg" else {}
                figure.savefig(partial, format=path.suffix[1:], dpi=110, metadata=about)
    return paths


def shares(runs: Sequence[StudyRun], name: str) -> tuple[Numbers, Numbers, Numbers]:
    """Numbers of right and wrong labels in bins of equal width, over all epochs and runs.

    Returns:
        The edges of the bins (m + 1,), and the numbers of right and of wrong labels (m,). The last
        bin holds all higher values, too.
    """
    pooled = {kind: Counter[int]() for kind in ("right", "wrong")}
    for run in runs:
        for epoch in run.epochs:
            for kind, total in pooled.items():
                total.update({int(place): n for place, n in epoch[name][kind].items()})
    both = pooled["right"] + pooled["wrong"]
    first, last = min(both), _quantile(both, SHOWN)
    wide = -(-(last + 1 - first) // MAX_BINS)  # so many bins become one
    last = first + -(-(last + 1 - first) // wide) * wide - 1
    found = []
    for total in pooled.values():
        numbers = np.zeros(last + 1 - first)
        for place, n in total.items():
            numbers[min(place, last) - first] += n
        found.append(numbers.reshape(-1, wide).sum(1))
    edges = BIN_WIDTH * np.arange(first, last + 2, wide, dtype=float)
    return edges, found[0], found[1]


def _quantile(bins: Counter[int], share: float) -> int:
    """The first bin up to which this share of all is."""
    places = sorted(bins)
    reached = np.cumsum([bins[place] for place in places]) / bins.total()
    return places[int(np.searchsorted(reached, share))]


def _draw_shares(ax: Any, runs: Sequence[StudyRun], name: str) -> None:
    """Bars of the shares inside each bin, and a line with the share of all labels in the bin."""
    edges, right, wrong = shares(runs, name)
    total = right + wrong
    there = np.maximum(total, 1)
    style = {"width": np.diff(edges), "align": "edge", "edgecolor": "white", "linewidth": 0.5}
    ax.bar(edges[:-1], 100 * right / there, color=RIGHT, label="right labels in the bin", **style)
    above = {"bottom": 100 * right / there, "color": WRONG, "label": "wrong labels in the bin"}
    ax.bar(edges[:-1], 100 * wrong / there, **above, **style)
    ax.stairs(
        100 * total / total.sum(),
        edges,
        color="black",
        label="share of all labels that is in the bin",
    )
    ax.set(ylim=(0, 100), xlim=(edges[0], edges[-1]))


def _draw_auroc(ax: Any, runs: Sequence[StudyRun]) -> None:
    """AUROC of LID for wrong labels over the epochs: the mean, and its deviation over seeds."""
    for name, color in LINES.items():
        values = np.array([[epoch[name]["auroc"] for epoch in run.epochs] for run in runs], float)
        epochs = np.arange(1, values.shape[1] + 1)
        mean = values.mean(0)
        ax.plot(epochs, mean, color=color, label=TITLES[name], marker="." if len(mean) < 2 else "")
        if len(runs) > 1:
            deviation = values.std(0, ddof=1)
            ax.fill_between(epochs, mean - deviation, mean + deviation, color=color, alpha=0.2)
    ax.axhline(0.5, color="gray", linewidth=0.8, linestyle=":")
    ax.set_ylim(min(0.4, ax.get_ylim()[0]), 1)


def _noise_words(noise: str, runs: Sequence[StudyRun]) -> str:
    kind, _, rate = noise.partition(":")
    wrong = np.mean([run.true_rate for run in runs])
    return f"{100 * float(rate):.0f} % {kind} noise\n({100 * wrong:.1f} % wrong)"
