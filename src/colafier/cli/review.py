"""Commands for a review: apply decisions, and exchange rows with labeling tools."""

from pathlib import Path
from typing import Annotated

import typer

from colafier.cli.terminal import SHORT_HELP, console, interruptible, mistakes_explained

FORMS = "label-studio, cvat, fiftyone or imagefolder."
Run = Annotated[
    Path, typer.Argument(metavar="OUT", help="Folder of a finished purify or train run.")
]
PurifyRun = Annotated[
    Path, typer.Argument(metavar="OUT", help="Folder of a finished purify run on images or texts.")
]
Form = Annotated[str, typer.Argument(metavar="FORMAT", help=FORMS)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")]

exchange = typer.Typer(
    no_args_is_help=True,
    context_settings=SHORT_HELP,
    help="Export doubtful rows to a labeling tool, and import the answers as decisions.",
)


def apply(
    run: Run,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DECISIONS", help="One or more decisions.json, saved from the report."
        ),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option(
            "--continue",
            help="Then continue the training, with the decided rows as trusted: their labels are "
            "never changed.",
        ),
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="First undo all decisions that were applied before.")
    ] = False,
) -> None:
    """Apply the decisions of a review to OUT/labels.csv.

    - `colafier apply out decisions.json`
    - `colafier apply out anna.json ben.json` (of two decisions about a row, the later one counts)
    - `colafier apply out decisions.json --continue`
    - `colafier apply out --continue` (also resumes after Ctrl-C)
    - `colafier apply runs/digits decisions.json` (the folder of a train run)

    The table records for each decided row when it was decided, the old and the new label, and why.
    The table as it was before is kept in OUT/labels.before-review.csv. Decisions about another data
    set are refused.
    """
    from colafier.workflows import apply
    from colafier.workflows.run_dir import LABELS

    with mistakes_explained():
        if not files and not (go_on or reset):
            raise ValueError("give decisions: colafier apply OUT decisions.json")
        if files or reset:
            done = apply.apply(run, files or [], reset=reset)
            _say(
                f"{done.now:,} decisions applied; {done.decided:,} rows are decided in all: "
                f"{done.changed:,} with another label than the observed one, {done.excluded:,} "
                f"excluded. All rows are in {run / LABELS}."
            )
    if not go_on:
        return
    advice = f"the decisions are applied; continue with: colafier apply {run} --continue"
    with mistakes_explained(), interruptible(advice):
        summary = apply.continue_training(run, say=_say).summary
    low, high = summary["estimated_noise_interval"]
    counts = ", ".join(f"{action} {count:,}" for action, count in summary["actions"].items())
    _say(
        f"Trained with {summary['reviewed']:,} decided rows. Of the other labels about "
        f"{summary['estimated_noise_rate']:.1%} are wrong ({low:.1%} to {high:.1%}). "
        f"Actions: {counts}."
    )


@exchange.command("out")
def send(
    form: Form,
    run: PurifyRun,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write; for imagefolder, a folder.")
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="Include rows whose label is to be kept.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help="At most this many rows, the most doubtful ones.", show_default="all"
        ),
    ] = None,
    prefix: Annotated[
        str | None,
        typer.Option(
            help="Start of the image addresses for Label Studio, such as https://host/photos/."
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Export the doubtful rows to a labeling tool, the most doubtful first.

    - `colafier exchange out label-studio out -o tasks.json`
    - `colafier exchange out cvat out -o photos.zip --limit 500`
    - `colafier exchange out fiftyone out -o samples.json`
    - `colafier exchange out imagefolder out -o review`
    """
    from colafier.workflows import exchange

    with mistakes_explained(), interruptible("nothing was written"):
        count, paths = exchange.send(
            form, run, out, everything=everything, limit=limit, prefix=prefix, overwrite=overwrite
        )
    _say(f"{count:,} rows are in {' and '.join(map(str, paths))}.")


@exchange.command("in")
def receive(
    form: Form,
    run: PurifyRun,
    path: Annotated[
        Path, typer.Argument(metavar="EXPORT", help="File or folder that the tool exported.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File for the decisions.")] = Path(
        "decisions.json"
    ),
    overwrite: Overwrite = False,
) -> None:
    """Import the answers from a labeling tool and write them as decisions.json.

    - `colafier exchange in label-studio out export.json -o decisions.json`
    - `colafier apply out decisions.json`
    """
    from colafier.workflows import exchange

    with mistakes_explained(), interruptible("nothing was written"):
        count, notes = exchange.receive(form, run, path, out, overwrite=overwrite)
    for note in notes:
        _say(f"Note: {note}.")
    _say(f"{count:,} decisions are in {out}; apply them with: colafier apply {run} {out}")


def _say(line: str) -> None:
    console.print(line, soft_wrap=True)
