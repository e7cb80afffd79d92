"""Scores of a suite: mean and deviation over seeds, averages and ranks, and what is missing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from colafier.bench.results import Record, Results, failed
from colafier.bench.suite import Run, Suite
from colafier.methods import find

METRICS = {  # the first one decides the order of the rows
    "test_accuracy": "Test accuracy, last epoch",
    "test_accuracy_last10": "Test accuracy, mean of the last ten epochs",
    "labels_right_after": "Labels right after, by the method itself",
    "audit_labels_right_after": "Labels right after the audit",
    "oracle_top3": "Oracle: mean of the three best epochs by test accuracy, the paper's metric",
}
BASELINE = "ce"
SHORT = {"symmetric": "sym.", "asymmetric": "asym.", "instance": "inst."}


@dataclass(frozen=True)
class Cell:
    """A score over the seeds, in percent."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return fmean(self.values)

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds; None for a single one."""
        return stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Column:
    """A noise on one of the suite's data sets."""

    part: str
    noise: str
    rates: tuple[float, ...]  # share of wrong labels, for each seed that was run
    show_part: bool = False

    @property
    def title(self) -> str:
        """The noise in words."""
        kind, _, rest = self.noise.partition(":")
        if kind == "none":
            text = "no noise"
        elif kind == "cifar10n":
            text = rest
        elif kind == "file":
            text = "labels of a file"
        else:
            text = f"{SHORT.get(kind, kind)} {float(rest):.0%}".replace("%", " %")
        return f"{self.part}, {text}" if self.show_part else text

    @property
    def rate(self) -> str:
        """The true share of wrong labels."""
        return f"{100 * fmean(self.rates):.1f} % wrong"


@dataclass(frozen=True)
class Scores:
    """One metric: a row for each entry, a column for each noise."""

    metric: str
    columns: tuple[Column, ...]
    cells: Mapping[str, tuple[Cell | None, ...]]  # by entry
    before: tuple[Cell, ...] | None = None  # labels right before, for metrics of labels

    def average(self, entry: str) -> float | None:
        """Mean over the columns; None if one is missing."""
        cells = [cell for cell in self.cells[entry] if cell is not None]
        return fmean(c.mean for c in cells) if len(cells) == len(self.columns) else None

    def mean_rank(self, entry: str) -> float | None:
        """Mean over the columns of the rank among the entries; None if a column is missing."""
        if any(cell is None for cell in self.cells[entry]):
            return None
        return fmean(self._rank(entry, column) for column in range(len(self.columns)))

    def best(self, column: int) -> float:
        """The highest mean in a column."""
        return max(cell.mean for cell in self._column(column))

    def below(self, entry: str, baseline: str = BASELINE) -> int | None:
        """In how many columns an entry is below a baseline; None if that is not known."""
        if baseline not in self.cells:
            return None
        both = zip(self.cells[entry], self.cells[baseline], strict=True)
        return sum(a.mean < b.mean for a, b in both if a is not None and b is not None)

    def _column(self, column: int) -> list[Cell]:
        return [c for cells in self.cells.values() if (c := cells[column]) is not None]

    def _rank(self, entry: str, column: int) -> float:
        """1 for the best mean; equal means share the mean of their ranks."""
        cell = self.cells[entry][column]
        assert cell is not None
        others = [other.mean for other in self._column(column)]
        above = sum(mean > cell.mean for mean in others)
        return above + (sum(mean == cell.mean for mean in others) + 1) / 2


@dataclass(frozen=True)
class Collected:
    """All that the tables of a suite show."""

    suite: Suite
    scores: Mapping[str, Scores]  # by metric
    order: tuple[str, ...]  # entries, best first
    seconds: Mapping[str, float]  # mean training time of a run, by entry
    knows_rate: frozenset[str]  # entries that are told the true noise rate
    missing: tuple[Run, ...]
    outdated: tuple[Run, ...]  # recorded with other settings than the suite has now
    records: tuple[Record, ...]


def collect(
    suite: Suite,
    results: Results,
    methods: Sequence[str] = (),
    noises: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> Collected:
    """The scores of a suite from its records.

    Args:
        suite: The suite.
        results: Its records.
        methods: Entries to show; empty: those of the suite, and others that have records.
        noises: Noises to show; empty: those of the suite.
        seeds: Seeds to show; empty: those of the suite, and its optional ones.
    """
    records = results.newest()
    if not methods:
        names = {entry.name for entry in suite.entries}
        others = sorted({r["entry"] for r in records.values()} - names)
        methods = [entry.name for entry in suite.entries] + [n for n in others if _known(suite, n)]
    needed = suite.runs("", methods, noises, seeds)
    optional = suite.runs("", methods, noises, suite.optional_seeds) if suite.optional_seeds else []
    runs = needed + [run for run in optional if not seeds]
    own = {entry.name for entry in suite.entries}
    found = {run: records[run.key] for run in runs if _ok(records.get(run.key))}
    scores = {metric: _scores(metric, found) for metric in METRICS}
    return Collected(
        suite,
        scores,
        _order(scores["test_accuracy"]),
        {name: fmean(times) for name, times in _seconds(found).items()},
        frozenset(run.entry.name for run in found if find(run.entry.method).needs_noise_rate),
        tuple(run for run in needed if run not in found and run.entry.name in own),
        tuple(run for run, record in found.items() if record["settings"] != run.digest()),
        tuple(found.values()),
    )


def _known(suite: Suite, name: str) -> bool:
    """Whether there is still an entry of this name."""
    try:
        return bool(suite.entry(name))
    except ValueError:
        return False


def _ok(record: Record | None) -> bool:
    return record is not None and not failed(record)


def _scores(metric: str, found: Mapping[Run, Record]) -> Scores:
    several = len({run.part for run in found}) > 1
    values: dict[tuple[str, str, str], list[float]] = {}
    rates: dict[tuple[str, str], dict[int, float]] = {}
    before: dict[tuple[str, str], dict[int, float]] = {}
    for run, record in found.items():
        place, seed = (run.part, run.noise), run.settings.seed
        rates.setdefault(place, {})[seed] = record["noise"]["true_rate"]
        before.setdefault(place, {})[seed] = 100 * record["labels_right_before"]
        if record.get(metric) is not None:
            values.setdefault((run.entry.name, *place), []).append(100 * record[metric])
    columns = tuple(Column(*place, tuple(r.values()), several) for place, r in rates.items())
    entries = dict.fromkeys(run.entry.name for run in found)
    return Scores(
        metric,
        columns,
        {entry: tuple(_cell(values.get((entry, c.part, c.noise))) for c in columns)
         for entry in entries},
        tuple(Cell(tuple(b.values())) for b in before.values()) if "labels" in metric else None,
    )  # fmt: skip


def _cell(values: Iterable[float] | None) -> Cell | None:
    return None if values is None else Cell(tuple(values))


def _order(scores: Scores) -> tuple[str, ...]:
    """Entries by mean rank, those with missing columns last; ablations as the suite has them."""
    entries = list(scores.cells)
    if all(name.startswith("colafier") for name in entries):
        return tuple(entries)

    def place(entry: str) -> tuple[float, float]:
        rank = scores.mean_rank(entry)
        some = [cell.mean for cell in scores.cells[entry] if cell is not None]
        return (rank if rank is not None else len(entries) + 1.0, -fmean(some) if some else 0.0)

    return tuple(sorted(entries, key=place))


def _seconds(found: Mapping[Run, Record]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for run, record in found.items():
        times.setdefault(run.entry.name, []).append(float(record["seconds"]))
    return times


def hardware_words(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The different machines that the records were made on."""
    words = []
    for record in records:
        used = record["hardware"]
        device = used["gpu"] or f"{used['cpu']}, {used['threads']} of {used['cores']} cores a run"
        words.append(f"{device}; torch {record['versions']['torch']}")
    return list(dict.fromkeys(words))
