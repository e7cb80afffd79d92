"""Commands for a user's own data: purify, predict, check, export."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from colafier.cli.terminal import MENDABLE, console, interruptible, mistakes_explained

FAILED = 1

Out = Annotated[Path, typer.Option("--out", "-o", help="Where the results go.")]
Image = Annotated[str | None, typer.Option(help="Column with image paths or bytes.")]
Text = Annotated[str | None, typer.Option(help="Column with texts.")]
Features = Annotated[
    list[str] | None, typer.Option(help="Column with numbers or categories; repeatable.")
]
Label = Annotated[str | None, typer.Option(help="Column with the labels.")]
Missing = Annotated[
    list[str] | None, typer.Option(help="Text that stands for no label; repeatable.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Do not keep embeddings.")]
Model = Annotated[Path, typer.Argument(help="Folder of the model: OUT/model of a run.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


def purify(
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(help="Folder of class folders, .csv, .tsv, .parquet or .npz."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the results.")] = None,
    image: Image = None,
    text: Text = None,
    features: Features = None,
    label: Label = None,
    missing: Missing = None,
    min_confidence: Annotated[
        float, typer.Option(help="How sure a relabel must be, 0 to 1; 0: the likeliest class.")
    ] = 0.0,
    mode: Annotated[
        str, typer.Option(help="features: embed, then train small nets. end-to-end: train a CNN.")
    ] = "features",
    embedder: Annotated[
        str,
        typer.Option(help="auto, efficientnet_lite0, minilm, hf:NAME or a model's folder."),
    ] = "auto",
    size: Annotated[int | None, typer.Option(min=8, help="Side of the images in pixels.")] = None,
    method: Annotated[str, typer.Option(help="See: colafier methods.")] = "colafier",
    net: Annotated[str | None, typer.Option(help="Net to train, such as resnet18.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1)] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    write: Annotated[
        str | None,
        typer.Option(
            help="Also write the data set with purified labels: folder, csv, parquet or npz."
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder.", metavar="OUT")
    ] = None,
    overwrite: Overwrite = False,
    no_cache: NoCache = False,
) -> None:
    """Purify the labels of any data set: a model, purified labels and a ranked list come out.

    - `colafier purify photos -o out` (photos/cat/1.jpg, photos/dog/2.jpg ...)
    - `colafier purify reviews.csv --text review --label stars -o out`
    - `colafier purify customers.csv --label churned -o out` (all other columns are features)
    - `colafier purify embeddings.npz -o out` (arrays features and labels)
    - `colafier purify photos -o out --min-confidence 0.95 --write folder`
    - `colafier purify --resume out`

    Kind and columns are detected and shown. The source is never changed. OUT/labels.csv has every
    row in input order: original_label, label, action (keep, relabel, review, exclude),
    label_quality and why; OUT/report.html explains it and takes your decisions; OUT/model is the
    classifier; OUT/summary.json says how many labels are wrong.
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
                raise ValueError("give what to purify and where to: colafier purify SOURCE -o OUT")
            folder = out
            options = pipeline.Options(
                source=source, image=image, text=text, label=label, mode=mode, embedder=embedder,
                size=size, method=method, net=net, epochs=epochs, seed=seed, write=write,
                min_confidence=min_confidence, cache=not no_cache,
                features=tuple(features) if features else None,
                missing=("", *(missing or ())),
            )  # fmt: skip
    with (
        mistakes_explained(),  # a checkpoint that does not fit is a ValueError, too
        interruptible(f"go on with: colafier purify --resume {folder}"),
    ):
        outcome = pipeline.purify(
            options, folder, resume=resume is not None, overwrite=overwrite, say=_say
        )
    console.print(_overview(outcome.summary))
    _show_first(pipeline.ranked(outcome.table))
    _say(f"All rows are in {folder / LABELS}, the model is in {folder / MODEL}.")
    _say(f"Next: open {folder / page.NAME} in a browser, look, and decide.")


def predict(
    model: Model,
    new: Annotated[Path, typer.Argument(help="New rows, of the kind that it was trained on.")],
    out: Out = Path("predictions.csv"),
    image: Image = None,
    text: Text = None,
    features: Features = None,
    overwrite: Overwrite = False,
    no_cache: NoCache = False,
) -> None:
    """Classify new rows with the model of an earlier run.

    - `colafier predict out/model new_photos -o predictions.csv`
    - `colafier predict out/model new.csv --text review -o predictions.csv`
    """
    from colafier.workflows import serve

    with mistakes_explained(), interruptible("nothing was written"):
        _free(out, overwrite, new)
        columns = serve.Columns(image, text, tuple(features) if features else None)
        lines = serve.predict(model, new, columns, cache=not no_cache)
        _save(lines, out)
    _say(f"{len(lines):,} rows are in {out}.")


def check(
    model: Model,
    new: Annotated[Path, typer.Argument(help="New labeled rows.")],
    fail_above: Annotated[
        float, typer.Option(min=0, max=1, help="Share of wrong labels that is too much.")
    ] = 0.05,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File for the table of all rows.")
    ] = None,
    image: Image = None,
    text: Text = None,
    features: Features = None,
    label: Label = None,
    missing: Missing = None,
    overwrite: Overwrite = False,
    no_cache: NoCache = False,
) -> None:
    """Audit new labels with an existing model; exit code 1 if too many are wrong.

    - `colafier check out/model delivery.csv --label label --fail-above 0.05 -o audit.csv`

    It also fails if too many rows have a class that the model does not know.
    """
    from colafier.workflows import serve

    with mistakes_explained(), interruptible("nothing was written"):
        if out is not None:
            _free(out, overwrite, new)
        columns = serve.Columns(
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
    onnx: Annotated[bool, typer.Option("--onnx", help="The format; there is one so far.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File; by default MODEL/model.onnx.")
    ] = None,
    rows: Annotated[
        Path | None, typer.Option(help="Rows to compare on; by default those of the run.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write a model for other programs, compared with torch on real rows.

    - `colafier export out/model --onnx`
    - `colafier export out/model --onnx --rows new.csv -o classifier.onnx`
    """
    from colafier.workflows import serve

    path = out or model / "model.onnx"
    with mistakes_explained((*MENDABLE, RuntimeError)):  # of a file that differs from torch
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
    """A run goes on as it was started, so nothing else may be given."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name != option and source is not None and source.name == "COMMANDLINE":
            word = "SOURCE" if name == "source" else "--" + name.replace("_", "-")
            raise ValueError(f"--{option} OUT goes alone, without {word}: all is as at the start")


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
        "labels that are wrong, estimated",
        f"{summary['estimated_noise_rate']:.1%} ({low:.1%} to {high:.1%})",
    )
    for action, count in summary["actions"].items():
        shown.add_row(action, f"{count:,}")
    shown.add_row("expected: wrong labels fixed", f"{summary['expected_fixed']:,}")
    shown.add_row("expected: clean labels broken", f"{summary['expected_broken']:,}")
    if summary["accuracy_on_unseen_observed_labels"] is not None:
        shown.add_row(
            "observed labels met on unseen rows",
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
