"""What the commands share: where they print, and how mistakes and Ctrl-C are told."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

SHORT_HELP = {"help_option_names": ["-h", "--help"]}
INTERRUPTED = 130  # what a shell expects after Ctrl-C
MENDABLE = (ValueError, OSError, ImportError)  # by the user, before a run has begun

console = Console(markup=False, emoji=False, highlight=False)  # ":key:" is text
errors = Console(markup=False, emoji=False, highlight=False, stderr=True)


@contextmanager
def mistakes_explained(kinds: tuple[type[Exception], ...] = MENDABLE) -> Iterator[None]:
    """What the user can mend is said in one line, without a traceback."""
    try:
        yield
    except kinds as error:
        errors.print(f"error: {error}", soft_wrap=True)
        raise typer.Exit(2) from error


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """Ctrl-C ends with what to do next, and the exit code that shells expect."""
    try:
        yield
    except KeyboardInterrupt as stop:
        errors.print("\n".join(["", *map(str, stop.args), advice]), soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
