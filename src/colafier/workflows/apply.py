"""Apply the decisions of a person to the folder of a run, and train on with them."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from colafier._io import atomic_file, write_json
from colafier.audit.label_table import COLUMNS
from colafier.audit.policy import EXCLUDE
from colafier.ingest.read import Dataset
from colafier.ingest.write_back import write_back
from colafier.report import page
from colafier.review import decisions
from colafier.review.apply import apply_decisions
from colafier.review.decided import REVIEWED_AT, DecidedRows
from colafier.training import checkpoint
from colafier.workflows import run_dir
from colafier.workflows.experiment import as_dataset, prepare, settings_of, train
from colafier.workflows.outputs import Outcome
from colafier.workflows.purify import Options, options_of, purify, read_source, warm_start
from colafier.workflows.run_dir import (
    BEFORE,
    CONFIG,
    CONTINUED,
    DATA,
    LABELS,
    SUMMARY,
)
from colafier.workflows.run_lock import locked

Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """A finished run, as its folder has it."""

    folder: Path
    lines: pd.DataFrame  # labels.csv as text: it is written again as it was
    summary: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Of the data set."""
        return str(self.summary["fingerprint"])

    def source(self) -> Dataset:
        """The data set that the run was made from, which must not have changed."""
        dataset = dataset_of(self.folder)
        if dataset.fingerprint() != self.fingerprint:
            raise ValueError(
                f"{dataset.source} was changed since the run in {self.folder}: it has the "
                f"fingerprint {dataset.fingerprint()!r}, the run has {self.fingerprint!r}; "
                "put it back as it was, or purify it again"
            )
        return dataset


@dataclass(frozen=True)
class Applied:
    """What came of it."""

    now: int  # decisions in the files
    decided: int  # rows that are decided in all
    changed: int  # of these, with another label than the observed one
    excluded: int


def open_run(out: Path, table: str = LABELS) -> Run:
    """The run in a folder.

    Args:
        out: The folder.
        table: Which result table to take.
    """
    if not run_dir.is_run(out) or not (out / SUMMARY).is_file():
        raise FileNotFoundError(f"{out} is not the folder of a finished run")
    try:
        summary = json.loads((out / SUMMARY).read_text(encoding="utf-8"))
        if not isinstance(summary["fingerprint"], str):
            raise ValueError("its fingerprint is not text")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{out / SUMMARY} is damaged: {error}") from error
    lines = _read_table(out / table)
    if lines["row"].tolist() != [str(row) for row in range(summary.get("rows", -1))]:
        raise ValueError(
            f"{out / table} does not hold the {summary.get('rows')} rows of the run in their "
            f"order; put it back as it was written"
        )
    return Run(out, lines, summary)


def apply(out: Path, files: Sequence[Path], *, reset: bool = False) -> Applied:
    """Write labels.csv with the decisions of these files; nothing is written if one does not fit.

    Args:
        out: Folder of the run.
        files: Each a decisions.json; of two decisions about a row the later one counts.
        reset: Forget decisions that were applied before, and a checkpoint that has learned them.
    """
    open_run(out)  # before the folder is locked: it may be none of a run
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
    if not first and REVIEWED_AT not in run.lines:
        with atomic_file(out / BEFORE) as partial:
            shutil.copyfile(out / LABELS, partial)
    if reset and run_dir.read_config(out).decided is not None:
        (out / checkpoint.NAME).unlink(missing_ok=True)
    with atomic_file(out / LABELS) as partial:
        lines.to_csv(partial, index=False, lineterminator="\n")
    if form and dataset:
        _write_data(out, form, dataset, lines)
    decided = DecidedRows.from_table(lines, run.fingerprint)
    write_json(out / SUMMARY, _counted(run.summary, lines, decided))
    labels = decided.labels()
    excluded = sum(label is None for label in labels.values())
    changed = (decided.lines["label"] != decided.lines["original_label"]).sum()
    return Applied(count, len(labels), int(changed), excluded)


def continue_training(out: Path, *, progress: bool = True, say: Say = lambda _: None) -> Outcome:
    """Train on with the decided rows as trusted ones, and take the results into the folder.

    Training continues from the run's checkpoint; where that is gone, or the decisions leave no row
    of a class, it starts over. Embeddings come from the cache. Until all is done the old results
    stay, and a stopped run continues where it was.
    """
    open_run(out)
    with locked(out):
        return _continue(out, progress, say)


def _continue(out: Path, progress: bool, say: Say) -> Outcome:
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
    _adopt(work, out)
    adopted = open_run(out)
    summary = _counted(adopted.summary, adopted.lines, decided)
    write_json(out / SUMMARY, summary)
    page.write(out)
    return Outcome(adopted.lines, summary)


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
    """Of the folder of a continued run: none, started or done with these decisions, or other."""
    if not work.exists():
        return "none"
    done = (work / SUMMARY).exists()
    # killed while the results were moved up, the summary last: its config may be there already
    config = work.parent if done and not (work / CONFIG).exists() else work
    try:
        same = run_dir.read_config(config).decided == decided.digest()
    except (OSError, ValueError):
        return "other"
    if not same:
        return "other"
    return "done" if done else "started"


def _same_embedder(options: Options, summary: dict[str, Any]) -> Options:
    """The options with the embedder that `auto` came to then, whatever is there now."""
    name = summary.get("input", {}).get("embedder")
    return options if name is None else replace(options, embedder=name)


def _adopt(work: Path, out: Path) -> None:
    """Move the results up, the summary last; a kill in between is mended by doing it again."""
    found = sorted(work.iterdir(), key=lambda path: path.name == SUMMARY)
    if any(path.stem == DATA for path in found):
        run_dir.remove_data(out)
    for path in found:
        target = out / path.name
        if target.is_dir():
            shutil.rmtree(target)
        os.replace(path, target)
    work.rmdir()


def _read_table(path: Path) -> pd.DataFrame:
    try:
        lines = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is gone; run again, with --overwrite") from None
    except (ValueError, UnicodeError) as error:  # of pandas' parser, too
        raise ValueError(f"{path} is damaged: {error}") from error
    if missing := [name for name in ("row", "name", *COLUMNS) if name not in lines]:
        raise ValueError(f"{path} has no column {missing[0]!r}: it is not the table of a run")
    return lines


def _counted(summary: dict[str, Any], lines: pd.DataFrame, decided: DecidedRows) -> dict[str, Any]:
    """The summary with the counts of this table; the estimates are of the training."""
    actions = {str(name): int(count) for name, count in lines["action"].value_counts().items()}
    return {**summary, "actions": actions, "reviewed": len(decided)}


def _written_form(out: Path) -> str | None:
    """The form in which the run wrote the data set back, if that is still there."""
    there = (out / DATA).exists() or any(out.glob(f"{DATA}.*"))
    return options_of(out).write if there else None


def _write_data(out: Path, form: str, dataset: Dataset, lines: pd.DataFrame) -> None:
    """The data set in its own format once more."""
    run_dir.remove_data(out)
    keep = (lines["action"] != EXCLUDE).tolist()
    labels = [label or None for label in lines["label"]]
    write_back(dataset, labels, keep, out / DATA, form, link=True)
