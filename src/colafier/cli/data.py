"""Commands for a user's data: purify, predict, check and export."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from colafier.cli.terminal import FIXABLE, console, interruptible, mistakes_explained

FAILED = 1

DETECTED = "detected"
Out = Annotated[Path, typer.Option("--out", "-o", help="CSV file for the predictions.")]
Image = Annotated[
    str | None, typer.Option(help="Column with image paths or bytes.", show_default=DETECTED)
]
Text = Annotated[str | None, typer.Option(help="Column with texts.", show_default=DETECTED)]
Features = Annotated[
    list[str] | None,
    typer.Option(help="Column with numbers or categories; repeatable.", show_default=DETECTED),
]
Label = Annotated[str | None, typer.Option(help="Column with the labels.", show_default=DETECTED)]
Missing = Annotated[
    list[str] | None,
    typer.Option(help="Text that means no label, as an empty cell does; repeatable."),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Do not store embeddings for later runs.")
]
Model = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Model of a purify or train run: the folder OUT/model."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]


def purify(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="The data: a folder with one folder per class, or a .csv, .tsv, .parquet or .npz "
            "file.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New folder for the results.")
    ] = None,
    image: Image = None,
    text: Text = None,
    features: Features = None,
    label: Label = None,
    missing: Missing = None,
    min_confidence: Annotated[
        float,
        typer.Option(
            help="Relabel only if the new class has at least this probability, 0 to 1; other "
            "doubtful rows are left for review."
        ),
    ] = 0.0,
    mode: Annotated[
        str,
        typer.Option(
            help="features: embed images or texts with a frozen net and train a small one. "
            "end-to-end: train a CNN on the images."
        ),
    ] = "features",
    embedder: Annotated[
        str,
        typer.Option(
            help="Net that embeds images or texts: auto, efficientnet_lite0, _lite1 or _lite2, "
            "minilm, hf:NAME, the folder of a model, or several joined by +."
        ),
    ] = "auto",
    size: Annotated[
        int | None,
        typer.Option(
            min=8, help="Resize images to this many pixels a side.", show_default="by mode and net"
        ),
    ] = None,
    method: Annotated[
        str, typer.Option(help="Training method; colafier methods lists them.")
    ] = "colafier",
    net: Annotated[
        str | None,
        typer.Option(help="Backbone to train, such as resnet18.", show_default="by kind of rows"),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Training epochs.", show_default="by kind and number of rows"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    write: Annotated[
        str | None,
        typer.Option(
            help="Also write the data set with purified labels: folder, csv, parquet or npz."
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the stopped run in this folder.", metavar="OUT")
    ] = None,
    overwrite: Overwrite = False,
    no_cache: NoCache = False,
) -> None:
    """Find and fix wrong labels in your data set, and train a classifier on the purified labels.

    - `colafier purify photos -o out` (photos/cat/1.jpg, photos/dog/2.jpg ...)
    - `colafier purify reviews.csv --text review --label stars -o out`
    - `colafier purify customers.csv --label churned -o out` (all other columns are features)
    - `colafier purify embeddings.npz -o out` (arrays features and labels)
    - `colafier purify photos -o out --min-confidence 0.95 --write folder`
    - `colafier purify --resume out`

    The kind of data and its columns are detected and printed. The source is never changed.

    - OUT/labels.csv: every row in input order, with original_label, label, action (keep, relabel,
      review or exclude), label_quality and reason
    - OUT/report.html: the doubtful rows and why they are doubted; it takes your decisions
    - OUT/model: the classifier, for `predict`, `check` and `export`
    - OUT/summary.json: how many labels are probably wrong, and what was done
    """
    from colafier.report import page
    from colafier.workflows import purify as pipeline
    from colafier.workflows.run_dir import LABELS, MODEL

    with mistakes_explained():
        if resume is not None:
            _alone(context, "resume")
            folder, options = resume, pipeline.options_of(resume)
        else:
            if source is None or out is None:
                raise ValueError("give the data and a folder: colafier purify SOURCE -o OUT")
            folder = out
            options = pipeline.Options(
                source=source, image=image, text=text, label=label, mode=mode, embedder=embedder,
                size=size, method=method, net=net, epochs=epochs, seed=seed, write=write,
                min_confidence=min_confidence, cache=not no_cache,
                features=tuple(features) if features else None,
                missing=("", *(missing or ())),
            )  # fmt: skip
    with (
        mistakes_explained(),  # a checkpoint that does not fit is a ValueError as well
        interruptible(f"continue with: colafier purify --resume {folder}"),
    ):
        outcome = pipeline.purify(
            options, folder, resume=resume is not None, overwrite=overwrite, say=_say
        )
    console.print(_overview(outcome.summary))
    _show_first(pipeline.ranked(outcome.table))
    _say(f"All rows are in {folder / LABELS}, the model is in {folder / MODEL}.")
    _say(f"Next: open {folder / page.NAME} in a browser and review the doubtful rows.")


def predict(
    model: Model,
    new: Annotated[
        Path,
        typer.Argument(metavar="NEW", help="New rows, of the kind that the model was trained on."),
    ],
    out: Out = Path("predictions.csv"),
    image: Image = None,
    text: Text = None,
    features: Features = None,
    overwrite: Overwrite = False,
    no_cache: NoCache = False,
) -> None:
    """Classify new rows with the model of a purify or train run.

    - `colafier predict out/model new_photos -o predictions.csv`
    - `colafier predict out/model new.csv --text review -o predictions.csv`
    - `colafier predict runs/digits/model new_digits` (the model of a train run)

    The CSV file has one line per row, in input order: predicted_label, confidence, and the problem
    of a row that could not be read.
    """
    from colafier.ingest.column_roles import ReadOptions
    from colafier.workflows import serve

    with mistakes_explained(), interruptible("nothing was written"):
        _free(out, overwrite, new)
        columns = ReadOptions(image, text, tuple(features) if features else None)
        lines = serve.predict(model, new, columns, cache=not no_cache)
        _save(lines, out)
    _say(f"The predictions for {len(lines):,} rows are in {out}.")


def check(
    model: Model,
    new: Annotated[
        Path,
        typer.Argument(
            metavar="NEW", help="New rows with labels, of the kind that the model was trained on."
        ),
    ],
    fail_above: Annotated[
        float,
        typer.Option(min=0, max=1, help="Largest share of wrong labels that passes the check."),
    ] = 0.05,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV file for the table of all rows.")
    ] = None,
    image: Image = None,
    text: Text = None,
    features: Features = None,
    label: Label = None,
    missing: Missing = None,
    overwrite: Overwrite = False,
    no_cache: NoCache = False,
) -> None:
    """Audit the labels of new rows with a trained model; exit code 1 if too many are wrong.

    - `colafier check out/model delivery.csv --label label --fail-above 0.05 -o audit.csv`
    - `colafier check runs/digits/model new_digits` (the model of a train run)

    Nothing is trained. The share of wrong labels is estimated, as purify does. The check also
    fails if too many rows have a class that the model does not know.
    """
    from colafier.ingest.column_roles import ReadOptions
    from colafier.workflows import serve

    with mistakes_explained(), interruptible("nothing was written"):
        if out is not None:
            _free(out, overwrite, new)
        columns = ReadOptions(
            image, text, tuple(features) if features else None, label, ("", *(missing or ()))
        )
        lines, summary = serve.check(model, new, columns, cache=not no_cache)
        if out is not None:
            _save(lines, out)
    rate, unknown = summary["estimated_noise_rate"], summary["unknown_classes"]
    low, high = summary["estimated_noise_interval"]
    failed = max(rate, unknown / (unknown + summary["labeled"])) > fail_above
    _say(
        f"{'FAIL' if failed else 'ok'}: about {rate:.1%} of {summary['labeled']:,} labels are "
        f"wrong ({low:.1%} to {high:.1%}); the limit is {fail_above:.1%}."
    )
    if unknown:
        _say(f"{unknown:,} more have a class that the model does not know.")
    if failed:
        raise typer.Exit(FAILED)


def export(
    model: Model,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write ONNX, the only format so far.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write.", show_default="MODEL/model.onnx"),
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Rows to compare on.",
            show_default="those of the run",
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Export a model to ONNX, after a comparison with PyTorch on real rows.

    - `colafier export out/model --onnx`
    - `colafier export out/model --onnx --rows new.csv -o classifier.onnx`
    """
    from colafier.workflows import serve

    path = out or model / "model.onnx"
    with mistakes_explained((*FIXABLE, RuntimeError)):  # RuntimeError: the file differs from torch
        if not onnx:
            raise ValueError("say which format: colafier export MODEL --onnx")
        _free(path, overwrite)
        found = serve.export(model, path, rows)
    _say(
        f"{path}: opset {found['opset']}, input {found['dtype']} {found['shape']}, "
        f"largest difference to torch on {found['rows_checked']} rows: "
        f"{found['max_difference']:.1e}"
    )


def _say(line: str) -> None:
    console.print(line, soft_wrap=True)


def _alone(context: typer.Context, option: str) -> None:
    """Refuse other options: a run is resumed with the options that it was started with."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name != option and source is not None and source.name == "COMMANDLINE":
            word = "SOURCE" if name == "source" else "--" + name.replace("_", "-")
            raise ValueError(
                f"--{option} OUT goes alone, without {word}: a run keeps the options that it was "
                "started with"
            )


def _free(path: Path, overwrite: bool, source: Path | None = None) -> None:
    if source is not None and path.resolve() == source.resolve():
        raise ValueError(f"{path} is the source, which is never changed; give another --out")
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; give --overwrite or another --out")


def _save(lines: Any, path: Path) -> None:
    from colafier._io import atomic_file

    with atomic_file(path) as partial:
        lines.to_csv(partial, index=False, float_format="%.6g")


def _overview(summary: dict[str, Any]) -> Table:
    low, high = summary["estimated_noise_interval"]
    shown = Table("", "", show_header=False)
    shown.add_row("rows", f"{summary['rows']:,}")
    shown.add_row(
        "wrong labels, estimated",
        f"{summary['estimated_noise_rate']:.1%} ({low:.1%} to {high:.1%})",
    )
    for action, count in summary["actions"].items():
        shown.add_row(action, f"{count:,}")
    shown.add_row("expected: wrong labels fixed", f"{summary['expected_fixed']:,}")
    shown.add_row("expected: clean labels broken", f"{summary['expected_broken']:,}")
    if summary["accuracy_on_unseen_observed_labels"] is not None:
        shown.add_row(
            "accuracy on unseen observed labels",
            f"{summary['accuracy_on_unseen_observed_labels']:.1%}",
        )
    return shown


def _show_first(lines: Any, count: int = 8) -> None:
    shown = Table("row", "original", "suggested", "quality", "action", "reason")
    for line in lines.head(count).itertuples():
        quality = _cell(line.label_quality) and f"{line.label_quality:.3f}"
        labels = _cell(line.original_label), _cell(line.suggested_label)
        shown.add_row(line.name, *labels, quality, line.action, line.reason)
    if shown.row_count:
        console.print(shown)


def _cell(value: Any) -> str:
    """Text of a value; empty where there is none."""
    return "" if value is None or value != value else str(value)
