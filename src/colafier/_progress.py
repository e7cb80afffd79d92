"""Progress bars for a terminal: one for training, one for all that is counted in one pass.

rich is imported at first use: its import draws from Python's random generator.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

Figures = dict[str, float | None]


class EpochBar:
    """Epoch, loss, changed labels, test accuracy and the time left.

    Args:
        epochs: Epochs of the whole run.
        done: Epochs done before.
        shown: False, or no terminal, shows nothing.
        console: Where to draw; stderr by default, which leaves stdout to results.
    """

    def __init__(
        self, epochs: int, done: int = 0, shown: bool = True, console: "Console | None" = None
    ) -> None:
        from rich.progress import TextColumn

        self.epochs = epochs
        figures = TextColumn("{task.percentage:>3.0f}%  {task.fields[figures]}")
        self._progress = _progress(figures, shown, console)
        self._task = self._progress.add_task("", total=epochs, completed=done, figures="")
        self._completed = float(done)
        self._last_epoch = ""

    def __enter__(self) -> "EpochBar":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def step(self, epoch: int, tag: str, done: int, steps: int, loss: float) -> None:
        """Show a step: `done` of `steps` of this pass."""
        # the number of passes is not known before the epoch ends, so only the first moves the bar
        self._completed = max(self._completed, epoch + done / steps)
        self._show(loss, f"epoch {epoch + 1}/{self.epochs} {tag} {done}/{steps}")

    def epoch(self, epoch: int, figures: Figures) -> None:
        """Show the figures of a finished epoch."""
        self._last_epoch = ""
        if (changed := figures.get("labels_changed")) is not None:
            self._last_epoch += f"  labels changed {changed:.0f}"
        if (accuracy := figures.get("test_accuracy")) is not None:
            self._last_epoch += f"  test accuracy {accuracy:.3f}"
        self._completed = epoch + 1.0
        self._show(figures.get("loss"))

    def _show(self, loss: float | None, description: str | None = None) -> None:
        figures = ("" if loss is None else f"loss {loss:.3f}") + self._last_epoch
        self._progress.update(
            self._task, description=description, completed=self._completed, figures=figures
        )


@contextmanager
def progress_bar(
    what: str, total: int, shown: bool = True, console: "Console | None" = None
) -> Iterator[Callable[[int], None]]:
    """A function to call with how many rows, or other things, were just done.

    Args:
        what: The text before the bar.
        total: How many there are in all.
        shown: False, or no terminal, shows nothing.
        console: Where to draw; stderr by default, which leaves stdout to results.
    """
    from rich.progress import MofNCompleteColumn

    with _progress(MofNCompleteColumn(), shown and total > 0, console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)


def _progress(column: "ProgressColumn", shown: bool, console: "Console | None") -> "Progress":
    """A description, a bar, one more column, and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True) if console is None else console
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        column,
        TimeRemainingColumn(),
        console=console,
        disable=not (shown and console.is_terminal),
        speed_estimate_period=3600,  # a step may take longer than rich looks back
    )
