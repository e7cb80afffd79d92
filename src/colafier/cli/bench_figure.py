"""The commands `bench figure ...`, which repeat figures of the paper."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from colafier.cli.experiment import SOURCES, Data, Limit, given_options
from colafier.cli.list_options import ListOptionsCommand
from colafier.cli.terminal import SHORT_HELP, console, interruptible, mistakes_explained

figure_app = typer.Typer(
    no_args_is_help=True,
    context_settings=SHORT_HELP,
    help="Repeat figures of the paper, at any scale.",
)


@figure_app.callback()
def _figures() -> None:
    """Repeat figures of the paper, at any scale."""


@figure_app.command(cls=ListOptionsCommand)
def lid(
    out: Annotated[
        Path, typer.Option(help="Folder of the study; what is finished in it is not repeated.")
    ] = Path("runs/lid"),
    source: Annotated[str, typer.Option(help=SOURCES)] = "digits",
    data: Data = None,
    limit: Limit = None,
    net: Annotated[
        str | None,
        typer.Option(
            help="Backbone of LID-dis.",
            show_default="convnet for digits, resnet34 for cifar10, resnet8 for fashion_mnist",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Training epochs.",
            show_default="40 for digits, 200 for cifar10, 15 for fashion_mnist",
        ),
    ] = None,
    seeds: Annotated[
        list[int] | None,
        typer.Option(
            metavar="INTEGER...", help="Seeds, such as 1 2 3: one training for each and each noise."
        ),
    ] = None,
) -> None:
    """Does LID tell wrong labels from right ones? The paper's study with LID-dis alone.

    - `colafier bench figure lid`
    - `colafier bench figure lid --seeds 1 2 3 --out runs/lid3`
    - `colafier bench figure lid --source cifar10 --data FOLDER --out runs/lid-cifar10`

    This is the study of section 3.2: LID-dis is trained with 20 and 40 % instance-dependent and
    50 % symmetric noise. The figure (lid.svg, lid.png) shows the shares of right and wrong labels
    in each bin of LID, over all epochs, and the AUROC of each epoch, for k = 20 and for k by label
    counts. lid.json has the numbers of each epoch.
    """
    from colafier.bench import lid_figure, lid_study
    from colafier.report.comparison import mean_and_deviation
    from colafier.training.checkpoint import CheckpointError

    with (
        mistakes_explained((ValueError, OSError, ImportError, CheckpointError)),
        interruptible("the same command continues the study"),
    ):
        lid_figure.check()
        overrides = given_options(data=data, limit=limit, net=net, epochs=epochs)
        settings = lid_study.study_settings(source, overrides)
        runs = lid_study.run_study(settings, seeds or [1], out, say=console.print)
        paths = lid_figure.draw(runs, out)
    shown = Table("noise", *lid_figure.TITLES.values(), title="AUROC of LID, mean over the epochs")
    for noise in lid_study.NOISES:
        chosen = [run for run in runs if run.noise == noise]
        values = [[run.mean_auroc(name) for run in chosen] for name in lid_figure.TITLES]
        texts = [" ± ".join(f"{v:.3f}" for v in mean_and_deviation(found)) for found in values]
        shown.add_row(noise, *texts)
    console.print(shown)
    console.print(f"The figure is {paths[0]}, and its numbers are {out / lid_study.NUMBERS}.")
