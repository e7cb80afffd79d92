"""The command `report`, which rebuilds the report page of a run."""

from pathlib import Path
from typing import Annotated

import typer

from colafier.cli.terminal import console, mistakes_explained


def report(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder of a finished purify or train run.")
    ],
) -> None:
    """Rebuild OUT/report.html from the files in OUT.

    - `colafier report out`
    - `colafier report runs/demo/colafier` (the folder of a train run)

    The page needs no network and no server: open it in a browser, review the doubtful rows, save
    your decisions, and apply them with `colafier apply OUT decisions.json`.
    """
    from colafier.report import page as page

    with mistakes_explained():
        path = page.write(out)
    console.print(f"The report is {path}: open it in a browser.", soft_wrap=True)
