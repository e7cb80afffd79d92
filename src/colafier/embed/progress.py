"""A progress bar over rows, for a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def bar(
    what: str, total: int, shown: bool = True, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of rows just done; silent if not `shown`.

    Args:
        what: Stands before the bar.
        total: Rows in all.
        shown: False, or no terminal, shows nothing.
        console: Where to draw; stderr by default, which leaves stdout to results.
    """
    console = Console(stderr=True) if console is None else console
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    disabled = not (shown and total and console.is_terminal)
    with Progress(*columns, console=console, disable=disabled) as progress:
        task = progress.add_task(what, total=total)
        yield lambda rows: progress.advance(task, rows)
