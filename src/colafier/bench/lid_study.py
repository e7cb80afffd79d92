"""The study of the paper's section 3.2: how LID of LID-dis separates wrong labels from right ones.

LID-dis is trained alone. The LID of each row is taken in every epoch, and counted in bins of equal
width, apart for right and wrong labels. The truth is known to the counting only.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from colafier._io import write_json
from colafier.audit.pipeline import train_method
from colafier.evidence.labels import Labels
from colafier.methods.contract import Method
from colafier.methods.lid_dis import STUDIED
from colafier.readers import json_files
from colafier.training import checkpoint
from colafier.training.distributed import Processes, launch
from colafier.training.metrics import Metrics
from colafier.training.records import History, commit, hardware, versions
from colafier.workflows import experiment
from colafier.workflows.experiment import Task
from colafier.workflows.run_dir import RECORD
from colafier.workflows.run_lock import LOCK, locked
from colafier.workflows.seed_runs import refuse_repeated
from colafier.workflows.settings import Settings, refuse_changes, resolve

NOISES = ("instance:0.2", "instance:0.4", "symmetric:0.5")  # those of the paper's figure
BIN_WIDTH = 0.25
MAX_BIN = 400  # holds all that is higher
STUDY = "study.json"  # the settings; a study continues only with the same
NUMBERS = "lid.json"
# What each source is studied with, where nothing else is asked for
DEFAULTS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "digits": ("digits", {}),
    "cifar10": ("cifar10", {}),  # as in the paper: ResNet-34, 200 epochs
    "fashion_mnist": (None, {"net": "resnet8", "epochs": 15, "pad_to": 32}),
}

Say = Callable[[str], None]


@dataclass(frozen=True)
class StudyRun:
    """The numbers of one training: a noise and a seed."""

    noise: str
    true_rate: float
    seed: int
    epochs: list[dict[str, Any]]  # of each score of STUDIED: counts of right and wrong, and AUROC
    made_with: dict[str, Any]  # hardware, versions and commit

    def mean_auroc(self, name: str) -> float:
        """AUROC of a score for wrong labels, mean over the epochs."""
        return float(np.nanmean([epoch[name]["auroc"] for epoch in self.epochs]))


def study_settings(source: str, overrides: Mapping[str, Any]) -> Settings:
    """The settings of the study for a source; seed and noise are those of the single runs.

    Args:
        source: `digits`, `cifar10` or `fashion_mnist`.
        overrides: Settings that replace the defaults of the study.
    """
    if source not in DEFAULTS:
        raise ValueError(f"no source {source!r}; there are {', '.join(DEFAULTS)}")
    preset, own = DEFAULTS[source]
    constant = {"method": "lid_dis", "source": source, "noise": "none", "lr_floor": 1.0}
    return resolve(preset, {**own, **constant, **overrides})


def run_study(
    settings: Settings,
    seeds: Sequence[int],
    out: Path,
    *,
    progress: bool = True,
    say: Say = lambda _: None,
) -> list[StudyRun]:
    """Train LID-dis with each noise and seed, and write the numbers; what is there is kept.

    Args:
        settings: From `study_settings`.
        seeds: Seeds of noise and training.
        out: Folder of the study. Runs that are finished in it are not repeated, and a stopped one
            is continued.
        progress: Whether to show progress bars in a terminal.
        say: Called with a line of text for each run.
    """
    refuse_repeated(seeds)
    plan = [replace(settings, noise=noise, seed=seed) for noise in NOISES for seed in seeds]
    if not (out / STUDY).exists():
        experiment.prepare(plan[0])  # refuses settings that do not fit the data
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        _keep_settings(settings, out)
        runs = [_run(single, out, progress, say) for single in plan]
        write_json(out / NUMBERS, _numbers(settings, runs))
    return runs


class LidCounts:
    """Scores an epoch: AUROC of each LID, and how often right and wrong labels have which LID.

    Args:
        truth: True labels (n,).
        observed: Labels that LID-dis is trained on (n,).
    """

    def __init__(self, truth: Tensor, observed: Tensor) -> None:
        self.metrics = Metrics(truth, observed)
        self.wrong = (truth != observed).numpy()  # (n,)

    def __call__(self, method: Method, epoch: int) -> dict[str, Any]:
        """Figures of an epoch."""
        figures: dict[str, Any] = dict(self.metrics(method, epoch))
        rows = method.rows_now()
        for name in STUDIED:
            lid = rows[name].detach().cpu().numpy()
            seen = np.isfinite(lid)
            figures[name] = {
                "right": counts(lid[seen & ~self.wrong]),
                "wrong": counts(lid[seen & self.wrong]),
            }
        return figures


def counts(lid: np.ndarray[Any, Any]) -> dict[str, int]:
    """How many values are in each bin that holds some, by the number of the bin."""
    bins = np.minimum(lid // BIN_WIDTH, MAX_BIN).astype(int)
    return {str(place): number for place, number in sorted(Counter(bins.tolist()).items())}


def _keep_settings(settings: Settings, out: Path) -> None:
    """Write the settings of a new study; refuse to continue one with other settings."""
    there = json_files.read_if_there(out / STUDY, dict[str, Any])
    if there:
        hyper = there.pop("hyper", {})
        refuse_changes(settings, resolve(overrides=there, hyper=hyper))
    elif any(not path.name.startswith(LOCK) for path in out.iterdir()):
        raise FileExistsError(f"{out} holds something else than this study; choose another folder")
    else:
        write_json(out / STUDY, settings.to_dict())


def _run(settings: Settings, out: Path, progress: bool, say: Say) -> StudyRun:
    """Train with one noise and seed, or read the numbers of a finished training."""
    folder = out / f"{settings.noise.replace(':', '-')}-seed{settings.seed}"
    done: StudyRun | None = json_files.read_if_there(folder / RECORD, StudyRun)
    if done:
        return done
    say(f"LID-dis with {settings.noise}, seed {settings.seed} ...")
    task = experiment.prepare(settings)
    folder.mkdir(exist_ok=True)
    history, device = launch(_train, task, settings, folder, progress)
    epochs = [
        {name: {**line[name], "auroc": line.get(f"{name}_auroc")} for name in STUDIED}
        for line in history.epochs
    ]
    made_with = {"hardware": hardware(device), "versions": versions(), "commit": commit()}
    rate = task.manifest["true_rate"]
    run = StudyRun(settings.noise, rate, settings.seed, epochs, made_with)
    write_json(folder / RECORD, vars(run))
    (folder / checkpoint.NAME).unlink(missing_ok=True)
    return run


def _train(
    processes: Processes, task: Task, settings: Settings, folder: Path, progress: bool
) -> tuple[History, str]:
    """Train LID-dis, or continue a training that was stopped; returns figures and device."""
    score = LidCounts(task.source.labels, task.observed)
    trained = train_method(
        task.source.x,
        Labels(task.observed),
        task.source.num_classes,
        settings,
        processes=processes,
        folder=folder,
        resume=True,
        make_score=lambda _: score,
        progress=progress,
    )
    return trained.history, str(processes.device)


def _numbers(settings: Settings, runs: Sequence[StudyRun]) -> dict[str, Any]:
    """The content of the file of numbers."""
    return {
        "settings": settings.to_dict(),
        "neighbors": STUDIED,
        "bin_width": BIN_WIDTH,
        "last_bin": MAX_BIN,
        "runs": [vars(run) for run in runs],
    }
