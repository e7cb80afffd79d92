"""The `colafier` program: all its commands, of which demo and methods are defined here.

Torch is imported only when a command needs it, so that `--help` is quick.
"""

import inspect
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from colafier import __version__
from colafier._validation import range_words, type_words
from colafier.cli import bench, compare, data, experiment, report, review
from colafier.cli.experiment import Seed, given_options
from colafier.cli.list_options import ListOptionsCommand
from colafier.cli.terminal import SHORT_HELP, console, interruptible, mistakes_explained
from colafier.methods import REQUIRED, available, find, hyper_parameters

HELP = """Find wrong labels in a data set, fix them, and train a classifier that is robust to them.

- `colafier demo`: see it work on handwritten digits, in a few minutes
- `colafier purify SOURCE -o OUT`: purify your own data, then open OUT/report.html in a browser
- `colafier train --preset digits --out OUT`: train on a benchmark with injected label noise

`purify` and `train` write the same kind of folder. `report` and `apply` work on the folder OUT of
either, and `compare` on several; `predict`, `check` and `export` on the model in OUT/model.
`colafier COMMAND --help` shows examples.
"""


app = typer.Typer(
    no_args_is_help=True,
    context_settings=SHORT_HELP,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    help=HELP,
)
app.command()(data.purify)
app.command()(data.predict)
app.command()(data.check)
app.command()(data.export)
app.command()(report.report)
app.command()(review.apply)
app.command(cls=ListOptionsCommand)(experiment.train)
app.command()(experiment.noise)
app.command()(compare.compare)
app.add_typer(review.exchange, name="exchange")
app.add_typer(bench.bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        console.print(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the outputs; an older demo in it is replaced.")
    ] = Path("runs/demo"),
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Training epochs of each method; fewer are quicker.",
            show_default="as in the preset digits",
        ),
    ] = None,
    seed: Seed = None,
) -> None:
    """Purify 1,437 images of digits with 40 % wrong labels, and compare with plain training.

    - `colafier demo`
    - `colafier demo --seed 2 --out runs/demo2`

    It trains CoLafier and plain cross entropy (ce) on the same noisy labels, prints the scores of
    both, and writes a folder for each. Then open runs/demo/colafier/report.html in a browser.
    """
    from colafier.cli.demo import demo as show

    overrides = given_options(epochs=epochs, seed=seed)
    with mistakes_explained(), interruptible("run the demo again"):
        show(out, overrides, console)


@app.command()
def methods(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Explain this method and list its hyper-parameters."),
    ] = None,
) -> None:
    """List the methods for learning with noisy labels, or explain one of them.

    - `colafier methods`
    - `colafier methods colafier`
    - `colafier train --preset digits --method co_teaching --out runs/co_teaching`
    - `colafier train --preset digits --set variant=paper --out runs/paper`
    """
    if name is not None:
        with mistakes_explained():
            _explain(name)
        return
    shown = Table("name", "year", "nets", "needs the noise rate", "reference")
    with mistakes_explained():
        names = available()
    broken = False
    for name in names:
        try:
            kind = find(name)
        except ValueError as error:  # one broken file hides no other method
            broken = True
            shown.add_row(name, "", "", "", f"does not work: {error}")
            continue
        rate = "yes" if kind.needs_noise_rate else "no"
        shown.add_row(name, str(kind.year), str(kind.num_nets), rate, kind.reference)
    console.print(shown)
    if broken:
        raise typer.Exit(2)


def _explain(method: str) -> None:
    """Print what a method is, and which hyper-parameters `--set` can change."""
    kind = find(method)
    console.print(f"{kind.reference} {kind.year}\n\n{inspect.getdoc(kind)}\n", soft_wrap=True)
    shown = Table("--set", "default", "type or choices", "range")
    for key, (default, declared) in hyper_parameters(method).items():
        usual = "must be given" if default is REQUIRED else str(default).lower()
        shown.add_row(key, usual, type_words(declared), range_words(declared))
    console.print(shown if shown.row_count else "It has no hyper-parameters.")
