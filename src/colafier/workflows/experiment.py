"""A research run on a benchmark: inject noise, train a method, audit the labels, and score them.

`colafier train`, the demo and the benchmarks all use this.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from colafier import embed
from colafier._io import write_json
from colafier._surroundings import own_surroundings
from colafier.audit.config import AuditConfig
from colafier.audit.pipeline import AuditResult, audit, train_method
from colafier.audit.trained import Trained
from colafier.benchmark_data import noise, sources
from colafier.benchmark_data.sources import Source
from colafier.embed.encode import EncodedData
from colafier.evidence.labels import Labels
from colafier.ingest.content import content_key
from colafier.ingest.dataset import Dataset
from colafier.methods import build, find
from colafier.methods.contract import Purified
from colafier.nets import inference, net_factory
from colafier.nets.dtype import backbone_dtype
from colafier.nets.normalize import Normalize, check_statistics
from colafier.review.decided import DecidedRows
from colafier.training import loggers, records
from colafier.training.distributed import Processes, launch
from colafier.training.metrics import Metrics
from colafier.training.records import History
from colafier.training.training_set import TrainingSet
from colafier.workflows import run_dir
from colafier.workflows.labeled_data import LabeledData, with_labels
from colafier.workflows.outputs import Outputs
from colafier.workflows.run_dir import NOISE, Claim, RunConfig
from colafier.workflows.settings import Settings, resolve


@dataclass(frozen=True)
class Task:
    """A source with noisy labels, and the true labels if they are known."""

    source: Source
    observed: Tensor  # (n,) noisy labels
    truth: Tensor | None  # (n,) true labels
    manifest: dict[str, Any]  # of the injected noise
    out_of_fold: Tensor | None = None  # (n, c) predictions of these rows, if made before


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    purified: Purified  # by the method itself
    audited: AuditResult  # by the audit, from the method's probabilities
    classifier: nn.Module
    normalize: Normalize
    history: History
    record: dict[str, Any]

    def predict(self, x: Tensor) -> Tensor:
        """Probabilities (m, c) of rows that have the form of the source's rows."""
        return inference.predict(self.classifier, x, self.normalize)


@own_surroundings()
def run(
    settings: Settings,
    source: Source | None = None,
    folder: Path | None = None,
    *,
    net: Any = None,
    resume: bool = False,
    progress: bool = True,
    log: Sequence[str] = (),
) -> Result:
    """Load a source, inject noise, train, audit, and score.

    Args:
        settings: From `settings.resolve`.
        source: Your own data (`sources.arrays`) in place of the source that the settings name.
        folder: Where the files of the run are written; None: nothing is written.
        net: Your own backbone in place of the one that the settings name, see `nets.net_factory`.
        resume: Continue from the folder's checkpoint, if there is one.
        progress: Whether to show a progress bar in a terminal.
        log: Names of additional loggers; `metrics.jsonl` is always written.
    """
    loggers.check(log, folder)
    if net is not None:
        settings = replace(settings, net=net)
    task = prepare(settings, source)
    settings = replace(settings, source=task.source.name)
    return train(settings, task, folder, resume=resume, progress=progress, log=log)


def prepare(settings: Settings, source: Source | None = None) -> Task:
    """Load the rows and inject noise into their labels; wrong settings raise an error here."""
    own_data = source is not None
    source = load(settings) if source is None else _first_rows(source, settings.limit)
    task = with_noise(settings, source, embedded(settings, source))
    if own_data and settings.noise == "none":  # it is not known how many labels are wrong
        return replace(task, truth=None, manifest={**task.manifest, "true_rate": None})
    return task


def with_noise(settings: Settings, source: Source, rows: Source) -> Task:
    """Inject noise into the labels of a source; wrong settings raise an error here.

    Args:
        settings: The settings of the run.
        source: What the noise is made from: instance-dependent noise depends on the images.
        rows: What the method is given: the source itself, or the features of its images.
    """
    observed, manifest = noise.inject(settings.noise, source, settings.seed)
    _check(settings, rows, observed)
    return Task(rows, observed, source.labels, asdict(manifest))


def embedded(settings: Settings, source: Source) -> Source:
    """The source with features of its images as rows, if the settings name an embedder."""
    if not settings.embedder:
        return source
    if source.x.dim() != 4:
        raise ValueError(f"embedder={settings.embedder} is for images, not for {source.name}")
    net = embed.embedder(settings.embedder, "image")
    parts = [source.x] if source.test_x is None else [source.x, source.test_x]
    images = list(torch.cat(parts).numpy())
    keys = [content_key(image) for image in images]
    features, problems = embed.embed(images, keys, net, cache=embed.default_folder())
    if problems:
        row, reason = next(iter(problems.items()))
        raise ValueError(f"row {row} of {source.name} cannot be embedded: {reason}")
    rows, n = torch.from_numpy(features), len(source.x)  # (n + test rows, d)
    return replace(source, x=rows[:n], test_x=None if source.test_x is None else rows[n:])


def load(settings: Settings) -> Source:
    """Load the source that the settings name, with the rows within their limit."""
    loaders: dict[str, Callable[[], Source]] = {
        "digits": sources.digits,
        "cifar10": lambda: sources.cifar10(settings.data),
        "fashion_mnist": lambda: sources.fashion_mnist(settings.data, pad_to=settings.pad_to),
    }
    if settings.source not in loaders:
        raise ValueError(f"no source {settings.source!r}; there are {', '.join(loaders)}")
    if settings.source != "digits" and not settings.data:
        raise ValueError(f"{settings.source} needs the folder with its files: --data FOLDER")
    return _first_rows(loaders[settings.source](), settings.limit)


@own_surroundings()
def train(
    settings: Settings,
    task: Task,
    folder: Path | None = None,
    *,
    decided: DecidedRows | None = None,
    epochs: int | None = None,
    warm_start: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    again: str | None = None,
    progress: bool = True,
    log: Sequence[str] = (),
) -> Result:
    """Train on a task, audit its labels and score the result.

    Args:
        settings: The settings of the run.
        task: Rows and labels.
        folder: Where the files of the run are written; None: nothing is written.
        decided: Rows whose label a person decided; these labels are never changed.
        epochs: Epochs of the whole run, in place of those of the settings.
        warm_start: Checkpoint of the reviewed run, to continue its training.
        resume: Continue from the folder's checkpoint, if there is one.
        overwrite: Replace an older run in the folder.
        again: The command that continues this run, for advice.
        progress: Whether to show a progress bar in a terminal.
        log: Names of additional loggers; `metrics.jsonl` is always written.
    """
    data = with_labels(as_dataset(task), _encoded(task), decided, task.source.classes)
    fingerprint = data.dataset.fingerprint()
    digest = None if decided is None else decided.digest()
    config = RunConfig("train", settings.to_dict(), fingerprint, digest)
    settings = _with_noise_rate(settings, task)
    settings = settings if epochs is None else replace(settings, epochs=epochs)
    claim = (
        nullcontext(None)
        if folder is None
        else run_dir.claimed(folder, config, resume=resume, overwrite=overwrite, again=again)
    )
    with claim as claimed:
        return _run(settings, task, data, claimed, decided, warm_start, progress, tuple(log))


def _run(
    settings: Settings,
    task: Task,
    data: LabeledData,
    claim: Claim | None,
    decided: DecidedRows | None,
    warm_start: Path | None,
    progress: bool,
    log: tuple[str, ...],
) -> Result:
    settings = _settled(settings, task.source)
    folder = None if claim is None else claim.out
    judge = AuditConfig()
    if claim is not None:
        claim.start(classes=tuple(data.classes), train=settings.to_dict(), audit=asdict(judge))
        write_json(claim.out / NOISE, task.manifest)
    # bound with partial, because Fabric inspects arguments and refuses frozen dataclasses
    job = partial(
        _train_and_score,
        settings=settings,
        task=task,
        labels=data.labels,
        judge=judge,
        folder=folder,
        resume=claim is not None and claim.resume,
        warm_start=warm_start,
        progress=progress,
        log=log,
    )
    trained, record = launch(job, devices=settings.devices)
    audited = audit(
        trained, data.rows.x, data.labels, settings, judge, groups=data.groups, progress=progress
    )
    record["audit"] = Metrics(task.truth, task.observed).labels(audited.decided.labels)
    if folder is not None:
        truth = None if task.truth is None else task.truth.tolist()
        Outputs(data, settings, audited, decided, record=record, truth=truth).write(folder)
    return Result(
        trained.purified,
        audited,
        trained.classifier,
        trained.normalize,
        trained.history,
        record,
    )


def _train_and_score(
    processes: Processes,
    settings: Settings,
    task: Task,
    labels: Labels,
    judge: AuditConfig,
    folder: Path | None,
    resume: bool,
    warm_start: Path | None,
    progress: bool,
    log: tuple[str, ...],
) -> tuple[Trained, dict[str, Any]]:
    """The part of a run that every process executes."""
    source = task.source
    metrics: list[Metrics] = []

    def make_score(rows: TrainingSet) -> Metrics:
        test = (source.test_x, source.test_labels, rows.normalize)
        metrics.append(Metrics(task.truth, task.observed, *test))
        return metrics[0]

    config = settings.to_dict()
    trained = train_method(
        source.x,
        labels,
        source.num_classes,
        settings,
        processes=processes,
        folder=folder,
        resume=resume,
        warm_start=warm_start,
        make_score=make_score,
        progress=progress,
        out_of_fold=task.out_of_fold,
        evidence=judge,
        loggers=loggers.make(log if processes.first else (), folder, config),
    )
    dtype = str(backbone_dtype(settings.dtype, processes.device)).removeprefix("torch.")
    record = records.run_record(
        method=settings.method,
        noise=task.manifest,
        seed=settings.seed,
        history=trained.history,
        final=metrics[0].final(trained.purified),
        config=config,
        resolved={
            "dtype": dtype,
            "init": settings.init,
            "input_statistics": settings.input_statistics,
            "lr_floor": settings.lr_floor,
            **trained.resolved,
        },
        diagnostics=trained.purified.diagnostics,
        device=str(processes.device),
        processes=processes.size,
    )
    return trained, record


def as_dataset(task: Task) -> Dataset:
    """The rows of a task with their noisy labels, in the form of a user's data set."""
    source = task.source
    names = (*source.classes, None)  # label -1 gets None
    image = source.x.dim() == 4
    items = source.x.numpy()
    if image:
        items = (
            items[:, 0]
            if items.shape[1] == 1
            else np.ascontiguousarray(items.transpose(0, 2, 3, 1))
        )
    return Dataset(
        source=Path(source.name),
        layout="benchmark",
        kind="image" if image else "vector",
        names=[str(row) for row in range(len(task.observed))],
        original=[names[label] for label in task.observed.tolist()],
        items=items,
    )


def settings_of(folder: Path) -> Settings:
    """The settings that the train run in a folder was started with."""
    config = run_dir.read_config(folder)
    if config.kind != "train":
        raise ValueError(f"the run in {folder} was made by colafier {config.kind}, not by train")
    try:
        asked = dict(config.asked)
        hyper = asked.pop("hyper")
        return resolve(overrides=asked, hyper=hyper)
    except (ValueError, TypeError, KeyError) as error:
        path = folder / run_dir.CONFIG
        raise ValueError(f"{path} does not hold the settings of a run: {error}") from error


def _encoded(task: Task) -> EncodedData:
    x = task.source.x
    made: dict[str, Any] = {"kind": "vector"}
    if x.dim() == 4:
        made = {"kind": "image", "size": x.shape[2], "channels": x.shape[1]}
    return EncodedData(x, list(range(len(x))), {}, made)


def _with_noise_rate(settings: Settings, task: Task) -> Settings:
    """Settings with the true noise rate for a method that needs it; the record shows this."""
    rate = task.manifest.get("true_rate")
    known = settings.hyper.get("noise_rate") is not None
    if not find(settings.method).needs_noise_rate or known or rate is None:
        return settings
    return replace(settings, hyper={**settings.hyper, "noise_rate": round(rate, 3)})


def _check(settings: Settings, source: Source, observed: Tensor) -> None:
    """Refuse what would otherwise fail in the middle of a run, or silently give nonsense."""
    if settings.pad_to is not None and source.name != "fashion_mnist":
        raise ValueError("pad_to is for fashion_mnist only")
    if observed[observed >= 0].bincount().count_nonzero() < 2:
        raise ValueError(
            f"the labels of all {len(observed)} rows are of one class: there is nothing to learn"
        )
    settled = _settled(settings, source)
    row_shape = tuple(source.x.shape[1:])
    net_factory(settled.net, row_shape, source.num_classes, settled.dtype, settled.init)
    check_statistics(settled.input_statistics, row_shape)


def _settled(settings: Settings, source: Source) -> Settings:
    """Settings with what the method chooses; wrong hyper-parameters are an error here."""
    method = build(settings.method, **settings.hyper)
    return settings.settled(method.run_defaults, tuple(source.x.shape[1:]))


def _first_rows(source: Source, limit: int | None) -> Source:
    return replace(source, x=source.x[:limit], labels=source.labels[:limit])
