"""Finished runs side by side: grouped if only their seeds differ, with mean and deviation."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

CURVES = {  # figures of each epoch that are drawn, with title and unit
    "test_accuracy": ("Test accuracy", "%"),
    "label_accuracy": ("Labels right during training", "%"),
    "lid_auroc": ("AUROC of LID for wrong labels", ""),
}
FIRST = ("method", "kind", "source", "noise")  # settings that are named first, by their value alone


@dataclass(frozen=True)
class Figure:
    """A figure of a run, and how it is shown."""

    key: str
    words: str
    unit: Literal["%", "s", ""] = "%"
    decimals: int = 1
    higher_is_better: bool = False
    in_terminal: bool = False  # a page has room for all figures

    @property
    def title(self) -> str:
        """Words and unit."""
        return f"{self.words}, {self.unit}" if self.unit else self.words

    def text(self, values: Sequence[float]) -> str:
        """Mean and deviation, such as `93.1 ± 0.4`; `-` without values."""
        scale = 100 if self.unit == "%" else 1
        numbers = mean_and_deviation(values) if values else ()
        return " ± ".join(f"{scale * number:,.{self.decimals}f}" for number in numbers) or "-"


FIGURES = (
    Figure("test_accuracy", "test accuracy", higher_is_better=True, in_terminal=True),
    Figure("test_accuracy_last10", "test accuracy, last 10 epochs", higher_is_better=True),
    Figure("labels_right_before", "labels right before", in_terminal=True),
    Figure(
        "labels_right_after", "labels right after, by the method", higher_is_better=True,
        in_terminal=True,
    ),
    Figure(
        "audit.labels_right_after", "labels right after the audit", higher_is_better=True,
        in_terminal=True,
    ),
    Figure("auroc", "AUROC of quality", unit="", decimals=3, higher_is_better=True),
    Figure("lid_auroc", "AUROC of LID", unit="", decimals=3, higher_is_better=True),
    Figure("estimated_noise_rate", "labels estimated wrong"),
    Figure("relabeled", "labels changed by the audit", unit="", decimals=0),
    Figure("accuracy_on_unseen_observed_labels", "agreement with unseen labels"),
    Figure("seconds", "training time", unit="s", decimals=0),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """What is compared of a finished run."""

    folder: Path
    seed: int
    settings: Mapping[str, Any]  # without the seed; hyper-parameters next to the other settings
    figures: Mapping[str, float]  # by the keys of FIGURES
    epochs: Sequence[Mapping[str, Any]]  # lines of metrics.jsonl


@dataclass(frozen=True)
class Group:
    """Runs that differ only in the seed."""

    name: str
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> str:
        """The seeds as text."""
        return ", ".join(str(run.seed) for run in self.runs)

    def values(self, figure: Figure) -> list[float]:
        """A figure of the runs that have it."""
        return [run.figures[figure.key] for run in self.runs if figure.key in run.figures]

    def curve(self, key: str) -> "Curve | None":
        """A figure over the epochs; None if no run has it."""
        longest = max((len(run.epochs) for run in self.runs), default=0)
        points = []
        for place in range(longest):
            lines = [run.epochs[place] for run in self.runs if place < len(run.epochs)]
            if values := [line[key] for line in lines if line.get(key) is not None]:
                mean, *deviation = mean_and_deviation(values)
                points.append((place + 1, mean, sum(deviation)))
        return Curve(tuple(points), len(self.runs) > 1) if points else None


@dataclass(frozen=True)
class Curve:
    """The mean of a figure over the epochs, and its deviation over the runs."""

    points: tuple[tuple[int, float, float], ...]  # epoch from 1, mean, deviation
    has_band: bool  # whether there are several runs


def mean_and_deviation(values: Sequence[float]) -> tuple[float, ...]:
    """Mean and sample standard deviation; the mean alone if there is only one value."""
    mean = statistics.fmean(values)
    return (mean, statistics.stdev(values, mean)) if len(values) > 1 else (mean,)


def figures_of(groups: Iterable[Group]) -> list[Figure]:
    """The figures that at least one run has."""
    keys = {key for group in groups for run in group.runs for key in run.figures}
    return [figure for figure in FIGURES if figure.key in keys]


def grouped(runs: Iterable[Run]) -> list[Group]:
    """Groups of runs that differ only in the seed, in the order of the runs.

    Runs with the same settings and the same seed are of different code, data or decisions. They are
    kept apart: by the folder that their folders are in, or else each for itself.
    """
    same: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        same[repr(sorted(run.settings.items()))].append(run)
    parts = [part for alike in same.values() for part in _without_repeated_seeds(alike)]
    names = _names([part[0].settings for part in parts])
    often = Counter(names)
    return [
        Group(f"{name} ({_place(part)})" if often[name] > 1 else name, tuple(part))
        for name, part in zip(names, parts, strict=True)
    ]


def _without_repeated_seeds(runs: list[Run]) -> list[list[Run]]:
    if not _repeats(runs):
        return [_by_seed(runs)]
    by_parent: dict[Path, list[Run]] = defaultdict(list)
    for run in runs:
        by_parent[run.folder.parent].append(run)
    parts = [[[r] for r in part] if _repeats(part) else [part] for part in by_parent.values()]
    return [_by_seed(part) for several in parts for part in several]


def _repeats(runs: list[Run]) -> bool:
    return len({run.seed for run in runs}) < len(runs)


def _by_seed(runs: list[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: run.seed)


def _place(runs: list[Run]) -> str:
    """Where the runs of a group are."""
    return str(runs[0].folder if len(runs) == 1 else runs[0].folder.parent)


def _names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A short name for each group: the method, and the settings in which groups differ."""
    differ = [name for name in FIRST if _differs(name, settings)]
    differ = list(dict.fromkeys(["method", *differ]))
    names = []
    for own in settings:
        alike = [s for s in settings if all(s.get(n) == own.get(n) for n in ("method", "kind"))]
        others = [name for name in own if name not in FIRST and _differs(name, alike)]
        parts = [Path(str(own[name])).name for name in differ if own.get(name) is not None]
        names.append(", ".join([*parts, *(f"{name}={_written(own[name])}" for name in others)]))
    return names


def _differs(name: str, settings: Sequence[Mapping[str, Any]]) -> bool:
    return len({repr(own.get(name)) for own in settings}) > 1


def _written(value: object) -> str:
    """A value as it is written after `--set`."""
    return str(value).lower() if isinstance(value, bool | None) else str(value)
