"""Commands after a review: apply decisions, and exchange rows with other tools."""

from pathlib import Path
from typing import Annotated

import typer

from colafier.cli.terminal import SHORT_HELP, console, interruptible, mistakes_explained

FORMS = "label-studio, cvat, fiftyone or imagefolder."
Run = Annotated[Path, typer.Argument(metavar="OUT", help="Folder of the run.")]
Form = Annotated[str, typer.Argument(metavar="FORMAT", help=FORMS)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.")]

exchange = typer.Typer(
    no_args_is_help=True,
    context_settings=SHORT_HELP,
    help="Send doubtful rows to another tool, and take back what was said there.",
)


def apply(
    run: Run,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DECISIONS", help="decisions.json, one or several."),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option("--continue", help="Then train on with the decided rows as trusted ones."),
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget decisions that were applied before.")
    ] = False,
) -> None:
    """Put the decisions of a review into OUT/labels.csv.

    - `colafier apply out decisions.json`
    - `colafier apply out anna.json ben.json` (of two decisions about a row the later one counts)
    - `colafier apply out decisions.json --continue`
    - `colafier apply out --continue` (goes on after Ctrl-C)

    Each decided row says when, from what, to what and why. The first table stays as
    OUT/labels.before-review.csv. Decisions for another data set are refused.
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
    advice = f"the decisions are applied; go on with: colafier apply {run} --continue"
    with mistakes_explained(), interruptible(advice):
        summary = apply.continue_training(run, say=_say).summary
    low, high = summary["estimated_noise_interval"]
    counts = ", ".join(f"{action} {count:,}" for action, count in summary["actions"].items())
    _say(
        f"Trained with {summary['reviewed']:,} decided rows. Of the other labels about "
        f"{summary['estimated_noise_rate']:.1%} are wrong ({low:.1%} to {high:.1%}). {counts}."
    )


@exchange.command("out")
def send(
    form: Form,
    run: Run,
    out: Annotated[Path, typer.Option("--out", "-o", help="File, or folder of imagefolder.")],
    everything: Annotated[
        bool, typer.Option("--all", help="Also rows whose label is to be kept.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the most doubtful ones.")] = None,
    prefix: Annotated[
        str | None,
        typer.Option(help="Of image addresses in Label Studio, as https://host/photos/."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the doubtful rows for another tool, most doubtful first.

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
    run: Run,
    path: Annotated[Path, typer.Argument(metavar="EXPORT", help="What the tool gave back.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The decisions to write.")] = Path(
        "decisions.json"
    ),
    overwrite: Overwrite = False,
) -> None:
    """Turn what was said in another tool into a decisions.json.

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
