"""Where figures go beside `metrics.jsonl`: TensorBoard, W&B or MLflow, all optional."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

NAMES = ("tensorboard", "wandb", "mlflow")


class Logger(Protocol):
    """What is used here of `lightning_fabric.loggers.Logger`."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record the figures of an epoch."""

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Record the settings of the run."""

    def finalize(self, status: str) -> None:
        """Close, with `success` or `failed`."""


def make_logger(name: str, folder: Path, config: Mapping[str, Any] | None = None) -> Logger:
    """A logger by name; its package is imported only now.

    Args:
        name: `tensorboard`, `wandb` or `mlflow`.
        folder: The run's folder, for loggers that write files.
        config: Settings of the run to record beside the figures.
    """
    if name not in NAMES:
        raise ValueError(f"no logger {name!r}; there are {', '.join(NAMES)}")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the logger {name} needs a package: pip install 'colafier[{name}]'"
        ) from error
    logger: Logger
    if name == "tensorboard":
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        logger = TensorBoardLogger(root_dir=folder, name="tensorboard")
    else:
        from colafier.train.remote_loggers import MlflowLogger, WandbLogger

        logger = (WandbLogger if name == "wandb" else MlflowLogger)(folder)
    logger.log_hyperparams(dict(config or {}))
    return logger
