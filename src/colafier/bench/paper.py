"""The numbers that the paper prints, and ours beside them."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from colafier.bench.entries import VARIANTS
from colafier.bench.results import Results
from colafier.bench.scores import Cell, Collected, Column, collect
from colafier.bench.suite import load_suite
from colafier.bench.tables import Grid, cell_text, markdown_grid, notes

FILE = "paper.toml"
SHOWN = {"oracle_top3": "ours, best 3", "test_accuracy": "ours, last"}


@dataclass(frozen=True)
class PaperRow:
    """A row of one of the paper's tables, in percent."""

    means: tuple[float, ...]
    deviations: tuple[float, ...]
    average: float | None = None
    own_code: bool = False  # whether the paper's authors ran it; else they quote the numbers


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables."""

    title: str
    noises: tuple[str, ...]
    small: tuple[str, ...]  # suites with the same noise that finish on two cores
    rows: Mapping[str, PaperRow]  # by the name of our entry


@cache
def paper_tables() -> dict[str, PaperTable]:
    """The paper's tables by the name of their suite."""
    file = resources.files("colafier.bench") / FILE
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    return {
        name: PaperTable(
            table["title"],
            tuple(table["noises"]),
            tuple(table["small"]),
            {
                entry: PaperRow(
                    tuple(row["means"]),
                    tuple(row["deviations"]),
                    row.get("average"),
                    row.get("own_code", False),
                )
                for entry, row in table["rows"].items()
            },
        )
        for name, table in content.items()
    }


def comparison(name: str, folder: Path) -> str:
    """The paper's table beside our results, as Markdown.

    Where the suite itself has no records, smaller suites with the same noise take its place.

    Args:
        name: table1a, table1b, table2 or ablation.
        folder: Where the records are.
    """
    tables = paper_tables()
    if name not in tables:
        raise ValueError(f"the paper has no table {name!r}; there are {', '.join(tables)}")
    paper = tables[name]
    found = _recorded([name], paper, folder)
    parts = [f"# The paper's {name} beside ours: {paper.title}"]
    if not found:
        found = _recorded(paper.small, paper, folder)
        parts.append(
            f"**The suite {name} has not been run here.** Ours are smaller suites with the same "
            "kind of noise but other data, nets and numbers of epochs, so only the order of the "
            "methods can be compared, not the numbers."
        )
    if not found:
        needed = " or ".join(f"colafier bench run {suite}" for suite in (name, *paper.small))
        raise ValueError(f"{folder} has no records to compare with; start with: {needed}")
    parts.append(
        "Percent, mean ± standard deviation over seeds. The paper's metric is the mean of the "
        "three best epochs by test accuracy, which cannot be had without test labels. Compare it "
        f'with "{SHOWN["oracle_top3"]}"; "{SHOWN["test_accuracy"]}" is the accuracy of the last '
        "epoch. Rows with a star were run by the paper's authors; it quotes other baselines."
    )
    for ours in found:
        parts.append(f"## Ours: {ours.suite.title}")
        parts.append(markdown_grid(_grid(paper, ours)))
        parts.append(notes(ours))
    return "\n\n".join(parts) + "\n"


def _recorded(suites: Sequence[str], paper: PaperTable, folder: Path) -> list[Collected]:
    """Suites that have records with the paper's noises."""
    found = []
    for suite in map(load_suite, suites):
        noises = [n for n in paper.noises if any(n in part.noises for part in suite.parts)]
        if noises and (ours := collect(suite, Results(folder, suite.name), noises=noises)).records:
            found.append(ours)
    return found


def _grid(paper: PaperTable, ours: Collected) -> Grid:
    columns = ours.scores["test_accuracy"].columns
    titles = [Column("", noise, ()).title for noise in paper.noises]
    head = ["entry", *(f"paper, {title}" for title in titles)]
    head += [f"{words}, {c.title} ({c.rate})" for words in SHOWN.values() for c in columns]
    rows = []
    for key, row in paper.rows.items():
        printed = [f"{m:.2f} ± {d:.2f}" for m, d in zip(row.means, row.deviations, strict=True)]
        for entry in _entries_like(key, ours):
            cells = [cell for metric in SHOWN for cell in _cells(ours, metric, entry)]
            star = " *" if row.own_code else ""
            rows.append((entry + star, *printed, *(cell_text(cell) for cell in cells)))
    return Grid(paper.title, tuple(head), tuple(rows))


def _entries_like(key: str, ours: Collected) -> list[str]:
    """Our entries for a row of the paper: all variants of CoLafier stand beside its own row."""
    whole, colon, part = key.partition(":")
    names = [*sorted(VARIANTS), "colafier"] if whole == "colafier" else [key]
    names = [f"{name}{colon}{part}" if colon else name for name in names]
    known = [name for name in names if name in ours.scores["test_accuracy"].cells]
    return known or [key]


def _cells(ours: Collected, metric: str, entry: str) -> tuple[Cell | None, ...]:
    scores = ours.scores[metric]
    return scores.cells.get(entry, (None,) * len(scores.columns))
