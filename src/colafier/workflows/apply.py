"""Apply a person's decisions to the folder of a run, and continue its training with them."""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from colafier._io import atomic_file, write_json
from colafier._surroundings import own_surroundings
from colafier.audit.policy import EXCLUDE
from colafier.ingest.read import Dataset
from colafier.ingest.write_back import write_back
from colafier.report import page, run_files
from colafier.report.run_files import TAKEN_OVER, refuse_mixed
from colafier.review import decisions, label_file
from colafier.review.apply import apply_decisions
from colafier.review.decided import REVIEWED_AT, DecidedRows
from colafier.training import checkpoint
from colafier.workflows import run_dir
from colafier.workflows.experiment import as_dataset, prepare, settings_of, train
from colafier.workflows.outputs import Outcome
from colafier.workflows.purify import Options, options_of, purify, read_source, warm_start
from colafier.workflows.run_dir import BEFORE, CONTINUED, DATA, LABELS, SUMMARY
from colafier.workflows.run_lock import LOCK, locked

Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """A finished run, read from its folder."""

    folder: Path
    lines: pd.DataFrame  # labels.csv, all values as text, so that it is written back unchanged
    summary: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the data set."""
        return str(self.summary["fingerprint"])

    def source(self) -> Dataset:
        """The data set that the run was made from, which must not have changed."""
        dataset = dataset_of(self.folder)
        if dataset.fingerprint() != self.fingerprint:
            raise ValueError(
                f"{dataset.source} was changed since the run in {self.folder}: its fingerprint is "
                f"now {dataset.fingerprint()!r}, that of the run is {self.fingerprint!r}; "
                "restore it, or start a new run"
            )
        return dataset


@dataclass(frozen=True)
class Applied:
    """Counts after decisions were applied."""

    now: int  # decisions in the given files
    decided: int  # rows that are decided in all
    changed: int  # decided rows whose label is not the original one
    excluded: int  # decided rows that are excluded


def open_run(out: Path, table: str = LABELS) -> Run:
    """Read the run in a folder.

    Args:
        out: The folder.
        table: Name of the label table to read.
    """
    if not run_dir.is_run(out) or not (out / SUMMARY).is_file():
        raise FileNotFoundError(f"{out} is not the folder of a finished run")
    refuse_mixed(out)
    return _read_run(out, table)


def _read_run(out: Path, table: str) -> Run:
    summary = run_files.read_summary(out)
    return Run(out, label_file.read(out / table, summary["rows"]), summary)


def apply(out: Path, files: Sequence[Path], *, reset: bool = False) -> Applied:
    """Apply the decisions in these files to labels.csv; if one is invalid, nothing is written.

    Args:
        out: Folder of the run.
        files: One or more decisions.json; of two decisions about a row, the later one counts.
        reset: First undo decisions that were applied before, and delete a checkpoint that was
            trained with them.
    """
    open_run(out)  # checks the folder before a lock file is written to it
    with locked(out):
        return _apply(out, files, reset)


def _apply(out: Path, files: Sequence[Path], reset: bool) -> Applied:
    first = (out / BEFORE).exists()
    run = open_run(out, BEFORE if reset and first else LABELS)
    lines, count = run.lines, 0
    for file in files:
        review = decisions.read(file)
        lines = apply_decisions(lines, review, run.fingerprint, str(file))
        count += len(review.decisions)
    form = _written_form(out)
    dataset = run.source() if form else None
    with ExitStack() as stack:  # what is large is written first, in case that the disk is full
        if dataset is not None and form is not None:
            place = stack.enter_context(run_dir.replaced_data(out))
            _write_data(place, form, dataset, lines)
        if not first and REVIEWED_AT not in run.lines:
            with atomic_file(out / BEFORE) as partial:
                shutil.copyfile(out / LABELS, partial)
        if reset and run_dir.read_config(out).decided is not None:
            (out / checkpoint.NAME).unlink(missing_ok=True)
        with atomic_file(out / LABELS) as partial:
            lines.to_csv(partial, index=False, lineterminator="\n")
    decided = DecidedRows.from_table(lines, run.fingerprint)
    write_json(out / SUMMARY, _counted(run.summary, lines, decided))
    labels = decided.labels()
    excluded = sum(label is None for label in labels.values())
    changed = (decided.lines["label"] != decided.lines["original_label"]).sum()
    return Applied(count, len(labels), int(changed), excluded)


@own_surroundings()
def continue_training(out: Path, *, progress: bool = True, say: Say = lambda _: None) -> Outcome:
    """Continue the training with the decided rows as trusted, and update the folder.

    Training continues from the run's checkpoint. It starts over if the checkpoint is gone, or if
    the decisions leave a class without rows. Embeddings come from the cache. The old results stay
    until the new ones are complete, and a stopped run continues where it was.
    """
    if not (out / TAKEN_OVER).exists():
        open_run(out)
    with locked(out):
        if not (out / TAKEN_OVER).exists():
            _continue(out, progress, say)
        return _take_over(out)


def _continue(out: Path, progress: bool, say: Say) -> None:
    """Train in a folder of its own, which is renamed when all results are in it."""
    run = open_run(out)
    decided = DecidedRows.from_table(run.lines, run.fingerprint)
    if not len(decided):
        raise ValueError(
            f"nothing in {out} is decided yet; give decisions: colafier apply OUT FILE"
        )
    work = out / CONTINUED
    state = _state(work, decided)
    if state == "other":
        shutil.rmtree(work)
    if state != "done":
        rerun = _purify_again if run_dir.read_config(out).kind == "purify" else _train_again
        rerun(run, work, decided, state == "started", progress, say)
    os.rename(work, out / TAKEN_OVER)


def _take_over(out: Path) -> Outcome:
    """Move the results of the continued run to the folder; can be repeated after a kill."""
    work = out / TAKEN_OVER
    (work / LOCK).unlink(missing_ok=True)  # of a process that was killed
    if any(path.stem == DATA for path in work.iterdir()):
        run_dir.remove_data(out)
    for path in list(work.iterdir()):
        target = out / path.name
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(path, target)
    run = _read_run(out, LABELS)
    decided = DecidedRows.from_table(run.lines, run.fingerprint)
    summary = _counted(run.summary, run.lines, decided)
    write_json(out / SUMMARY, summary)
    page.write(out, summary)
    work.rmdir()  # the last step: while the folder is there, the run is not finished
    return Outcome(run.lines, summary)


def dataset_of(out: Path) -> Dataset:
    """The data set of a run, read again."""
    if run_dir.read_config(out).kind == "purify":
        return read_source(options_of(out))
    return as_dataset(prepare(settings_of(out)))


def _purify_again(
    run: Run, work: Path, decided: DecidedRows, resume: bool, progress: bool, say: Say
) -> None:
    purify(
        _same_embedder(options_of(run.folder), run.summary),
        work,
        decided=decided,
        earlier=run.folder,
        resume=resume,
        again=f"colafier apply {run.folder} --continue",
        progress=progress,
        say=say,
    )


def _train_again(
    run: Run, work: Path, decided: DecidedRows, resume: bool, progress: bool, say: Say
) -> None:
    settings = settings_of(run.folder)
    task = prepare(settings)
    classes = list(task.source.classes)
    epochs, start = warm_start(settings, run.folder, work if resume else None, classes, say)
    train(
        settings,
        task,
        work,
        decided=decided,
        epochs=epochs,
        warm_start=start,
        resume=resume,
        again=f"colafier apply {run.folder} --continue",
        progress=progress,
    )


def _state(work: Path, decided: DecidedRows) -> str:
    """State of the folder of a continued run: none, started or done, or other decisions."""
    if not work.exists():
        return "none"
    try:
        same = run_dir.read_config(work).decided == decided.digest()
    except (OSError, ValueError):
        return "other"
    if not same:
        return "other"
    return "done" if (work / SUMMARY).exists() else "started"


def _same_embedder(options: Options, summary: dict[str, Any]) -> Options:
    """The options with the embedder that the run used, in place of `auto`."""
    name = summary.get("input", {}).get("embedder")
    return options if name is None else replace(options, embedder=name)


def _counted(summary: dict[str, Any], lines: pd.DataFrame, decided: DecidedRows) -> dict[str, Any]:
    """The summary with the counts of this table; its estimates stay as they are."""
    actions = {str(name): int(count) for name, count in lines["action"].value_counts().items()}
    return {**summary, "actions": actions, "reviewed": len(decided)}


def _written_form(out: Path) -> str | None:
    """The form in which the run wrote the purified data set, if that still exists."""
    there = (out / DATA).exists() or any(out.glob(f"{DATA}.*"))
    return options_of(out).write if there else None


def _write_data(place: Path, form: str, dataset: Dataset, lines: pd.DataFrame) -> None:
    """Write the purified data set again."""
    keep = (lines["action"] != EXCLUDE).tolist()
    labels = [label or None for label in lines["label"]]
    write_back(dataset, labels, keep, place, form, link=True)
