"""One checkpoint per run folder, written at each epoch's end, from which a run goes on exactly."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from colafier._io import atomic_file
from colafier.methods.contract import Method
from colafier.training.distributed import Processes
from colafier.training.engine import Engine

NAME = "checkpoint.pt"
MAY_GROW = ("epochs", "observed labels")  # what is new where a finished run is trained on


class CheckpointError(ValueError):
    """A checkpoint that this run cannot go on from."""


class Checkpoint:
    """Saves and loads the state of a run.

    Args:
        folder: Where the file lies; None saves nothing.
        run: What the run was started with; a checkpoint of another run is refused.
        processes: The first of them writes, all of them read.
    """

    def __init__(self, folder: Path | None, run: Mapping[str, Any], processes: Processes) -> None:
        self.path = None if folder is None else folder / NAME
        self.run = dict(run)
        self.processes = processes

    def exists(self) -> bool:
        """Whether there is something to resume from."""
        return self.path is not None and self.path.exists()

    def remove(self) -> None:
        """Delete what an older run left, so that it is never resumed by mistake."""
        if self.path is not None and self.processes.first:
            self.path.unlink(missing_ok=True)
        self.processes.wait()

    def save(self, method: Method, engine: Engine, epochs: list[dict[str, Any]]) -> None:
        """Write the state after these epochs; a crash while writing leaves the older file."""
        if self.path is not None and self.processes.first:
            state = {
                "run": self.run,
                "epochs": epochs,
                "method": method.state_dict(),
                "engine": engine.state_dict(),
                "random": _random_states(),
            }
            with atomic_file(self.path) as partial:
                torch.save(state, partial)
        self.processes.wait()

    def load(
        self, method: Method, engine: Engine, warm_start: Path | None = None
    ) -> list[dict[str, Any]]:
        """Bring method, optimizers and random numbers to the saved state; gives the epochs.

        Args:
            method: Set up as in the run that was saved.
            engine: Its engine.
            warm_start: The checkpoint of a finished run in place of this one's own: that run may
                have been shorter, and without what a person decided since.
        """
        path = self.path if warm_start is None else warm_start
        if path is None or not path.exists():
            raise FileNotFoundError(f"there is no checkpoint to resume from at {path}")
        state = _read(path)
        self._check(path, state["run"], () if warm_start is None else MAY_GROW)
        try:
            method.load_state_dict(state["method"])
            engine.load_state_dict(state["engine"])
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(
                f"the checkpoint {path} does not fit {type(method).__name__} with this net; "
                f"resume with the same net, data and version as the run began with ({error})"
            ) from error
        _set_random_states(state["random"])
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
    """How many epochs a checkpoint has behind it."""
    return len(_read(path)["epochs"])


def epochs_planned(path: Path) -> int:
    """How many epochs the run of a checkpoint was to have."""
    return int(_read(path)["run"]["epochs"])


def _read(path: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail in any way
        raise CheckpointError(f"{path} is damaged; start over without it") from error
    return state


def _random_states() -> dict[str, Any]:
    """Training draws anew from its seed in each pass; these are for what comes after it."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"])
    if states["cuda"] and torch.cuda.device_count() == len(states["cuda"]):
        torch.cuda.set_rng_state_all(states["cuda"])
