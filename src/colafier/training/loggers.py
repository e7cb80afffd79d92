"""Optional loggers that get the figures of each epoch: TensorBoard, W&B and MLflow."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

NAMES = ("tensorboard", "wandb", "mlflow")


class Logger(Protocol):
    """The part of `lightning_fabric.loggers.Logger` that is used here."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record the figures of an epoch."""

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Record the settings of the run."""

    def finalize(self, status: str) -> None:
        """Close the logger; the status is `success` or `failed`."""


def check(names: Sequence[str], folder: Path | None) -> None:
    """Refuse loggers that are unknown or not installed, before a run has written anything."""
    if names and folder is None:
        raise ValueError("loggers need the folder of the run; give a folder")
    for name in names:
        if name not in NAMES:
            raise ValueError(f"no logger {name!r}; there are {', '.join(NAMES)}")
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"the logger {name} needs a package: pip install 'colafier[{name}]'"
            )


def make(names: Sequence[str], folder: Path | None, config: Mapping[str, Any]) -> list[Logger]:
    """Make loggers by name; their packages are imported only now.

    Args:
        names: Names from `NAMES`.
        folder: The run's folder, for loggers that write files.
        config: Settings of the run, which are recorded with the figures.
    """
    check(names, folder)
    loggers = [] if folder is None else [_make(name, folder) for name in names]
    for logger in loggers:
        logger.log_hyperparams(dict(config))
    return loggers


def _make(name: str, folder: Path) -> Logger:
    if name == "tensorboard":
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        return TensorBoardLogger(root_dir=folder, name="tensorboard")
    from colafier.training.remote_loggers import MlflowLogger, WandbLogger

    return (WandbLogger if name == "wandb" else MlflowLogger)(folder)
