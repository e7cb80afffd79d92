"""The checkpoint of a run: saved after each epoch, so that a stopped run resumes exactly."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, TypedDict

import torch
from torch import Tensor

from colafier._io import atomic_file
from colafier._validation import Range, as_declared
from colafier.methods.contract import Method
from colafier.readers.files import size_of
from colafier.training.config import MAX_EPOCHS
from colafier.training.distributed import Processes
from colafier.training.engine import Engine

NAME = "checkpoint.pt"
MAY_GROW = ("epochs", "observed labels")  # may differ when a finished run is trained further


class _Run(TypedDict):
    """What is used of the settings of a run."""

    epochs: Annotated[int, Range(1, MAX_EPOCHS)]


class _Random(TypedDict):
    """Torch's random states."""

    cpu: Tensor
    cuda: list[Tensor]


class _Engine(TypedDict):
    """The state of the optimizers."""

    optimizers: dict[str, dict[str, Any]]
    skipped_steps: Annotated[int, Range(0)]


class _State(TypedDict):
    """The content of a checkpoint."""

    run: _Run
    epochs: list[dict[str, Any]]
    method: Any
    engine: _Engine
    random: _Random


class CheckpointError(ValueError):
    """A checkpoint that this run cannot resume from."""


class Checkpoint:
    """Saves and loads the state of a run.

    Args:
        folder: Folder of the file; None: nothing is saved.
        run: The settings of the run; a checkpoint with other settings is refused.
        processes: The processes of the run. The first one writes, all of them read.
    """

    def __init__(self, folder: Path | None, run: Mapping[str, Any], processes: Processes) -> None:
        self.path = None if folder is None else folder / NAME
        self.run = dict(run)
        self.processes = processes

    def exists(self) -> bool:
        """Whether there is something to resume from."""
        return self.path is not None and self.path.exists()

    def remove(self) -> None:
        """Delete the checkpoint of an older run, so that it is never resumed by mistake."""
        if self.path is not None and self.processes.first:
            self.path.unlink(missing_ok=True)
        self.processes.wait()

    def save(self, method: Method, engine: Engine, epochs: list[dict[str, Any]]) -> None:
        """Write the state after these epochs; a crash while writing keeps the older file."""
        if self.path is not None and self.processes.first:
            state = {
                "run": self.run,
                "epochs": epochs,
                "method": method.state_dict(),
                "engine": engine.state_dict(),
                "random": _random_states(),
            }
            with atomic_file(self.path) as partial, partial.open("wb") as file:
                _write(state, file)
        self.processes.wait()

    def load(
        self, method: Method, engine: Engine, warm_start: Path | None = None
    ) -> list[dict[str, Any]]:
        """Restore method, optimizers and random states; returns the figures of the saved epochs.

        Args:
            method: The method, set up as in the run that was saved.
            engine: The engine of the method.
            warm_start: The checkpoint of a finished run to load in place of this run's own. That
                run may have been shorter, and may lack decisions that a person has made since.
        """
        path = self.path if warm_start is None else warm_start
        if path is None or not path.exists():
            raise FileNotFoundError(f"there is no checkpoint to resume from at {path}")
        state = _read(path)
        self._check(path, state["run"], () if warm_start is None else MAY_GROW)
        try:
            method.load_state_dict(state["method"])
            engine.load_state_dict(state["engine"])
            _set_random_states(state["random"])
        except Exception as error:  # values from a file can fail in any way
            raise CheckpointError(
                f"the checkpoint {path} does not fit {type(method).__name__} with this net; "
                f"resume with the net, data and version that the run was started with ({error})"
            ) from error
        epochs: list[dict[str, Any]] = state["epochs"]
        return epochs

    def _check(self, path: Path, saved: Mapping[str, Any], except_for: Sequence[str]) -> None:
        names = sorted({*saved, *self.run} - {*except_for})
        pairs = [(name, saved.get(name), self.run.get(name)) for name in names]
        if changed := [f"{name}: {old} then, {new} now" for name, old, new in pairs if old != new]:
            raise CheckpointError(
                f"the checkpoint {path} is from a run with other settings "
                f"({'; '.join(changed)}); use those, or remove it to start over"
            )


def epochs_done(path: Path) -> int:
    """How many epochs had been trained when a checkpoint was saved."""
    return len(_read(path)["epochs"])


def epochs_planned(path: Path) -> int:
    """How many epochs the run of a checkpoint has in all."""
    planned: int = _read(path)["run"]["epochs"]
    return planned


def _write(state: dict[str, Any], file: IO[bytes]) -> None:
    """Save the state; torch hides the error of a full disk behind one about its own format."""
    try:
        torch.save(state, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def _read(path: Path) -> dict[str, Any]:
    size_of(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        state: dict[str, Any] = as_declared("", found, _State)
    except Exception as error:  # a damaged file can fail in any way
        raise CheckpointError(f"{path} is damaged; start over without it") from error
    return state


def _random_states() -> dict[str, Any]:
    """Torch's random states, for code that runs after training; each pass seeds its own."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"])
    if states["cuda"] and torch.cuda.device_count() == len(states["cuda"]):
        torch.cuda.set_rng_state_all(states["cuda"])
