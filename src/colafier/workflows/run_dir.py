"""The folder of a purify run: taken with care, never half-filled, and known again later."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from colafier._io import write_json
from colafier.embed import encode
from colafier.ingest.read import Dataset
from colafier.report import evidence, page
from colafier.training import checkpoint
from colafier.training.trainer import METRICS

LABELS, CONFIG, SUMMARY = "labels.csv", "config.json", "summary.json"
BEFORE = "labels.before-review.csv"  # the first labels.csv, once decisions were applied
CONTINUED = "continued"  # a folder: the run that goes on with decisions, until it is done
MODEL, DATA = "model", "purified"
# without the summary a run is unfinished
FILES = (SUMMARY, LABELS, BEFORE, METRICS, checkpoint.NAME, evidence.NAME, page.NAME)


def check(out: Path, dataset: Dataset, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that holds anything else, or in which the source could come to harm."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; give another folder")
    here, source = out.resolve(), dataset.source.resolve()
    if source.is_dir() and here.is_relative_to(source):
        raise ValueError(f"{out} is inside of the source, which is never changed; give another")
    items = dataset.items if isinstance(dataset.items, list) else []
    images = (item.absolute() for item in items if isinstance(item, Path))
    if source.is_relative_to(here) or any(path.is_relative_to(here) for path in images):
        raise ValueError(f"the source lies in {out}, which is for the results; give another folder")
    if resume:
        _check_resume(out, dataset)
    elif out.exists() and any(out.iterdir()):
        if not overwrite:
            raise FileExistsError(
                f"{out} exists; give --resume to go on with it, --overwrite to start over, or "
                "another folder"
            )
        if not is_run(out):
            raise FileExistsError(f"{out} is not the folder of a run, and is left alone")


def check_decided(out: Path, config: Mapping[str, Any], *, resume: bool) -> None:
    """Refuse to go on with a run without the decisions that it was started with."""
    if resume and read_config(out).get("decided") != config.get("decided"):
        raise ValueError(
            f"the run in {out} was started with other decisions; go on with: "
            f"colafier apply {out.parent} --continue"
        )


def read_config(out: Path) -> dict[str, Any]:
    """What the run in a folder was started with."""
    path = out / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"there is no run to resume in {out}: it has no {CONFIG}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(config, dict) or not isinstance(config.get("options"), dict):
        raise ValueError(f"{path} does not hold the options of a run")
    return config


def is_run(out: Path) -> bool:
    """Whether a folder was made by `colafier purify`: others have a config.json as well."""
    try:
        return "source" in read_config(out)["options"]
    except (OSError, ValueError):
        return False


@contextmanager
def claimed(out: Path, config: Mapping[str, Any]) -> Iterator[None]:
    """Take the folder while the rows are prepared; a mistake that shows then leaves all as it was.

    An older run goes only after that, and what was asked for is written down.
    """
    older = is_run(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not older:
            write_json(out / CONFIG, config)
    except PermissionError as error:
        raise PermissionError(f"{out} may not be written; give another folder") from error
    try:
        yield
    except Exception:
        if not older:
            for name in (CONFIG, encode.PIXELS):
                (out / name).unlink(missing_ok=True)
            with suppress(OSError):  # it was there before, with something in it
                out.rmdir()
        raise


def clear(out: Path) -> None:
    """Remove the results of an older run, all that it could have written."""
    for name in FILES:
        (out / name).unlink(missing_ok=True)
    for name in (MODEL, CONTINUED):
        shutil.rmtree(out / name, ignore_errors=True)
    remove_data(out)
    remove_partial(out)


def remove_data(out: Path) -> None:
    """The data set that an earlier run wrote back: a folder, or a file with an ending."""
    for path in (out / DATA, *out.glob(f"{DATA}.*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def remove_partial(out: Path) -> None:
    """What a killed run was just writing."""
    for path in out.glob("*.partial"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _check_resume(out: Path, dataset: Dataset) -> None:
    then = read_config(out).get("fingerprint")
    if (out / SUMMARY).exists():
        raise FileExistsError(f"the run in {out} is finished: there is nothing to resume")
    if then is not None and then != dataset.fingerprint():
        raise ValueError(
            f"{dataset.source} was changed after the run in {out} was started; start over: "
            f"colafier purify {dataset.source} -o {out} --overwrite"
        )
