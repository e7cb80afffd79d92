"""One run of a suite, from its settings to its record; worker processes execute this."""

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from torch import Tensor

from colafier.audit.pipeline import AuditResult
from colafier.bench.manifests import check_labels
from colafier.bench.results import Record
from colafier.bench.suite import Run
from colafier.benchmark_data.sources import Source
from colafier.evidence.labels import Labels
from colafier.evidence.out_of_fold import cross_fit
from colafier.methods import REQUIRED, find, hyper_parameters
from colafier.methods.contract import Purified
from colafier.nets.normalize import Normalize
from colafier.training.metrics import Metrics
from colafier.workflows import experiment
from colafier.workflows.experiment import Task
from colafier.workflows.settings import Settings, resolve

SCORES = ("test_accuracy", "test_accuracy_last10", "oracle_top3", "oracle_best")
LABEL_SCORES = ("labels_right_after", "labels_fixed", "labels_broken", "auroc")
HARDWARE = ("cpu", "cores", "threads", "device", "gpu")
DIGITS = 5  # of a score in a record


_made: dict[tuple[str, int], Tensor] = {}  # the latest out-of-fold predictions


def execute(run: Run) -> Record:
    """Train, audit and score; an error of the run becomes a record of it."""
    begin = time.perf_counter()
    record: Record = {
        "suite": run.suite,
        "part": run.part,
        "entry": run.entry.name,
        "method": run.entry.method,
        "noise": {"name": run.noise},
        "seed": run.settings.seed,
        "settings": run.digest(),
    }
    try:
        record |= _scores(run)
    except Exception as error:  # recorded, and the other runs go on
        record["error"] = f"{type(error).__name__}: {error}"[:500]
    record["run_seconds"] = round(time.perf_counter() - begin, 1)
    return record


def prepared(settings: Settings, noise: str) -> Task:
    """The rows with noisy labels; rows are kept in memory for the next run on the same data."""
    source, rows = images_and_rows(settings)
    task = experiment.with_noise(settings, source, rows)
    check_labels(settings, noise, task.manifest)
    return task


def forget_rows() -> None:
    """Free the memory of rows that `prepared` has kept."""
    _loaded.cache_clear()


def _scores(run: Run) -> Record:
    task = prepared(run.settings, run.noise)
    task = replace(task, out_of_fold=_out_of_fold(task, run.settings.seed))
    result = experiment.train(run.settings, task, progress=False)
    found = result.record
    audit = _audit_scores(task, result.audited)
    rate, digest = task.manifest["true_rate"], task.manifest["sha256"]
    return {
        "noise": {"name": run.noise, "true_rate": _rounded(rate), "sha256": digest},
        "knows_rate": find(run.entry.method).needs_noise_rate,
        "epochs": found["epochs"],
        **{name: _rounded(found.get(name)) for name in SCORES},
        "labels_right_before": _rounded(found.get("labels_right_before")),
        **{name: _rounded(found.get(name)) for name in LABEL_SCORES},
        **{f"audit_{name}": _rounded(audit.get(name)) for name in LABEL_SCORES},
        "skipped_steps": found["skipped_steps"],
        "seconds": round(found["seconds"], 1),
        "hyper": changed_hyper(run.entry.method, found["config"]["hyper"]),
        "hardware": {name: found["hardware"][name] for name in HARDWARE},
        "versions": found["versions"],
        "commit": found["commit"],
    }


def _out_of_fold(task: Task, seed: int) -> Tensor | None:
    """Out-of-fold predictions of rows that are vectors: the same for all methods, so made once."""
    x, digest = task.source.x, task.manifest["sha256"]
    if x.dim() > 2:
        return None
    key = (digest, seed)
    if key not in _made:
        _made.clear()
        labels, classes = Labels(task.observed), task.source.num_classes
        _made[key] = cross_fit(x, labels, classes, Normalize.fit(x), seed=seed)
    return _made[key]


def _audit_scores(task: Task, audited: AuditResult) -> Mapping[str, Any]:
    labels, quality = audited.decided.labels, audited.found.quality
    return Metrics(task.truth, task.observed).final(Purified(labels, quality))


def changed_hyper(method: str, hyper: Mapping[str, Any]) -> dict[str, Any]:
    """The hyper-parameters that differ from the defaults of the method."""
    defaults = {name: default for name, (default, _) in hyper_parameters(method).items()}
    return {k: v for k, v in hyper.items() if defaults.get(k, REQUIRED) != v}


def images_and_rows(settings: Settings) -> tuple[Source, Source]:
    """A source, and the rows that methods are given: itself, or features of its images."""
    names = ("source", "data", "limit", "pad_to", "embedder")
    return _loaded(**{name: getattr(settings, name) for name in names})


@lru_cache(maxsize=2)
def _loaded(**values: Any) -> tuple[Source, Source]:
    settings = resolve(None, values)
    images = experiment.load(settings)
    return images, experiment.embedded(settings, images)


def _rounded(value: float | int | None) -> float | int | None:
    return round(value, DIGITS) if isinstance(value, float) else value
