"""Progress bars for a terminal: one over epochs, one over rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

Figures = dict[str, float | None]


class Bar:
    """Epoch, loss, changed labels, test accuracy and the time left; silent if not `shown`.

    Args:
        epochs: Epochs of the whole run.
        done: Epochs done before.
        shown: False, or no terminal, shows nothing.
        console: Where to draw; stderr by default, which leaves stdout to results.
    """

    def __init__(
        self, epochs: int, done: int = 0, shown: bool = True, console: Console | None = None
    ) -> None:
        self.epochs = epochs
        self.done = done
        console = Console(stderr=True) if console is None else console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[said]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not (shown and console.is_terminal),
            speed_estimate_period=3600,  # a step may take longer than rich looks back
        )
        self._task: TaskID | None = None
        self._said = ""
        self._completed = float(done)

    def __enter__(self) -> "Bar":
        self._progress.start()
        self._task = self._progress.add_task("", total=self.epochs, completed=self.done, said="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def step(self, epoch: int, tag: str, done: int, steps: int, loss: float) -> None:
        """After a step: `done` of `steps` of this pass."""
        # how many passes there will be is not known, so that only the first moves the bar
        self._completed = max(self._completed, epoch + done / steps)
        self._show(
            description=f"epoch {epoch + 1}/{self.epochs} {tag} {done}/{steps}",
            said=f"loss {loss:.3f}{self._said}",
        )

    def epoch(self, epoch: int, figures: Figures) -> None:
        """After an epoch, with what it gave."""
        self._said = ""
        if (changed := figures.get("labels_changed")) is not None:
            self._said += f"  labels changed {changed:.0f}"
        if (accuracy := figures.get("test_accuracy")) is not None:
            self._said += f"  test accuracy {accuracy:.3f}"
        loss = figures.get("loss")
        said = self._said if loss is None else f"loss {loss:.3f}{self._said}"
        self._completed = epoch + 1.0
        self._show(said)

    def _show(self, said: str, description: str | None = None) -> None:
        if self._task is not None:
            self._progress.update(
                self._task, description=description, completed=self._completed, said=said
            )


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
