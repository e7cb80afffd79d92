"""One run: source, noise, method and net -> fit -> metrics -> record.

The command line, the demo and the benchmarks all go through here.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from colafier._io import atomic_file, write_json
from colafier.benchmark_data import noise, sources
from colafier.benchmark_data.sources import Source
from colafier.methods import build, find
from colafier.methods.contract import Method, Purified
from colafier.nets import inference, net_factory
from colafier.nets.dtype import backbone_dtype
from colafier.nets.normalize import Normalize
from colafier.report import evidence, page
from colafier.report.snippets import of_arrays
from colafier.training import checkpoint, loggers, records
from colafier.training.distributed import Processes, launch
from colafier.training.metrics import Metrics
from colafier.training.optimizers import OptimizerSettings
from colafier.training.records import History
from colafier.training.trainer import METRICS, fit
from colafier.training.training_set import TrainingSet
from colafier.workflows.settings import Settings, resolve

CONFIG, NOISE, LABELS, RECORD = "config.json", "noise.json", "labels.csv", "record.json"
FILES = (CONFIG, NOISE, LABELS, RECORD, METRICS, checkpoint.NAME, evidence.NAME, page.NAME)

OwnNet = nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True)
class Task:
    """Rows with the labels to learn from; `truth` is for the metrics alone."""

    source: Source
    observed: Tensor  # (n,)
    truth: Tensor | None  # (n,), if it is known
    manifest: dict[str, Any]  # what was done to the labels


@dataclass(frozen=True)
class Result:
    """What a run gives."""

    purified: Purified
    classifier: nn.Module
    normalize: Normalize
    history: History
    record: dict[str, Any]

    def predict(self, x: Tensor) -> Tensor:
        """Probabilities (m, c) of rows like those of the source."""
        return inference.predict(self.classifier, x, self.normalize)


def run(
    settings: Settings,
    source: Source | None = None,
    folder: Path | None = None,
    *,
    net: OwnNet | None = None,
    resume: bool = False,
    progress: bool = True,
    log: Sequence[str] = (),
) -> Result:
    """Load, inject noise, train, score.

    Args:
        settings: From `settings.resolve`.
        source: Own data (`sources.arrays`) in place of what the settings name.
        folder: Gets the files of the run; None: nothing is written.
        net: Own backbone in place of what the settings name, see `nets.net_factory`.
        resume: Go on from the folder's checkpoint, if there is one.
        progress: Whether a terminal shows a bar.
        log: Names of loggers beside `metrics.jsonl`.
    """
    loggers.check(log, folder)
    task = prepare(settings, source, net)
    named = settings.net if net is None else getattr(net, "__name__", type(net).__name__)
    settings = replace(settings, source=task.source.name, net=named)
    return train(settings, task, folder, net=net, resume=resume, progress=progress, log=log)


def prepare(settings: Settings, source: Source | None = None, net: OwnNet | None = None) -> Task:
    """The rows and their labels, with what is known of them; mistakes of the user show up here."""
    own = source is not None
    source = _first_rows(load(settings) if source is None else source, settings.limit)
    observed, manifest = noise.inject(settings.noise, source, settings.seed)
    _check(settings, source, observed, net)
    if own and settings.noise == "none":  # nobody knows how many labels are wrong
        return Task(source, observed, None, {**asdict(manifest), "true_rate": None})
    return Task(source, observed, source.labels, asdict(manifest))


def load(settings: Settings) -> Source:
    """The source that the settings name, whole."""
    loaders: dict[str, Callable[[], Source]] = {
        "digits": sources.digits,
        "cifar10": lambda: sources.cifar10(settings.data),
        "fashion_mnist": lambda: sources.fashion_mnist(settings.data, pad_to=settings.pad_to),
    }
    if settings.source not in loaders:
        raise ValueError(f"no source {settings.source!r}; there are {', '.join(loaders)}")
    if settings.source != "digits" and not settings.data:
        raise ValueError(f"{settings.source} needs the folder of its files: --data FOLDER")
    return loaders[settings.source]()


def train(
    settings: Settings,
    task: Task,
    folder: Path | None = None,
    *,
    net: OwnNet | None = None,
    resume: bool = False,
    progress: bool = True,
    log: Sequence[str] = (),
) -> Result:
    """Train on a task and score the result, on as many processes as the settings say."""
    settings = _with_noise_rate(settings, task)
    if folder is not None:
        _write(folder / CONFIG, settings.to_dict())
        _write(folder / NOISE, task.manifest)
    # bound here, not passed: Fabric walks through arguments and refuses frozen dataclasses
    job = partial(
        _train,
        settings=settings,
        task=task,
        folder=folder,
        net=settings.net if net is None else net,
        resume=resume,
        progress=progress,
        log=tuple(log),
    )
    result = launch(job, devices=settings.devices)
    if folder is not None:
        lines = label_table(task, result.purified)
        with atomic_file(folder / LABELS) as path:
            lines.to_csv(path, index=False, float_format="%.6g")
        _write(folder / RECORD, result.record)
        evidence.write(folder, _evidence(task, result, lines))
        page.write(folder)
    return result


def _with_noise_rate(settings: Settings, task: Task) -> Settings:
    """The true share of wrong labels, for a method that declares its need of it; recorded."""
    rate = task.manifest.get("true_rate")
    told = settings.hyper.get("noise_rate") is not None
    if not find(settings.method).needs_noise_rate or told or rate is None:
        return settings
    return replace(settings, hyper={**settings.hyper, "noise_rate": round(rate, 3)})


def _train(
    processes: Processes,
    settings: Settings,
    task: Task,
    folder: Path | None,
    net: str | OwnNet,
    resume: bool,
    progress: bool,
    log: tuple[str, ...],
) -> Result:
    """The part that every process does."""
    method = build(settings.method, **settings.hyper)
    source = task.source
    rows = TrainingSet(
        source.x,
        task.observed,
        source.num_classes,
        view_names=method.views,
        batch_size=settings.batch_size,
        seed=settings.seed,
        flip=settings.flip,
    )
    metrics = Metrics(task.truth, task.observed, source.test_x, source.test_labels, rows.normalize)
    config = settings.to_dict()
    history = fit(
        method,
        rows,
        net_factory(net, rows.row_shape, source.num_classes, settings.dtype),
        epochs=settings.epochs,
        optimizer=OptimizerSettings(
            lr=settings.lr, weight_decay=settings.weight_decay, lr_floor=settings.lr_floor
        ),
        seed=settings.seed,
        processes=processes,
        folder=folder,
        resume=resume,
        score=metrics,
        progress=progress,
        loggers=loggers.make(log if processes.first else (), folder, config),
    )
    purified = _on_cpu(method.purify(rows))
    record = records.run_record(
        method=settings.method,
        noise=task.manifest,
        seed=settings.seed,
        history=history,
        final=metrics.final(purified),
        config=config,
        resolved=_resolved(method, settings.dtype, processes),
        diagnostics=purified.diagnostics,
        device=str(processes.device),
        processes=processes.size,
    )
    return Result(purified, method.deployed().cpu(), rows.normalize, history, record)


def label_table(task: Task, purified: Purified) -> pd.DataFrame:
    """One line per row, in input order; classes by name, empty where a row has no label."""
    names = pd.Series([*task.source.classes, ""])  # -1 takes the last
    observed, labels = task.observed.numpy(), purified.labels.numpy()
    table = pd.DataFrame(
        {
            "row": range(len(observed)),
            "original_label": names.to_numpy()[observed],
            "label": names.to_numpy()[labels],
            "changed": observed != labels,
            "label_quality": purified.quality.numpy(),
        }
    )
    return table.assign(**{name: column.numpy() for name, column in purified.columns.items()})


def _evidence(task: Task, result: Result, lines: pd.DataFrame) -> dict[str, Any]:
    """Why the most doubtful rows are doubted, for the report; the truth is shown there."""
    classes, purified = task.source.classes, result.purified
    known = evidence.Known(
        classes=classes,
        rows=range(len(task.observed)),
        x=task.source.x,
        original=task.observed,
        suggested=purified.labels,
        classifier=result.classifier,
        normalize=result.normalize,
        votes=purified.votes,
        trajectory=purified.trajectory,
    )
    names = [classes[label] if label >= 0 else None for label in task.observed.tolist()]
    snippets = of_arrays(task.source.x.numpy(), names)
    truth = None if task.truth is None else task.truth.tolist()
    return evidence.of_training(known, lines, snippets, truth)


def claim(folder: Path, *, overwrite: bool) -> None:
    """Make a folder for a new run; an older run in it is removed only if asked."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file; give another --out")
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} may not be written to; give another --out")
    if not any(folder.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(
            f"{folder} exists; give --resume to go on with it, --overwrite to start over, "
            "or another --out"
        )
    if not (folder / CONFIG).exists():
        raise FileExistsError(f"{folder} is not the folder of a run, and is left alone")
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def settings_of(folder: Path) -> Settings:
    """The settings that a run was started with."""
    if not (folder / CONFIG).exists():
        raise FileNotFoundError(f"there is no run to resume in {folder}: it has no {CONFIG}")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        hyper = config.pop("hyper")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{folder / CONFIG} does not hold the settings of a run") from error
    return resolve(overrides=config, hyper=hyper)


def _check(settings: Settings, source: Source, observed: Tensor, net: OwnNet | None) -> None:
    """What would otherwise fail in the middle of a run, or give nonsense without a word."""
    if settings.pad_to is not None and source.name != "fashion_mnist":
        raise ValueError("pad_to is for fashion_mnist only")
    if observed[observed >= 0].bincount().count_nonzero() < 2:
        raise ValueError(
            f"the labels of all {len(observed)} rows are of one class: there is nothing to learn"
        )
    build(settings.method, **settings.hyper)
    known = settings.net if net is None else net
    net_factory(known, tuple(source.x.shape[1:]), source.num_classes, settings.dtype)


def _first_rows(source: Source, limit: int | None) -> Source:
    return replace(source, x=source.x[:limit], labels=source.labels[:limit])


def _resolved(method: Method, dtype: str, processes: Processes) -> dict[str, Any]:
    """What settings that leave a choice open came to."""
    dtype = str(backbone_dtype(dtype, processes.device)).removeprefix("torch.")
    return {"dtype": dtype, **method.resolved()}


def _on_cpu(purified: Purified) -> Purified:
    columns = {name: column.cpu() for name, column in purified.columns.items()}
    return replace(
        purified,
        labels=purified.labels.cpu(),
        quality=purified.quality.cpu(),
        columns=columns,
        votes={who: classes.cpu() for who, classes in purified.votes.items()},
        trajectory=None if purified.trajectory is None else purified.trajectory.cpu(),
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    write_json(path, content)
