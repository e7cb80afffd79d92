"""The command `compare`, which puts finished runs side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from colafier.cli.terminal import console, errors, mistakes_explained

if TYPE_CHECKING:
    from colafier.report.comparison import Group

SHOWN = 10  # of the folders that are left out


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS...", help="Folders of runs, or folders that hold some."),
    ],
    out: Annotated[
        Path, typer.Option(help="The page; an older page of this command is replaced.")
    ] = Path("compare.html"),
) -> None:
    """Compare finished runs of train or purify: a table here, learning curves on a page.

    - `colafier compare runs/*`
    - `colafier compare runs/adaptive runs/ce --out adaptive-and-ce.html`

    Runs that differ only in the seed become one line, with mean and standard deviation. Folders
    without a finished run are named and left out. The page needs no network and no scripts.
    """
    from colafier.workflows import compare as workflow

    with mistakes_explained():
        found = workflow.compare(runs)
        _name_skipped(found.skipped)
        if not found.groups:
            raise ValueError("there is no finished run to compare")
        path = workflow.write(found, out)
    console.print(_table(found.groups))
    console.print(f"The page with the learning curves is {path}: open it in a browser.")


def _name_skipped(skipped: Mapping[Path, str]) -> None:
    if skipped:
        errors.print(f"{len(skipped)} left out:")
    for path, why in list(skipped.items())[:SHOWN]:
        errors.print(f"  {path}: {why}", soft_wrap=True)
    if len(skipped) > SHOWN:
        errors.print(f"  and {len(skipped) - SHOWN} more, which the page lists")


def _table(groups: Sequence["Group"]) -> Table:
    """The most important figures of each group."""
    from colafier.report.comparison import figures_of

    figures = [figure for figure in figures_of(groups) if figure.in_terminal]
    if not figures:  # the truth is not known: what is estimated
        figures = figures_of(groups)
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("group", overflow="fold")
    shown.add_column("runs", justify="right")
    for figure in figures:
        texts = [figure.text(group.values(figure)) for group in groups]
        shown.add_column(figure.title, justify="right", min_width=max(map(len, texts)))
    for group in groups:
        texts = [figure.text(group.values(figure)) for figure in figures]
        shown.add_row(group.name, str(len(group.runs)), *texts)
    return shown
