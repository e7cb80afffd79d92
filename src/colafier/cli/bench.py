"""Commands for the benchmark: run a suite, show its tables, compare it with the paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colafier._io import write_text
from colafier.cli.bench_figure import figure_app
from colafier.cli.list_options import ListOptionsCommand
from colafier.cli.terminal import SHORT_HELP, console, interruptible, mistakes_explained

if TYPE_CHECKING:
    from colafier.bench.results import Record
    from colafier.bench.runner import Progress
    from colafier.bench.suite import Run

bench = typer.Typer(
    no_args_is_help=True,
    context_settings=SHORT_HELP,
    help="Run the benchmark, and compare all methods in tables.",
)
bench.add_typer(figure_app, name="figure")

SuiteName = Annotated[
    str,
    typer.Argument(metavar="SUITE", help="Name of a suite, or the path of a .toml file."),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(help="Entries of the suite, or other methods.", show_default="all of the suite"),
]
Noises = Annotated[
    list[str] | None,
    typer.Option(help="Noises, as in the suite or others.", show_default="those of the suite"),
]
Seeds = Annotated[list[int] | None, typer.Option(help="Seeds.", show_default="those of the suite")]
Out = Annotated[Path, typer.Option(help="Folder for the records, SUITE.jsonl, and the tables.")]
OUT = Path("runs/bench")


@bench.command(cls=ListOptionsCommand)
def run(
    suite: SuiteName,
    methods: Methods = None,
    noises: Noises = None,
    seeds: Seeds = None,
    data: Annotated[
        str, typer.Option(help="Folder with the files of the data set.", show_default="")
    ] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 2,
    out: Out = OUT,
    redo: Annotated[
        bool, typer.Option("--redo", help="Run again what has a record; the new one counts.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Begin even if the runs will take more than a day.")
    ] = False,
) -> None:
    """Run all methods of a suite with all its noises and seeds.

    - `colafier bench run digits`
    - `colafier bench run digits --methods ce colafier --noises instance:0.4 --seeds 1 2 3`
    - `colafier bench run features --data FOLDER --jobs 2`

    Each run adds a line to OUT/SUITE.jsonl when it ends. Start the same command again to continue
    where it was stopped: runs that have a record with the same settings are skipped.
    """
    from colafier.bench.results import Results
    from colafier.bench.runner import run_all, runs_ahead, threads_each
    from colafier.bench.suite import load_suite

    with mistakes_explained():
        chosen = load_suite(suite)
        runs = chosen.runs(data, methods or (), noises or (), seeds or ())
        results = Results(out, chosen.name)
        ahead = runs_ahead(runs, results, redo)
        threads = threads_each(jobs)
        console.print(
            f"{len(runs)} runs, {len(runs) - len(ahead)} of them have a record; {jobs} at a time, "
            f"each with {threads} thread{'s' if threads > 1 else ''}.",
            soft_wrap=True,
        )
        if chosen.long and ahead:
            _announce_cost(ahead, yes)
    advice = f"the records so far are in {results.path}; start the same command again to continue"
    with mistakes_explained(), interruptible(advice):
        progress = run_all(ahead, results, jobs=jobs, redo=redo, report=_report)
    failures = f", {progress.failures} of them failed" if progress.failures else ""
    console.print(
        f"{progress.done} runs done{failures}, {len(runs) - len(ahead)} had a record before. "
        f"The records are in {results.path}.",
        soft_wrap=True,
    )
    if progress.failures:
        raise typer.Exit(1)


@bench.command(cls=ListOptionsCommand)
def table(
    suite: SuiteName,
    methods: Methods = None,
    noises: Noises = None,
    seeds: Seeds = None,
    out: Out = OUT,
) -> None:
    """Show the results of a suite, and write them as Markdown, LaTeX and a plot.

    - `colafier bench table digits`
    - `colafier bench table digits --methods ce elr colafier`

    Reads OUT/SUITE.jsonl; writes OUT/SUITE.md, SUITE.tex, and plots of test accuracy (SUITE.png)
    and of right labels (SUITE-labels.png). The tables say which runs are missing.
    """
    from colafier.bench import tables
    from colafier.bench.plot import plot
    from colafier.bench.results import Results
    from colafier.bench.scores import collect
    from colafier.bench.suite import load_suite

    with mistakes_explained():
        chosen = load_suite(suite)
        results = Results(out, chosen.name)
        found = collect(chosen, results, methods or (), noises or (), seeds or ())
        if not found.records:
            raise ValueError(
                f"{results.path} has no such runs; start with: colafier bench run {suite}"
            )
        text = tables.markdown(found)
        endings = (".md", ".tex", ".png", "-labels.png")
        written = [out / f"{chosen.name}{ending}" for ending in endings]
        write_text(written[0], text)
        write_text(written[1], tables.latex(found))
        console.print(text, soft_wrap=True)
        plot(found, written[2])
        plot(found, written[3], "labels_right_after")
    console.print(f"Wrote {', '.join(map(str, written))}.", soft_wrap=True)


@bench.command()
def compare(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="table1a, table1b, table2 or ablation.")
    ],
    out: Out = OUT,
) -> None:
    """Put the numbers that the paper prints beside ours.

    - `colafier bench compare ablation`
    - `colafier bench compare table1b --out docs/results`

    If the suite itself has not been run, the smaller suites with the same noise are shown. Writes
    OUT/SUITE-paper.md.
    """
    from colafier.bench.paper import comparison

    with mistakes_explained():
        text = comparison(suite, out)
        path = out / f"{suite}-paper.md"
        write_text(path, text)
    console.print(text, soft_wrap=True)
    console.print(f"Wrote {path}.", soft_wrap=True)


def _announce_cost(ahead: "Sequence[Run]", yes: bool) -> None:
    """Print how long the runs will take; more than a day needs the consent of the user."""
    from colafier._progress import progress_bar
    from colafier.bench.cost import DAY, estimate

    entries = len({(run.part, run.entry.name) for run in ahead})
    with progress_bar("measuring a few steps", entries) as advance:
        cost = estimate(ahead, advance)
    console.print(str(cost), soft_wrap=True)
    if cost.seconds > DAY and not yes:
        raise ValueError("this is more than a day: give --yes to begin, or choose with --methods")


def _report(record: "Record", progress: "Progress") -> None:
    """Print a line about a run that has ended, and the time left."""
    from colafier.bench.results import failed

    if failed(record):
        result = f"failed: {record['error']}"
    else:
        result = (
            f"test {record['test_accuracy']:.3f}, labels {record['labels_right_before']:.3f} -> "
            f"{record['labels_right_after']:.3f}, audit {record['audit_labels_right_after']:.3f}"
        )
    left = progress.seconds_left()
    time_left = "" if not progress.ahead or left is None else f", {duration(left)} left"
    console.print(
        f"{progress.done}/{progress.total} {record['entry']}, {record['noise']['name']}, "
        f"seed {record['seed']}: {result}, {record['run_seconds']:.0f} s{time_left}",
        soft_wrap=True,
    )


def duration(seconds: float) -> str:
    """A time in words, such as 2 h 05 min."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
