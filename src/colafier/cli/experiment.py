"""Commands for research runs on benchmarks: train and noise."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from colafier._io import atomic_file, write_json
from colafier.cli.terminal import console, interruptible, mistakes_explained
from colafier.workflows.settings import (
    Settings,
    preset_names,
    read_pairs,
    refuse_changes,
    resolve,
)


def _or_preset(setting: str) -> str:
    """The default of a setting, as the help shows it."""
    return f"{getattr(Settings, setting)}, or that of the preset"


Data = Annotated[
    str | None, typer.Option(help="Folder with the files of the source; digits needs none.")
]
SOURCES = "Data set: digits (included in the package), cifar10 or fashion_mnist."
Noise = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="Label noise to inject: none, symmetric:RATE, symmetric-exclusive:RATE, "
        "asymmetric:RATE, pair:RATE, instance:RATE, instance-raw:RATE, instance-shared:RATE, "
        "file:LABELS.npy or cifar10n:worst:FILE (or aggregate, random1, random2, random3).",
        show_default=_or_preset("noise"),
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(min=2, help="Use only this many rows, the first ones.", show_default="all"),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Seed of all random numbers: noise, initial weights, batches.",
        show_default=f"{Settings.seed}",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]


def train(
    out: Annotated[
        Path, typer.Option(help="New folder for the outputs; with --resume, that of the run.")
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Settings to start from: {', '.join(preset_names())}, or the path of a .toml "
            "file."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help=SOURCES, show_default=_or_preset("source"))
    ] = None,
    data: Data = None,
    noise: Noise = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="Name of the method; colafier methods lists them.",
            show_default=_or_preset("method"),
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Hyper-parameter of the method; repeatable. colafier methods NAME lists them.",
        ),
    ] = None,
    net: Annotated[
        str | None,
        typer.Option(
            help="Backbone: resnet8, resnet10, resnet18, resnet34, convnet, mlp or linear.",
            show_default=_or_preset("net"),
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Training epochs.", show_default=_or_preset("epochs")),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=2, help="Rows in one step, over all devices.", show_default=_or_preset("batch_size")
        ),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(help="Learning rate of AdamW.", show_default=_or_preset("lr")),
    ] = None,
    lr_floor: Annotated[
        float | None,
        typer.Option(
            help="Share of the learning rate that is left at the end, along a half cosine; 1 keeps "
            "the rate constant.",
            show_default="0.02 or that of the method, or that of the preset",
        ),
    ] = None,
    weight_decay: Annotated[
        float | None,
        typer.Option(help="Weight decay of AdamW.", show_default=_or_preset("weight_decay")),
    ] = None,
    seed: Seed = None,
    seeds: Annotated[
        list[int] | None,
        typer.Option(
            metavar="INTEGER...",
            help="Several seeds, such as 1 2 3: one run for each, in the folders OUT/seed1, "
            "OUT/seed2 and so on.",
        ),
    ] = None,
    limit: Limit = None,
    pad_to: Annotated[
        int | None,
        typer.Option(help="Pad images to this many pixels a side; for fashion_mnist."),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            help="Frozen net, such as efficientnet_lite0, whose features of the images are the "
            "rows to train on; use it with --net mlp.",
            show_default="none: the pixels are the rows",
        ),
    ] = None,
    flip: Annotated[
        bool | None,
        typer.Option(
            "--flip/--no-flip",
            help="Whether images may be mirrored at random.",
            show_default="flip, or that of the preset",
        ),
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes that share the training, one for each device.",
            show_default=f"{Settings.devices}",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Number type of the backbone: auto, float32 or bf16.",
            show_default=_or_preset("dtype"),
        ),
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(
            help="How new weights start: auto, torch or kaiming-fan-out; auto is torch, unless the "
            "method chooses.",
            show_default=_or_preset("init"),
        ),
    ] = None,
    input_statistics: Annotated[
        str | None,
        typer.Option(
            help="Normalization of the inputs: auto, fitted or cifar10-authors; auto is fitted, "
            "unless the method chooses.",
            show_default=_or_preset("input_statistics"),
        ),
    ] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(
            help="Also log to tensorboard, wandb or mlflow; repeatable. metrics.jsonl is always "
            "written."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the stopped run in --out.")
    ] = False,
    overwrite: Overwrite = False,
) -> None:
    """Train a method on a benchmark with noisy labels, purify the labels, and score both.

    - `colafier train --preset digits --out runs/digits`
    - `colafier train --preset digits --method ce --noise symmetric:0.5 --seed 2 --out runs/ce`
    - `colafier train --preset cifar10 --data FOLDER --noise instance:0.4 --out runs/c10`
    - `colafier train --preset cifar10 --data FOLDER --limit 5000 --net resnet8 --out runs/small`
    - `colafier train --source cifar10 --data FOLDER --embedder auto --net mlp --out runs/features`
    - `colafier train --preset digits --set variant=paper --set warmup=8 --out runs/paper`
    - `colafier train --preset digits --seeds 1 2 3 --out runs/three`
    - `colafier train --resume --out runs/digits`

    Options on the command line override the preset, and the preset overrides the defaults.
    The folder OUT is like that of purify, with scores against the true labels in addition.
    labels.csv has the purified labels; report.html shows the doubtful ones and takes your
    decisions; model is the classifier; metrics.jsonl has a line per epoch; record.json has the
    scores; noise.json describes the injected noise; config.json has all settings.

    `report` and `apply` work on OUT; `predict` and `check` work on OUT/model. `compare` puts
    several runs side by side. With --seeds, OUT has a folder for each seed; --resume then skips the
    finished ones.
    """
    from colafier.training import loggers

    overrides = given_options(
        source=source, data=data, limit=limit, pad_to=pad_to, embedder=embedder, noise=noise,
        method=method, net=net, dtype=dtype, init=init, input_statistics=input_statistics,
        epochs=epochs, batch_size=batch_size, lr=lr, lr_floor=lr_floor, weight_decay=weight_decay,
        flip=flip, seed=seed, devices=devices,
    )  # fmt: skip
    with mistakes_explained():
        if resume and overwrite:
            raise ValueError("give --resume to continue, or --overwrite to start over, not both")
        if seeds and seed is not None:
            raise ValueError("give --seed for one run, or --seeds for several, not both")
        for place in [out / f"seed{number}" for number in seeds] if seeds else [out]:
            loggers.check(log or (), place)
        make_settings = partial(resolve, preset, overrides, read_pairs(set_ or []))
    if seeds:
        _train_seeds(seeds, out, make_settings, resume, overwrite, log or [])
    else:
        _train_one(out, make_settings, resume, overwrite, log or [])


def _train_one(
    out: Path,
    make_settings: Callable[[Settings | None], Settings],
    resume: bool,
    overwrite: bool,
    log: list[str],
) -> None:
    """One run, and the table of its scores."""
    from colafier.cli.score_table import table
    from colafier.report import page
    from colafier.training.checkpoint import CheckpointError
    from colafier.workflows import experiment
    from colafier.workflows.run_dir import LABELS, CannotResumeError

    with mistakes_explained():
        then = experiment.settings_of(out) if resume else None
        settings = make_settings(then)
        if then is not None:
            refuse_changes(settings, then)
        task = experiment.prepare(settings)
    with (
        mistakes_explained((OSError, CheckpointError, CannotResumeError)),
        interruptible(f"continue with: colafier train --resume --out {out}"),
    ):
        result = experiment.train(settings, task, out, resume=resume, overwrite=overwrite, log=log)
    console.print(table({settings.method: result.record}, f"{settings.source}, {settings.noise}"))
    console.print(
        f"The purified labels are in {out / LABELS}.\n"
        f"Next: open {out / page.NAME} in a browser and review the doubtful rows.",
        soft_wrap=True,
    )


def _train_seeds(
    seeds: list[int],
    out: Path,
    make_settings: Callable[[Settings | None], Settings],
    resume: bool,
    overwrite: bool,
    log: list[str],
) -> None:
    """One run for each seed, and a table with mean and spread of their scores."""
    from colafier.cli.score_table import seeds_table
    from colafier.training.checkpoint import CheckpointError
    from colafier.workflows import seed_runs
    from colafier.workflows.run_dir import CannotResumeError

    with mistakes_explained():
        runs = seed_runs.plan(seeds, out, make_settings, resume=resume, overwrite=overwrite)
    again = f"colafier train --resume --seeds {' '.join(map(str, seeds))} --out {out}"
    with (
        mistakes_explained((OSError, CheckpointError, CannotResumeError)),
        interruptible(f"continue with: {again}"),
    ):
        records = seed_runs.train(
            runs, overwrite=overwrite, again=again, log=log, say=console.print
        )
    settings = runs[0].settings
    console.print(seeds_table(records, f"{settings.method}, {settings.source}, {settings.noise}"))
    console.print(
        f"Each run has its folder in {out}.\n"
        f"Next: colafier compare {out} draws their learning curves.",
        soft_wrap=True,
    )


def noise(
    spec: Annotated[
        str,
        typer.Option(
            "--noise", metavar="SPEC", help="Noise to inject, as in colafier train --help."
        ),
    ],
    out: Annotated[Path, typer.Option(help="File for the labels; its name must end in .npy.")],
    source: Annotated[str | None, typer.Option(help=SOURCES, show_default=Settings.source)] = None,
    data: Data = None,
    limit: Limit = None,
    seed: Seed = None,
    overwrite: Overwrite = False,
) -> None:
    """Inject label noise into a benchmark and write the noisy labels, without training.

    - `colafier noise --source digits --noise pair:0.3 --seed 1 --out noisy.npy`
    - `colafier noise --source cifar10 --data FOLDER --noise instance:0.4 --out inst40.npy`
    - `colafier train --preset digits --noise file:noisy.npy --out runs/pair30`

    A manifest with the same name but .json is written as well: requested rate, true rate, seed and
    a hash of the labels.
    """
    import numpy as np

    from colafier.workflows import experiment

    with mistakes_explained():
        if out.suffix != ".npy":
            raise ValueError(f"the name of the file must end in .npy, not {out}")
        if out.exists() and not overwrite:
            raise FileExistsError(f"{out} exists; give --overwrite or another --out")
        overrides = given_options(source=source, data=data, limit=limit, seed=seed, noise=spec)
        task = experiment.prepare(resolve(overrides=overrides))
        manifest = out.with_suffix(".json")
        write_json(manifest, task.manifest)
        # last, because the command is refused once this file is there
        with atomic_file(out) as path, path.open("wb") as file:
            np.save(file, task.observed.numpy())
    wrong = 100 * task.manifest["true_rate"]
    console.print(
        f"Wrote {len(task.observed):,} labels, {wrong:.1f} % of them wrong, to {out}, and their "
        f"manifest to {manifest}.",
        soft_wrap=True,
    )


def given_options(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}
