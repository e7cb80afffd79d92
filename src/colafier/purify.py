"""The pipeline: a labelled data set in; a model, purified labels and a ranked list out."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from colafier import embed, fitting, numbers
from colafier.audit.actions import EXCLUDE, KEEP, PRECISION
from colafier.audit.table import table, with_unusable
from colafier.data.collection import Collection, read
from colafier.data.write_back import write_back
from colafier.files import whole
from colafier.kinds import checked
from colafier.model_store import StoredModel, save
from colafier.numbers import Numbers
from colafier.train import checkpoint, records
from colafier.train.trainer import METRICS

LABELS, CONFIG, SUMMARY, MODEL, DATA = (
    "labels.csv",
    "config.json",
    "summary.json",
    "model",
    "purified",
)
FILES = (LABELS, CONFIG, SUMMARY, METRICS, checkpoint.NAME, numbers.PIXELS)
LANES = ("frozen", "scratch")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What is asked for; None is decided by what is found."""

    source: str
    image: str | None = None
    text: str | None = None
    features: tuple[str, ...] | None = None
    label: str | None = None
    missing: tuple[str, ...] = ("",)
    lane: str = "frozen"
    embedder: str = "auto"
    size: int | None = None
    method: str = "colafier"
    net: str | None = None
    epochs: int | None = None
    precision: float = PRECISION
    seed: int = 0
    write: str | None = None
    cache: bool = True

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.lane not in LANES:
            raise ValueError(f"no lane {self.lane!r}; there are {' and '.join(LANES)}")
        if not 0.5 <= self.precision <= 1:
            raise ValueError(f"precision must be from 0.5 to 1, not {self.precision}")


@dataclass(frozen=True)
class Outcome:
    """What a run gives."""

    table: pd.DataFrame
    summary: dict[str, Any]


def purify(
    options: Options,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    say: Say = lambda _: None,
) -> Outcome:
    """Read, embed, train, audit, write.

    Args:
        options: What to do.
        out: Folder for all outputs; a new one, unless `resume` or `overwrite`.
        resume: Go on with the run in `out`.
        overwrite: Remove an older run in `out` first.
        progress: Whether a terminal shows bars.
        say: Gets a line of text at each stage.
    """
    collection = read_source(options)
    say(collection.describe())
    _claim(out, options, resume=resume, overwrite=overwrite)
    cache = embed.default_folder() if options.cache else None
    rows = numbers.encode(
        collection,
        lane=options.lane,
        embedder=options.embedder,
        size=options.size,
        cache=cache,
        work=out,
        progress=progress,
    )
    say(_about_rows(rows))
    classes = collection.classes
    given = _as_numbers([collection.given[row] for row in rows.rows], classes)
    chosen = {"method": options.method, "seed": options.seed, "precision": options.precision}
    how = fitting.recipe(
        tuple(rows.x.shape[1:]), len(given), **chosen, net=options.net, epochs=options.epochs
    )
    groups = torch.tensor(collection.duplicates())[rows.rows]
    judged = fitting.judge(
        rows.x,
        given,
        len(classes),
        how,
        groups=groups,
        folder=out,
        resume=resume,
        progress=progress,
    )
    lines = _table(collection, rows, classes, given, judged)
    summary = summarize(collection, rows, given, judged, lines)
    _write(out, options, collection, rows, classes, how, judged, lines, summary)
    return Outcome(lines, summary)


def read_source(options: Options) -> Collection:
    """The data set that the options name."""
    return read(
        Path(options.source),
        image=options.image,
        text=options.text,
        features=options.features,
        label=options.label,
        missing=options.missing,
    )


def options_of(out: Path) -> Options:
    """The options that the run in a folder was started with."""
    path = out / CONFIG
    if not path.exists():
        raise FileNotFoundError(f"there is no run to resume in {out}: it has no {CONFIG}")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))["options"]
        known = {field.name: field.type for field in fields(Options)}
        return Options(**checked(stored, known, "option"))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold the options of a run: {error}") from error


def summarize(
    collection: Collection,
    rows: Numbers,
    given: Tensor,
    judged: fitting.Judged,
    lines: pd.DataFrame,
) -> dict[str, Any]:
    """What a person wants to know first, and what a later check compares with."""
    found = judged.found
    actions = lines["action"].value_counts()
    labelled = int((given >= 0).sum())
    return {
        "fingerprint": collection.fingerprint(),
        "rows": len(collection),
        "labelled": labelled,
        "unusable": len(rows.problems),
        "classes": len(collection.classes),
        "estimated_noise_rate": round(found.rate, 4),
        "estimated_noise_interval": [round(bound, 4) for bound in found.interval],
        "estimated_wrong_labels": round(found.rate * labelled),
        "actions": {str(name): int(count) for name, count in actions.items()},
        **{
            name: round(value)
            for name, value in judged.decided.expected(given, found.quality).items()
        },
        "accuracy_on_unseen_given_labels": _rounded(judged.agreement),
        "implied_accuracy": _rounded(_implied(judged.agreement, found.rate)),
        "input": rows.input,
    }


def _implied(agreement: float | None, rate: float) -> float | None:
    """Accuracy on the truth, if errors of classifier and labels were independent: a floor."""
    return None if agreement is None else min(agreement / max(1 - rate, 1e-6), 1.0)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _as_numbers(labels: Sequence[str | None], classes: Sequence[str]) -> Tensor:
    place = {name: number for number, name in enumerate(classes)}
    given = torch.tensor([-1 if label is None else place[label] for label in labels])
    if len(set(given.tolist()) - {-1}) < 2:
        raise ValueError("the labels of all usable rows are of one class: nothing to learn")
    return given


def _about_rows(rows: Numbers) -> str:
    said = f"{len(rows.rows):,} rows as {' x '.join(map(str, rows.x.shape[1:]))} numbers"
    if "embedder" in rows.input:
        said += f", embedded by {rows.input['embedder']}"
    if rows.problems:
        first = next(iter(rows.problems.items()))
        said += f"; {len(rows.problems):,} cannot be used, such as row {first[0]}: {first[1]}"
    return said


def _table(
    collection: Collection,
    rows: Numbers,
    classes: Sequence[str],
    given: Tensor,
    judged: fitting.Judged,
) -> pd.DataFrame:
    """All rows in input order, also those that could not be used."""
    found = table(
        classes, given, judged.p.argmax(1), judged.found.quality, judged.decided, judged.lid
    )
    lines = with_unusable(found, rows.rows, rows.problems, collection.given)
    lines.insert(0, "row", range(len(lines)))
    lines.insert(1, "name", collection.names)
    return lines


def _claim(out: Path, options: Options, *, resume: bool, overwrite: bool) -> None:
    """Make the folder of the run, and say in it what was asked for."""
    if out.exists() and not out.is_dir():
        raise FileExistsError(f"{out} is a file; give another folder")
    if out.exists() and any(out.iterdir()) and not resume:
        if not overwrite:
            raise FileExistsError(
                f"{out} exists; give --resume to go on with it, --overwrite to start over, or "
                "another folder"
            )
        if not (out / CONFIG).exists():
            raise FileExistsError(f"{out} is not the folder of a run, and is left alone")
        for name in FILES:
            (out / name).unlink(missing_ok=True)
        shutil.rmtree(out / MODEL, ignore_errors=True)
        _remove_data(out)
    out.mkdir(parents=True, exist_ok=True)
    records.rewrite(out / CONFIG, [{"options": asdict(options)}])


def _write(
    out: Path,
    options: Options,
    collection: Collection,
    rows: Numbers,
    classes: Sequence[str],
    how: fitting.Recipe,
    judged: fitting.Judged,
    lines: pd.DataFrame,
    summary: dict[str, Any],
) -> None:
    """All files of a run; each appears whole or not at all, the summary last."""
    with whole(out / LABELS) as path:
        lines.to_csv(path, index=False, float_format="%.6g")
    model = StoredModel(
        classifier=judged.classifier,
        normalize=judged.normalize,
        classes=tuple(classes),
        row_shape=tuple(rows.x.shape[1:]),
        input=rows.input,
        method=how.method,
        hyper=dict(how.hyper),
        net=str(how.net),
        epochs=how.epochs,
        about={k: v for k, v in summary.items() if k != "input"},
    )
    shutil.rmtree(out / MODEL, ignore_errors=True)
    save(model, out / MODEL, files=rows.files)
    if options.write:
        _remove_data(out)
        keep = np.asarray(lines["action"] != EXCLUDE).tolist()
        labels = [None if pd.isna(label) else str(label) for label in lines["label"]]
        write_back(collection, labels, keep, out / DATA, options.write, link=True)
    recipe = {**asdict(how), "hyper": dict(how.hyper)}
    records.rewrite(out / CONFIG, [{"options": asdict(options), "recipe": recipe}])
    (out / checkpoint.NAME).unlink(missing_ok=True)
    (out / numbers.PIXELS).unlink(missing_ok=True)
    records.rewrite(out / SUMMARY, [summary])


def _remove_data(out: Path) -> None:
    """The data set that an earlier run wrote back: a folder, or a file with an ending."""
    for path in (out / DATA, *out.glob(f"{DATA}.*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def ranked(lines: pd.DataFrame) -> pd.DataFrame:
    """The rows that a person should look at, most doubtful first."""
    return lines[lines["action"] != KEEP].sort_values("label_quality", kind="stable")
