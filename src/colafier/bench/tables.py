"""The tables of a suite as Markdown and as LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from colafier.bench.scores import BASELINE, METRICS, Cell, Collected, Scores, hardware_words
from colafier.bench.suite import Run

RATE_MARK = "†"
SHOWN_MISSING = 12  # groups of missing runs that are listed one by one


@dataclass(frozen=True)
class Grid:
    """A table as texts; bold cells are marked by a leading `*`."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def grids(found: Collected) -> list[Grid]:
    """The summary, then a table for each metric."""
    metrics = [_metric_grid(found, found.scores[metric]) for metric in METRICS]
    return [_summary(found), *metrics]


def markdown(found: Collected) -> str:
    """All tables, what is missing, and how the records were made."""
    parts = [f"# {found.suite.title}", _explanation(found)]
    parts += [f"## {grid.title}\n\n{markdown_grid(grid)}" for grid in grids(found)]
    parts += [f"## About these records\n\n{notes(found)}"]
    return "\n\n".join(parts) + "\n"


def latex(found: Collected) -> str:
    """All tables for LaTeX, with the package booktabs."""
    tables = [_latex_grid(grid) for grid in grids(found)]
    head = f"% {found.suite.title}\n% \\usepackage{{booktabs}}\n"
    return head + "\n\n".join(tables) + "\n"


def notes(found: Collected) -> str:
    """Number of records, hardware, versions, and what is missing or was made otherwise."""
    records = found.records
    commits = dict.fromkeys(_short(r["commit"]) for r in records)
    lines = [
        f"{len(records)} runs. Made by `colafier bench run {found.suite.name}`.",
        f"Hardware: {'; '.join(hardware_words(records))}.",
        f"Commits: {', '.join(commits)}.",
    ]
    if found.missing:
        lines.append(f"**{len(found.missing)} runs of the suite are missing:** ")
        lines[-1] += f"{missing_words(found.missing)}."
    if found.outdated:
        lines.append(
            f"{len(found.outdated)} runs have other settings than the suite has now: "
            f"{missing_words(found.outdated)}."
        )
    return "\n".join(f"- {line}" for line in lines)


def _short(commit: str | None) -> str:
    """The first digits of a commit, and whether the code had changes that were not committed."""
    digits, plus, changes = (commit or "unknown").partition("+")
    return digits[:10] + plus + changes


def missing_words(runs: Sequence[Run]) -> str:
    """Runs by entry, in few words."""
    by_entry: dict[str, list[str]] = {}
    for run in runs:
        text = f"{run.noise} seed {run.settings.seed}"
        by_entry.setdefault(run.entry.name, []).append(text)
    groups: dict[tuple[str, ...], list[str]] = {}
    for entry, texts in by_entry.items():
        groups.setdefault(tuple(texts), []).append(entry)
    words = [f"{', '.join(entries)} ({_few(texts)})" for texts, entries in groups.items()]
    more = len(words) - SHOWN_MISSING
    return "; ".join(words[:SHOWN_MISSING]) + (f"; and {more} more" if more > 0 else "")


def _few(texts: Sequence[str]) -> str:
    return ", ".join(texts) if len(texts) <= 4 else f"{len(texts)} runs, first {texts[0]}"


def _explanation(found: Collected) -> str:
    seeds = {len(cell.values) for cell in _all_cells(found) if cell is not None}
    over = " to ".join(str(n) for n in sorted({min(seeds), max(seeds)})) if seeds else "no"
    text = (
        f"Percent, mean ± standard deviation over {over} seeds; the best of each column in bold. "
        "Entries are sorted by mean rank in the test accuracy of the last epoch. "
        "An entry with a missing column has no average and no mean rank."
    )
    if found.knows_rate:
        text += f" {RATE_MARK}: the method is told the true noise rate."
    return text


def _all_cells(found: Collected) -> list[Cell | None]:
    return [cell for row in found.scores["test_accuracy"].cells.values() for cell in row]


def _summary(found: Collected) -> Grid:
    """Average and mean rank of each entry for test accuracy and for labels."""
    test, own, audited = (
        found.scores[name]
        for name in ("test_accuracy", "labels_right_after", "audit_labels_right_after")
    )
    head = (
        "entry", "test accuracy", "rank", f"columns below {BASELINE}",
        "labels right, method", "rank", "labels right, audit", "rank", "seconds",
    )  # fmt: skip
    best = {id(s): _best_summary(s) for s in (test, own, audited)}
    rows = []
    for entry in found.order:
        cells = [_named(entry, found)]
        for scores in (test, own, audited):
            average, rank = scores.average(entry), scores.mean_rank(entry)
            top, first = best[id(scores)]
            cells += [_number(average, ".2f", average == top), _number(rank, ".1f", rank == first)]
            if scores is test:
                below = scores.below(entry)
                cells.append("" if below is None or entry == BASELINE else str(below))
        rows.append((*cells, f"{found.seconds[entry]:.0f}"))
    title = "Summary: averages over the columns, and mean ranks"
    return Grid(title, head, tuple(rows))


def _best_summary(scores: Scores) -> tuple[float | None, float | None]:
    averages = [a for entry in scores.cells if (a := scores.average(entry)) is not None]
    ranks = [r for entry in scores.cells if (r := scores.mean_rank(entry)) is not None]
    return max(averages, default=None), min(ranks, default=None)


def _metric_grid(found: Collected, scores: Scores) -> Grid:
    head = ("entry", *(f"{c.title} ({c.rate})" for c in scores.columns), "average", "mean rank")
    rows = []
    if scores.before:
        mean = fmean(cell.mean for cell in scores.before)
        rows.append(("(before)", *(cell_text(c) for c in scores.before), f"{mean:.2f}", ""))
    top, first = _best_summary(scores)
    most = max((len(c.values) for c in _all_cells(found) if c is not None), default=0)
    for entry in found.order:
        cells = [
            cell_text(cell, cell is not None and cell.mean == scores.best(column), most)
            for column, cell in enumerate(scores.cells[entry])
        ]
        average, rank = scores.average(entry), scores.mean_rank(entry)
        ends = (_number(average, ".2f", average == top), _number(rank, ".1f", rank == first))
        rows.append((_named(entry, found), *cells, *ends))
    return Grid(METRICS[scores.metric], head, tuple(rows))


def _named(entry: str, found: Collected) -> str:
    return entry + (f" {RATE_MARK}" if entry in found.knows_rate else "")


def cell_text(cell: Cell | None, bold: bool = False, seeds: int = 0) -> str:
    """Mean and deviation; the number of seeds if it is lower than elsewhere."""
    if cell is None:
        return ""
    text = f"{cell.mean:.2f}"
    if cell.deviation is not None:
        text += f" ± {cell.deviation:.2f}"
    if len(cell.values) < seeds:
        text += f" ({len(cell.values)})"
    return f"*{text}" if bold else text


def _number(value: float | None, form: str, bold: bool) -> str:
    if value is None:
        return ""
    return f"*{value:{form}}" if bold else f"{value:{form}}"


def markdown_grid(grid: Grid) -> str:
    """A table as Markdown."""

    def text(cell: str) -> str:
        return f"**{cell[1:]}**" if cell.startswith("*") else cell

    rows = [grid.head, ("---",) * len(grid.head), *(tuple(map(text, row)) for row in grid.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _latex_grid(grid: Grid) -> str:
    def text(cell: str) -> str:
        plain = cell.removeprefix("*").replace(" ± ", r" $\pm$ ").replace(RATE_MARK, r"$\dagger$")
        for sign in "%_":
            plain = plain.replace(sign, f"\\{sign}")
        return rf"\textbf{{{plain}}}" if cell.startswith("*") else plain

    lines = [" & ".join(map(text, row)) + r" \\" for row in (grid.head, *grid.rows)]
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{text(grid.title)}}}",
            rf"\begin{{tabular}}{{l{'c' * (len(grid.head) - 1)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )
