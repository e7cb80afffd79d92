"""The page of `colafier compare`: a table and learning curves, without script or network."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from colafier._io import atomic_file
from colafier.report.comparison import (
    CURVES,
    Figure,
    Group,
    Run,
    figures_of,
    mean_and_deviation,
)
from colafier.report.curve_chart import chart, color, key

GENERATOR = 'name="generator" content="colafier compare"'
TEXTS = ("group", "folder")  # columns that hold no numbers


def write(groups: Sequence[Group], skipped: Mapping[Path, str], path: Path) -> Path:
    """Write the page; a file that is something else is not replaced.

    Args:
        groups: The runs to compare.
        skipped: What is left out, and why.
        path: The file.
    """
    if path.is_dir() or (path.exists() and not _is_page(path)):
        raise FileExistsError(f"{path} is not a page of colafier compare; give another file")
    with atomic_file(path) as partial:
        partial.write_text(page(groups, skipped), encoding="utf-8")
    return path


def page(groups: Sequence[Group], skipped: Mapping[Path, str]) -> str:
    """The whole page; everything that comes from files is escaped."""
    runs = sum(len(group.runs) for group in groups)
    subtitle = f"{len(groups)} {'groups' if len(groups) > 1 else 'group'} by settings"
    parts = {
        "TITLE": f"Comparison of {runs} {'runs' if runs > 1 else 'run'}",
        "SUBTITLE": subtitle,
        "STYLE": _template("style.css") + _template("compare.css") + _hiding_rules(len(groups)),
        "SCORES": _scores(groups),
        "LEGEND": "".join(_legend_entry(number, group) for number, group in enumerate(groups)),
        "CHARTS": "".join(_figure(name, *about, groups) for name, about in CURVES.items())
        or "<p>These runs have no figures over the epochs that could be drawn.</p>",
        "RUNS": _runs(groups),
        "SKIPPED": _skipped(skipped),
    }
    # all at once, because a name may contain text that looks like a placeholder
    return re.sub("@([A-Z]+)@", lambda place: parts[place[1]], _template("compare.html"))


def _is_page(path: Path) -> bool:
    return GENERATOR in path.read_bytes()[:2000].decode("utf-8", "replace")


def _template(name: str) -> str:
    return (files("colafier.report") / "templates" / name).read_text(encoding="utf-8")


def _hiding_rules(groups: int) -> str:
    """Rules by which a cleared box hides its group, without a script."""
    return "".join(
        f"body:has(#show{number}:not(:checked)) .g{number} {{ display: none; }}\n"
        for number in range(groups)
    )


def _scores(groups: Sequence[Group]) -> str:
    figures = figures_of(groups)
    best = {figure.key: _best(figure, groups) for figure in figures}
    lines = []
    for number, group in enumerate(groups):
        cells = [_cell(escape(group.seeds))]
        for figure in figures:
            cells.append(_cell(figure.text(group.values(figure)), best[figure.key] == number))
        name = f'{key(number)}<bdi dir="auto">{escape(group.name)}</bdi>'
        lines.append(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>')
    return _table(["group", "seeds", *(figure.title for figure in figures)], lines)


def _best(figure: Figure, groups: Sequence[Group]) -> int | None:
    """The group with the highest mean; None if that says nothing."""
    means = {
        number: mean_and_deviation(values)[0]
        for number, group in enumerate(groups)
        if (values := group.values(figure))
    }
    if not figure.higher_is_better or len(means) < 2:
        return None
    return max(means, key=lambda number: means[number])


def _runs(groups: Sequence[Group]) -> str:
    figures = figures_of(groups)
    lines = [
        f'<tr><th scope="row">{key(number)}<bdi dir="auto">{escape(group.name)}</bdi></th>'
        f"{_run_cells(run, figures)}</tr>"
        for number, group in enumerate(groups)
        for run in group.runs
    ]
    return _table(["group", "folder", "seed", *(figure.title for figure in figures)], lines)


def _run_cells(run: Run, figures: Sequence[Figure]) -> str:
    folder = f'<td class="path"><bdi dir="auto">{escape(str(run.folder))}</bdi></td>'
    values = [[run.figures[f.key]] if f.key in run.figures else [] for f in figures]
    texts = [figure.text(value) for figure, value in zip(figures, values, strict=True)]
    return folder + _cell(str(run.seed)) + "".join(map(_cell, texts))


def _cell(text: str, best: bool = False) -> str:
    return f'<td class="n{" best" if best else ""}">{text}</td>'


def _table(heads: Sequence[str], lines: Sequence[str]) -> str:
    kinds = ["" if head in TEXTS else ' class="n"' for head in heads]
    cells = "".join(
        f'<th scope="col"{kind}>{escape(head)}</th>'
        for head, kind in zip(heads, kinds, strict=True)
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _legend_entry(number: int, group: Group) -> str:
    return (
        f'<label><input type="checkbox" id="show{number}" checked autocomplete="off" '
        f'style="accent-color: {color(number)}">{key(number)}'
        f'<bdi dir="auto">{escape(group.name)}</bdi></label>'
    )


def _figure(name: str, title: str, unit: str, groups: Sequence[Group]) -> str:
    curves = {
        number: (group.name, curve)
        for number, group in enumerate(groups)
        if (curve := group.curve(name)) is not None
    }
    if not curves:
        return ""
    return f"<figure><h3>{escape(title)}</h3>{chart(curves, title, unit)}</figure>"


def _skipped(skipped: Mapping[Path, str]) -> str:
    if not skipped:
        return ""
    lines = "".join(
        f'<li><bdi dir="auto">{escape(str(path))}</bdi>: {escape(why)}</li>'
        for path, why in skipped.items()
    )
    return f'<div class="warning">{len(skipped)} left out:<ul>{lines}</ul></div>'
