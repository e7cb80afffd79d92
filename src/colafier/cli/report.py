"""The command that builds the report of a run again."""

from pathlib import Path
from typing import Annotated

import typer

from colafier.cli.terminal import console, mistakes_explained


def report(
    out: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
) -> None:
    """Write OUT/report.html again, from the files in OUT.

    - `colafier report out`
    - `colafier report runs/demo/colafier`

    The page needs no network and no server: open it in a browser, look, and decide.
    """
    from colafier.report import page as page

    with mistakes_explained():
        path = page.write(out)
    console.print(f"The report is {path}: open it in a browser.", soft_wrap=True)
