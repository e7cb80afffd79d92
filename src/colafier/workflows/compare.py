"""Compare finished runs: find them in folders, group those that differ only in the seed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colafier.readers import json_files
from colafier.report import comparison_page, run_files
from colafier.report.comparison import CURVES, FIGURES, Group, Run, grouped
from colafier.report.run_files import MODERATE
from colafier.workflows import run_dir
from colafier.workflows.run_dir import CONFIG, SUMMARY, RunConfig

DEPTH = 3  # how far below a given folder runs are looked for


@dataclass(frozen=True)
class Comparison:
    """Groups of finished runs, and what was given that is none."""

    groups: list[Group]
    skipped: dict[Path, str]  # path -> why it is left out


def compare(paths: Iterable[Path]) -> Comparison:
    """Read and group the runs in these folders.

    Args:
        paths: Folders of runs, or folders that hold some, such as those of `train --seeds`.
    """
    runs: dict[Path, Run] = {}
    skipped: dict[Path, str] = {}
    for path in paths:
        found = list(_run_folders(path, DEPTH))
        if not found:
            skipped[path] = "there is no run in it" if path.is_dir() else "it is not a folder"
        for folder in found:
            try:
                runs.setdefault(folder.resolve(), read(folder))
            except (OSError, ValueError) as error:
                skipped[folder] = str(error)
    return Comparison(grouped(runs.values()), skipped)


def read(folder: Path) -> Run:
    """What is compared of the run in a folder; an error if it is not finished."""
    config = run_dir.read_config(folder)
    summary = json_files.read_if_there(folder / SUMMARY, dict[str, Any])
    if not summary:
        raise ValueError("the run is not finished")
    lines = run_files.read_epochs(folder)
    record = run_files.read_record(folder)
    audit = {f"audit.{name}": value for name, value in (record.get("audit") or {}).items()}
    seconds = sum(_numbers(line, ["seconds"]).get("seconds", 0) for line in lines)
    seed = _numbers(config.asked, ["seed"])
    if not seed:
        raise ValueError(f"{folder / CONFIG} has no seed")
    known = {"seconds": seconds, **summary, **record, **audit}
    return Run(
        folder=folder,
        seed=int(seed["seed"]),
        settings=_settings(config),
        figures=_numbers(known, [figure.key for figure in FIGURES]),
        epochs=[_numbers(line, CURVES) for line in lines],
    )


def write(comparison: Comparison, path: Path) -> Path:
    """Write the page; a file that is something else is not replaced."""
    return comparison_page.write(comparison.groups, comparison.skipped, path)


def _run_folders(path: Path, depth: int) -> Iterator[Path]:
    """The folder itself if it is that of a run, otherwise those of the runs below it."""
    if not path.is_dir():
        return
    if (path / CONFIG).exists():
        yield path
    elif depth:
        for inside in sorted(path.iterdir()):
            yield from _run_folders(inside, depth - 1)


def _settings(config: RunConfig) -> dict[str, Any]:
    """What a run was started with, apart from the seed; only runs with the same are grouped."""
    asked = dict(config.asked)
    hyper = asked.pop("hyper", {})
    asked.pop("seed", None)
    if config.kind == "purify":  # the noise of a train run, and so its data, depends on the seed
        asked["data"] = config.fingerprint[:12]
    if config.decided is not None:
        asked["decided"] = config.decided[:12]
    return {"kind": config.kind, **asked, **hyper}


def _numbers(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, float]:
    """Those of the values with these names that are numbers."""
    there = {name: values[name] for name in names if name in values}
    return {
        name: value
        for name, value in there.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and value in MODERATE
    }
