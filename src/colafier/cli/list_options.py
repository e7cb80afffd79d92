"""List options that take several values: `--seeds 1 2 3` instead of `--seeds 1 --seeds 2`."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from typer.core import TyperCommand


class ListOptionsCommand(TyperCommand):
    """A command whose list options take all values up to the next option.

    Used as `app.command(cls=ListOptionsCommand)`. Arguments of such a command must stand before its
    list options, which would take them as values.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of the command line."""
        lists = {
            name
            for parameter in self.params
            if getattr(parameter, "multiple", False)  # only options have it
            for name in parameter.opts
        }
        return super().parse_args(ctx, list(repeated(args, lists)))


def repeated(args: Iterable[str], lists: set[str]) -> Iterator[str]:
    """Words of a command line with the name of a list option before each of its values.

    Args:
        args: The words as given.
        lists: Names of the list options, such as `--seeds`.
    """
    words = iter(args)
    option = None
    for word in words:
        name, _, value = word.partition("=")
        if word == "--":  # only arguments follow
            yield word
            yield from words
        elif word.startswith("-"):
            option = name if name in lists else None
            yield word
            if option and not value:  # the parser refuses a value that is missing
                yield from islice(words, 1)
        elif option:
            yield from (option, word)
        else:
            yield word
