"""One experiment with several seeds: one run folder for each seed, one run after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from colafier.report import run_files
from colafier.workflows import experiment, run_dir
from colafier.workflows.run_dir import SUMMARY
from colafier.workflows.settings import Settings, refuse_changes

MakeSettings = Callable[[Settings | None], Settings]  # from the settings of an older run, if any
Say = Callable[[str], None]


@dataclass(frozen=True)
class SeedRun:
    """The run of one seed."""

    folder: Path
    settings: Settings
    started: bool = False  # an earlier run in the folder is continued
    finished: bool = False

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.settings.seed


def refuse_repeated(seeds: Sequence[int]) -> None:
    """Refuse a seed that is given twice: its run would count twice."""
    if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
        raise ValueError(f"seed {twice[0]} is given twice")


def plan(
    seeds: Sequence[int],
    out: Path,
    make_settings: MakeSettings,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> list[SeedRun]:
    """The runs that are to be done, continued or skipped; mistakes raise an error here.

    Args:
        seeds: The seeds, each of them once.
        out: Folder of the folders `seed1`, `seed2` and so on.
        make_settings: Makes the settings; of a run that is continued, it gets the settings that
            the run was started with.
        resume: Skip the finished runs, and continue the others.
        overwrite: Replace older runs.
    """
    refuse_repeated(seeds)
    if run_dir.is_run(out):
        raise FileExistsError(f"{out} is the folder of a single run; choose another --out")
    folders = {seed: out / f"seed{seed}" for seed in seeds}
    started = [seed for seed in seeds if resume and run_dir.is_run(folders[seed])]
    if resume and not started:
        raise FileNotFoundError(f"there is no run to resume in {folders[seeds[0]]}")
    base = experiment.settings_of(folders[started[0]]) if started else None
    runs = []
    for seed, folder in folders.items():
        settings = replace(make_settings(base), seed=seed)
        if seed in started:
            refuse_changes(settings, experiment.settings_of(folder))
            runs.append(SeedRun(folder, settings, True, (folder / SUMMARY).exists()))
        else:
            run_dir.check(folder, resume=False, overwrite=overwrite)
            runs.append(SeedRun(folder, settings))
    experiment.prepare(runs[0].settings)  # refuses settings that do not fit the data
    return runs


def train(
    runs: Sequence[SeedRun],
    *,
    overwrite: bool = False,
    again: str | None = None,
    progress: bool = True,
    log: Sequence[str] = (),
    say: Say = lambda _: None,
) -> dict[int, dict[str, Any]]:
    """Do the runs one after the other; returns the record of each seed.

    Args:
        runs: From `plan`.
        overwrite: Replace older runs.
        again: The command that continues the runs, for advice.
        progress: Whether to show progress bars in a terminal.
        log: Names of additional loggers.
        say: Called with a line of text for each run.
    """
    records: dict[int, dict[str, Any]] = {}
    for run in runs:
        if run.finished:
            say(f"Seed {run.seed} is finished.")
            records[run.seed] = run_files.read_record(run.folder)
            continue
        say(f"{'Continuing' if run.started else 'Training'} with seed {run.seed} ...")
        try:
            records[run.seed] = experiment.train(
                run.settings,
                experiment.prepare(run.settings),
                run.folder,
                resume=run.started,
                overwrite=overwrite,
                again=again,
                progress=progress,
                log=log,
            ).record
        except OSError as error:
            if records and error.errno is not None:  # the other runs are not to be trained again
                raise OSError(f"{error}; when this is fixed, continue with: {again}") from error
            raise
    return records
