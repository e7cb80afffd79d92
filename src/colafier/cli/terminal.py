"""What all commands share: the console, and how mistakes and Ctrl-C are reported."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

SHORT_HELP = {"help_option_names": ["-h", "--help"]}
INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C
FIXABLE = (ValueError, OSError, ImportError)  # errors that the user can fix
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # a full disk, or a full quota

console = Console(markup=False, emoji=False, highlight=False)  # print ":key:" as it is
errors = Console(markup=False, emoji=False, highlight=False, stderr=True)


@contextmanager
def mistakes_explained(kinds: tuple[type[Exception], ...] = FIXABLE) -> Iterator[None]:
    """Report errors that the user can fix in one line, without a traceback."""
    try:
        yield
    except kinds as error:
        full = isinstance(error, OSError) and error.errno in NO_ROOM
        advice = "; make room and give the command again" if full else ""
        errors.print(f"error: {error}{advice}", soft_wrap=True)
        raise typer.Exit(2) from error
    except MemoryError as error:
        errors.print("error: there is not enough memory for this; use fewer rows", soft_wrap=True)
        raise typer.Exit(2) from error


@contextmanager
def interruptible(advice: str) -> Iterator[None]:
    """On Ctrl-C, print what to do next and exit with the code that shells expect."""
    try:
        yield
    except KeyboardInterrupt as stop:
        errors.print("\n".join(["", *map(str, stop.args), advice]), soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
