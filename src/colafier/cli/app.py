"""The command line: thin, and without torch until a command needs it."""

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from colafier import __version__
from colafier._io import atomic_file, write_json
from colafier._validation import range_words, type_words
from colafier.cli import data, report, review
from colafier.cli.terminal import SHORT_HELP, console, interruptible, mistakes_explained
from colafier.methods import REQUIRED, available, find, hyper_parameters
from colafier.workflows.settings import Settings, preset_names, read_pairs, resolve

app = typer.Typer(
    no_args_is_help=True,
    context_settings=SHORT_HELP,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    help="Learn from noisy labels, and purify them. Start with: colafier demo",
)
app.command()(data.purify)
app.command()(data.predict)
app.command()(data.check)
app.command()(data.export)
app.command()(report.report)
app.command()(review.apply)
app.add_typer(review.exchange, name="exchange")
Data = Annotated[str | None, typer.Option(help="Folder with the files of the source.")]
SourceName = Annotated[
    str | None, typer.Option(help="digits (comes along), cifar10 or fashion_mnist.")
]
Noise = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="none, symmetric:RATE, symmetric-exclusive:RATE, asymmetric:RATE, pair:RATE, "
        "instance:RATE, instance-raw:RATE, instance-shared:RATE, file:LABELS.npy or "
        "cifar10n:worst:FILE (or aggregate, random1, random2, random3).",
    ),
]
Limit = Annotated[int | None, typer.Option(min=2, help="Only the first rows.")]
Seed = Annotated[int | None, typer.Option(help="Of everything random.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


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
    out: Annotated[Path, typer.Option(help="Folder for the outputs.")] = Path("runs/demo"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Fewer are quicker.")] = None,
    seed: Seed = None,
) -> None:
    """Purify 1,437 images of digits with 40 % wrong labels, beside plain training.

    - `colafier demo`
    - `colafier demo --seed 2 --out runs/demo2`
    """
    from colafier.cli.demo import demo as show

    overrides = _overrides(epochs=epochs, seed=seed)
    with mistakes_explained(), interruptible("run the demo again"):
        show(out, overrides, console)


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder for the outputs; a new one.")],
    preset: Annotated[
        str | None, typer.Option(help=f"{', '.join(preset_names())}, or a .toml file.")
    ] = None,
    source: SourceName = None,
    data: Data = None,
    noise: Noise = None,
    method: Annotated[str | None, typer.Option(help="See: colafier methods.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Hyper-parameter of the method; repeatable."
        ),
    ] = None,
    net: Annotated[
        str | None,
        typer.Option(help="resnet8, resnet10, resnet18, resnet34, convnet, mlp or linear."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(min=2)] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of AdamW.")] = None,
    lr_floor: Annotated[
        float | None,
        typer.Option(help="Share of it at the end, along a half cosine; 1: it stays constant."),
    ] = None,
    weight_decay: Annotated[float | None, typer.Option()] = None,
    seed: Seed = None,
    limit: Limit = None,
    pad_to: Annotated[int | None, typer.Option(help="Side of the images after padding.")] = None,
    flip: Annotated[
        bool | None, typer.Option("--flip/--no-flip", help="May images be mirrored?")
    ] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="Processes to share it.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Of the backbone: auto, float32 or bf16.")
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(help="tensorboard, wandb or mlflow, beside metrics.jsonl; repeatable."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Train a method and purify the labels that it learned from.

    - `colafier train --preset digits --out runs/digits`
    - `colafier train --preset digits --method ce --noise symmetric:0.5 --seed 2 --out runs/ce`
    - `colafier train --preset cifar10 --data FOLDER --noise instance:0.4 --out runs/c10`
    - `colafier train --preset cifar10 --data FOLDER --limit 5000 --net resnet8 --out runs/small`
    - `colafier train --preset digits --set variant=paper --set warmup=8 --out runs/paper`
    - `colafier train --resume --out runs/digits`

    What is given here wins over the preset, and the preset over the defaults. All settings go into
    OUT/config.json; metrics.jsonl has a line per epoch, labels.csv the purified labels,
    report.html a page to look at, record.json the scores, noise.json what was done to the labels.
    """
    from colafier.cli.score_table import table
    from colafier.report import page
    from colafier.training import loggers
    from colafier.training.checkpoint import CheckpointError
    from colafier.workflows import experiment
    from colafier.workflows.run_dir import LABELS, CannotResumeError

    overrides = _overrides(
        source=source, data=data, limit=limit, pad_to=pad_to, noise=noise, method=method, net=net,
        dtype=dtype, epochs=epochs, batch_size=batch_size, lr=lr, lr_floor=lr_floor,
        weight_decay=weight_decay, flip=flip, seed=seed, devices=devices,
    )  # fmt: skip
    with mistakes_explained():
        if resume and overwrite:
            raise ValueError("give --resume to go on, or --overwrite to start over, not both")
        loggers.check(log or (), out)
        hyper = read_pairs(set_ or [])
        then = experiment.settings_of(out) if resume else None
        settings = resolve(preset, overrides, hyper, base=then)
        if then is not None:
            _same(settings, then)
        task = experiment.prepare(settings)
    with (
        mistakes_explained((OSError, CheckpointError, CannotResumeError)),
        interruptible(f"go on with: colafier train --resume --out {out}"),
    ):
        result = experiment.train(
            settings, task, out, resume=resume, overwrite=overwrite, log=log or ()
        )
    console.print(table({settings.method: result.record}, f"{settings.source}, {settings.noise}"))
    console.print(
        f"The purified labels are in {out / LABELS}, a report to look at is in "
        f"{out / page.NAME}, the rest beside them.",
        soft_wrap=True,
    )


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(help="Explain this one and list its hyper-parameters.")
    ] = None,
) -> None:
    """List the methods to train with, or explain one.

    - `colafier methods`
    - `colafier methods colafier`
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


@app.command()
def noise(
    spec: Annotated[str, typer.Option("--noise", metavar="SPEC", help="As for colafier train.")],
    out: Annotated[Path, typer.Option(help="File for the labels; ends in .npy.")],
    source: SourceName = None,
    data: Data = None,
    limit: Limit = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Write noisy labels and their manifest, without training.

    - `colafier noise --source digits --noise pair:0.3 --seed 1 --out noisy.npy`
    - `colafier noise --source cifar10 --data FOLDER --noise instance:0.4 --out inst40.npy`
    - `colafier train --preset digits --noise file:noisy.npy --out runs/pair30`

    The manifest lies beside the labels, as .json: requested and true rate, seed, and a hash.
    """
    import numpy as np

    from colafier.workflows import experiment

    with mistakes_explained():
        if out.suffix != ".npy":
            raise ValueError(f"the labels go into a .npy file, not {out}")
        if out.exists() and not overwrite:
            raise FileExistsError(f"{out} exists; give --overwrite or another --out")
        overrides = _overrides(source=source, data=data, limit=limit, seed=seed, noise=spec)
        task = experiment.prepare(resolve(overrides=overrides))
        manifest = out.with_suffix(".json")
        with atomic_file(out) as path, path.open("wb") as file:
            np.save(file, task.observed.numpy())
        write_json(manifest, task.manifest)
    wrong = 100 * task.manifest["true_rate"]
    console.print(
        f"{len(task.observed):,} labels, {wrong:.1f} % of them wrong: {out} and {manifest}",
        soft_wrap=True,
    )


def _explain(method: str) -> None:
    """What a method is, and which of its hyper-parameters `--set` can change."""
    kind = find(method)
    console.print(f"{kind.reference} {kind.year}\n\n{inspect.getdoc(kind)}\n", soft_wrap=True)
    shown = Table("--set", "default", "type or choices", "range")
    for key, (default, declared) in hyper_parameters(method).items():
        usual = "must be given" if default is REQUIRED else str(default).lower()
        shown.add_row(key, usual, type_words(declared), range_words(declared))
    console.print(shown if shown.row_count else "It has no hyper-parameters.")


def _overrides(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def _same(now: Settings, then: Settings) -> None:
    """A run goes on only with the settings that it was started with."""
    before, after = ({**s.to_dict(), "hyper": None, **s.hyper} for s in (then, now))
    both = [name for name in after if name in before]  # another method has other hyper-parameters
    if changed := [f"{k} was {before[k]}, is {after[k]}" for k in both if before[k] != after[k]]:
        raise ValueError(f"a resumed run keeps its settings; {'; '.join(changed)}")
