"""Loggers for W&B and MLflow with the interface of Lightning Fabric, which has neither."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from lightning_fabric.loggers.logger import Logger


class _RemoteLogger(Logger):
    """A logger for one run, which is named after its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._run: Any = None

    @property
    def name(self) -> str:
        """The project."""
        return "colafier"

    @property
    def version(self) -> str:
        """The run."""
        return self.folder.name

    @property
    def run(self) -> Any:
        """The run, which is started at its first use."""
        if self._run is None:
            self._run = self.begin()
        return self._run

    def begin(self) -> Any:
        """Start a run."""
        raise NotImplementedError


class WandbLogger(_RemoteLogger):
    """Logs to Weights & Biases, which is configured by its own environment variables."""

    def begin(self) -> Any:
        """Start a run, with its files in the run's folder."""
        import wandb  # type: ignore[import-not-found,unused-ignore]

        return wandb.init(project=self.name, name=self.version, dir=str(self.folder))

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record the figures of an epoch."""
        self.run.log(metrics, step=step)

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Record the settings of the run."""
        self.run.config.update(params)

    def finalize(self, status: str) -> None:
        """Close the run."""
        self.run.finish(exit_code=0 if status == "success" else 1)


class MlflowLogger(_RemoteLogger):
    """Logs to MLflow, at the address in `MLFLOW_TRACKING_URI`."""

    def begin(self) -> Any:
        """Start a run."""
        import mlflow  # type: ignore[import-not-found,unused-ignore]

        mlflow.set_experiment(self.name)
        mlflow.start_run(run_name=self.version)
        return mlflow

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record the figures of an epoch."""
        self.run.log_metrics(metrics, step=step)

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Record the settings of the run."""
        self.run.log_params(params)

    def finalize(self, status: str) -> None:
        """Close the run."""
        self.run.end_run("FINISHED" if status == "success" else "FAILED")
