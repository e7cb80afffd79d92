"""One run: source, noise, method and net -> fit -> metrics -> record.

The command line, the demo and the benchmarks all go through here.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from colafier import inference
from colafier.data import noise, sources
from colafier.data.sources import Source
from colafier.data.trainset import Rows
from colafier.data.views import Normalize
from colafier.flow import Purified
from colafier.methods import build
from colafier.nets import net_factory
from colafier.settings import Settings, resolve
from colafier.train import loggers, records
from colafier.train.metrics import Metrics
from colafier.train.optimizers import OptimizerSettings
from colafier.train.processes import Processes, launch
from colafier.train.records import History
from colafier.train.trainer import fit

CONFIG, NOISE, LABELS, RECORD = "config.json", "noise.json", "labels.csv", "record.json"
FILES = (CONFIG, NOISE, LABELS, RECORD, "metrics.jsonl", "checkpoint.pt")


@dataclass(frozen=True)
class Task:
    """Rows with the labels to learn from; `truth` is for the metrics alone."""

    source: Source
    given: Tensor  # (n,)
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
    resume: bool = False,
    progress: bool = True,
    log: Sequence[str] = (),
) -> Result:
    """Load, inject noise, train, score.

    Args:
        settings: From `settings.resolve`.
        source: Own data (`sources.arrays`) in place of what the settings name.
        folder: Gets the files of the run; None: nothing is written.
        resume: Go on from the folder's checkpoint, if there is one.
        progress: Whether a terminal shows a bar.
        log: Names of loggers beside `metrics.jsonl`.
    """
    task = prepare(settings, source)
    settings = replace(settings, source=task.source.name)
    return train(settings, task, folder, resume=resume, progress=progress, log=log)


def prepare(settings: Settings, source: Source | None = None) -> Task:
    """The rows and their labels, with what is known of them; mistakes of the user show up here."""
    own = source is not None
    source = load(settings) if source is None else source
    given, manifest = noise.inject(settings.noise, source, settings.seed)
    if own and settings.noise == "none":  # nobody knows how many labels are wrong
        return Task(source, given, None, {**asdict(manifest), "true_rate": None})
    return Task(source, given, source.labels, asdict(manifest))


def load(settings: Settings) -> Source:
    """The source that the settings name, cut to their limit."""
    loaders: dict[str, Callable[[], Source]] = {
        "digits": sources.digits,
        "cifar10": lambda: sources.cifar10(settings.data),
        "fashion_mnist": lambda: sources.fashion_mnist(settings.data, pad_to=settings.pad_to),
    }
    if settings.source not in loaders:
        raise ValueError(f"no source {settings.source!r}; there are {', '.join(loaders)}")
    if settings.source != "digits" and not settings.data:
        raise ValueError(f"{settings.source} needs the folder of its files: --data FOLDER")
    if settings.pad_to is not None and settings.source != "fashion_mnist":
        raise ValueError("pad_to is for fashion_mnist only")
    source = loaders[settings.source]()
    return replace(source, x=source.x[: settings.limit], labels=source.labels[: settings.limit])


def train(
    settings: Settings,
    task: Task,
    folder: Path | None = None,
    *,
    resume: bool = False,
    progress: bool = True,
    log: Sequence[str] = (),
) -> Result:
    """Train on a task and score the result, on as many processes as the settings say."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / CONFIG, settings.to_dict())
        _write(folder / NOISE, task.manifest)
    # bound here, not passed: Fabric walks through arguments and refuses frozen dataclasses
    job = partial(
        _train,
        settings=settings,
        task=task,
        folder=folder,
        resume=resume,
        progress=progress,
        log=tuple(log),
    )
    result = launch(job, devices=settings.devices)
    if folder is not None:
        label_table(task, result.purified).to_csv(folder / LABELS, index=False, float_format="%.6g")
        _write(folder / RECORD, result.record)
    return result


def _train(
    processes: Processes,
    settings: Settings,
    task: Task,
    folder: Path | None,
    resume: bool,
    progress: bool,
    log: tuple[str, ...],
) -> Result:
    """The part that every process does."""
    method = build(settings.method, **settings.hyper)
    source = task.source
    rows = Rows(
        source.x,
        task.given,
        source.num_classes,
        view_names=method.views,
        batch_size=settings.batch_size,
        seed=settings.seed,
        flip=settings.flip,
    )
    metrics = Metrics(task.truth, task.given, source.test_x, source.test_labels, rows.normalize)
    config = settings.to_dict()
    wanted = log if folder is not None and processes.first else ()
    history = fit(
        method,
        rows,
        net_factory(settings.net, rows.row_shape, source.num_classes, settings.precision),
        epochs=settings.epochs,
        optimizer=OptimizerSettings(lr=settings.lr, weight_decay=settings.weight_decay),
        seed=settings.seed,
        processes=processes,
        folder=folder,
        resume=resume,
        score=metrics,
        progress=progress,
        loggers=[
            loggers.make_logger(name, folder, config) for name in wanted if folder is not None
        ],
    )
    purified = _on_cpu(method.purify(rows))
    record = records.run_record(
        method=settings.method,
        noise=task.manifest,
        seed=settings.seed,
        history=history,
        final=metrics.final(purified),
        config=config,
        device=str(processes.device),
        processes=processes.size,
    )
    record["notes"] = purified.notes
    return Result(purified, method.deployed().cpu(), rows.normalize, history, record)


def label_table(task: Task, purified: Purified) -> pd.DataFrame:
    """One line per row, in input order; classes by name, empty where a row has no label."""
    names = pd.Series([*task.source.classes, ""])  # -1 takes the last
    given, labels = task.given.numpy(), purified.labels.numpy()
    table = pd.DataFrame(
        {
            "row": range(len(given)),
            "given_label": names.to_numpy()[given],
            "label": names.to_numpy()[labels],
            "changed": given != labels,
            "label_quality": purified.quality.numpy(),
        }
    )
    return table.assign(**{name: column.numpy() for name, column in purified.columns.items()})


def claim(folder: Path, *, overwrite: bool) -> None:
    """Make sure that a new run may write into a folder; an older run is removed only if asked."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
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


def check_loggers(names: Sequence[str]) -> None:
    """Refuse loggers that are unknown or not installed, before a run has written anything."""
    for name in names:
        if name not in loggers.NAMES:
            raise ValueError(f"no logger {name!r}; there are {', '.join(loggers.NAMES)}")
        if find_spec(name) is None:
            raise ValueError(f"{name} is not installed: pip install 'colafier[{name}]'")


def settings_of(folder: Path) -> Settings:
    """The settings that a run was started with."""
    if not (folder / CONFIG).exists():
        raise FileNotFoundError(f"there is no run to resume in {folder}: it has no {CONFIG}")
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    hyper = config.pop("hyper")
    return resolve(given=config, hyper=hyper)


def _on_cpu(purified: Purified) -> Purified:
    columns = {name: column.cpu() for name, column in purified.columns.items()}
    return replace(
        purified, labels=purified.labels.cpu(), quality=purified.quality.cpu(), columns=columns
    )


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(records.to_json(content) + "\n", encoding="utf-8")
