"""Options that take several values after one name, as in `--seeds 1 2 3`."""

from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand


class ManyValues(TyperCommand):
    """A command whose repeatable options may also be given once, with all values after them.

    `--seeds 1 2 3` is read as `--seeds 1 --seeds 2 --seeds 3`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the name of such an option before each of its values."""
        many = {
            name
            for option in self.params
            if getattr(option, "multiple", False)
            for name in option.opts
        }
        return super().parse_args(ctx, list(_repeated(args, many)))


def _repeated(args: list[str], many: set[str]) -> Iterator[str]:
    option, values = "", 0
    for arg in args:
        if arg.startswith("-"):
            option, values = (arg, 0) if arg in many else ("", 0)
        elif option:
            if values:
                yield option
            values += 1
        yield arg
