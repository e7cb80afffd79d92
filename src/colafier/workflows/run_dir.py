"""The folder of a run: names of its files, its config.json, and how a process claims it.

`purify` and `train` write the same kind of folder. A run without a summary is unfinished.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from colafier._io import atomic_file, to_json, write_json
from colafier.embed import encode
from colafier.readers import json_files
from colafier.report import evidence, page
from colafier.report.run_files import TAKEN_OVER
from colafier.training import checkpoint
from colafier.training.trainer import METRICS
from colafier.workflows.run_lock import LOCK, locked

LABELS, CONFIG, SUMMARY = "labels.csv", "config.json", "summary.json"
RECORD, NOISE = "record.json", "noise.json"  # of train runs
BEFORE = "labels.before-review.csv"  # labels.csv as it was before decisions were applied
CONTINUED = "continued"  # folder of a run that continues with decisions, until it is finished
MODEL, DATA = "model", "purified"
FILES = (
    SUMMARY, RECORD, NOISE, LABELS, BEFORE, METRICS, checkpoint.NAME, evidence.NAME, page.NAME,
)  # fmt: skip
FORMAT: Literal["colafier-run-2"] = "colafier-run-2"

Kind = Literal["purify", "train"]


class CannotResumeError(ValueError):
    """A run was started with other data or other decisions."""


@dataclass(frozen=True)
class RunConfig:
    """The content of config.json: the options as given, and the resolved configuration."""

    kind: Kind
    asked: dict[str, Any]  # options of purify, or settings of train
    fingerprint: str  # of the data set with its original labels
    decided: str | None = None  # digest of a person's decisions that training starts from
    classes: tuple[str, ...] | None = None
    train: dict[str, Any] | None = None  # the resolved training configuration
    audit: dict[str, Any] | None = None
    format: Literal["colafier-run-2"] = FORMAT

    @property
    def resume_command(self) -> str:
        """What continues a stopped run; OUT stands for its folder."""
        commands = {
            "purify": "colafier purify --resume OUT",
            "train": "colafier train --resume --out OUT",
        }
        return commands[self.kind]


def read_config(out: Path) -> RunConfig:
    """Read the config.json of a run."""
    path = out / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"there is no run in {out}: it has no {CONFIG}")
    config: RunConfig = json_files.read(path, RunConfig)
    return config


def write_config(out: Path, config: RunConfig) -> None:
    """Write config.json, complete or not at all."""
    write_json(out / CONFIG, asdict(config))


def is_run(out: Path) -> bool:
    """Whether a folder was made by a run."""
    try:
        return bool(read_config(out).asked)
    except (OSError, ValueError):
        return False


def check(out: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that holds something else, or a run that is not to be replaced."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; choose another folder")
    if resume:
        read_config(out)
        if (out / SUMMARY).exists():
            raise FileExistsError(f"the run in {out} is finished: there is nothing to resume")
        return
    if not out.exists() or all(_of_a_start(path.name) for path in out.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(
            f"{out} exists; use --resume to continue the run in it, --overwrite to start over, "
            "or choose another folder"
        )
    if not is_run(out):
        raise FileExistsError(f"{out} is not the folder of a run, and is left alone")


def _of_a_start(name: str) -> bool:
    """Whether a run that was killed at its very start may have left this file."""
    return name.startswith(LOCK) or name == f"{CONFIG}.partial"


def check_resume(out: Path, config: RunConfig) -> None:
    """Refuse to continue a run with other data or other decisions than it was started with."""
    then = read_config(out)
    if then.fingerprint != config.fingerprint:
        raise CannotResumeError(
            f"the data was changed after the run in {out} was started; start over with --overwrite"
        )
    if then.decided != config.decided:
        raise CannotResumeError(
            f"the run in {out} was started with other decisions; continue with: "
            f"colafier apply {out.parent} --continue"
        )


class Claim:
    """A run folder that only this process may write to."""

    def __init__(self, out: Path, config: RunConfig, resume: bool) -> None:
        self.out = out
        self.config = config
        self.resume = resume
        self.started = False

    def start(self, **resolved: Any) -> None:
        """Remove the results of an older run; from now on, written files are kept after an error.

        The older run can be resumed until its config is replaced. From then on the folder is that
        of this run, whatever else is still in it.

        Args:
            **resolved: Entries of the config that are known by now.
        """
        if not self.resume or read_config(self.out).train is None:
            with atomic_file(self.out / CONFIG) as partial:
                partial.write_text(to_json(asdict(self.config)) + "\n", encoding="utf-8")
                (self.out / SUMMARY).unlink(missing_ok=True)  # there was room for the config
            self.started = True
            clear(self.out)
        self.started = True
        self.update(**resolved)

    def update(self, **resolved: Any) -> None:
        """Write the config with these entries added."""
        self.config = replace(self.config, **resolved)
        write_config(self.out, self.config)


@contextmanager
def claimed(
    out: Path,
    config: RunConfig,
    *,
    resume: bool,
    overwrite: bool,
    again: str | None = None,
) -> Iterator[Claim]:
    """Take a folder for a run, and lock it until the block ends.

    An error before `Claim.start` leaves the folder as it was: an older run stays, a new folder is
    removed. After it, what is there is kept, so that the run can be resumed.

    Args:
        out: The folder.
        config: What the run is started with.
        resume: Whether to continue the run in the folder.
        overwrite: Whether to replace the run in the folder.
        again: The command that continues this run, for advice; None: that of its kind.
    """
    check(out, resume=resume, overwrite=overwrite)
    older = is_run(out)
    claim = Claim(out, config, resume)
    with ExitStack() as stack:
        if not out.exists():
            stack.callback(_remove_unused, claim)
        try:
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(out))
        except PermissionError as error:
            raise PermissionError(f"{out} cannot be written to; choose another folder") from error
        check(out, resume=resume, overwrite=overwrite)  # nobody else has written since
        if resume:
            check_resume(out, config)
        try:
            if not older:
                write_config(out, config)
            yield claim
        except Exception as error:
            if not claim.started and not older:
                for name in (CONFIG, encode.PIXELS):
                    (out / name).unlink(missing_ok=True)
            if claim.started and isinstance(error, OSError):  # such as a full disk
                advice = again or config.resume_command.replace("OUT", str(out))
                raise OSError(f"{error}; when this is fixed, continue with: {advice}") from error
            raise


def _remove_unused(claim: Claim) -> None:
    """Remove a new folder in which no run was started."""
    if not claim.started:
        with suppress(OSError):  # the folder is not empty
            claim.out.rmdir()


def clear(out: Path) -> None:
    """Remove everything that an older run could have written."""
    for name in FILES:
        (out / name).unlink(missing_ok=True)
    for name in (MODEL, CONTINUED, TAKEN_OVER):
        shutil.rmtree(out / name, ignore_errors=True)
    remove_data(out)


@contextmanager
def replaced_data(out: Path) -> Iterator[Path]:
    """A place for the purified data set, which replaces the older one at the end of the block.

    At any moment there is at least one of them, so that it is known after a kill that the run has
    a purified data set.
    """
    new = out / f"{DATA}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        yield new / DATA
        remove_data(out, but=new)
        for path in new.iterdir():
            os.replace(path, out / path.name)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def remove_data(out: Path, but: Path | None = None) -> None:
    """Remove the purified data set of an earlier run, a folder or a file.

    Args:
        out: The folder of the run.
        but: What is left alone.
    """
    for path in (out / DATA, *out.glob(f"{DATA}.*")):
        if path != but:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
