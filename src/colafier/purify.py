"""The pipeline: a labelled data set in; a model, purified labels and a ranked list out."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from colafier import embed, fitting, methods, numbers, run_folder
from colafier.audit import evidence, report
from colafier.audit.actions import EXCLUDE, KEEP, PRECISION
from colafier.audit.decisions import Decided
from colafier.audit.snippets import of_collection
from colafier.audit.table import table, with_unusable
from colafier.data.collection import Collection, read
from colafier.data.write_back import check_form, write_back
from colafier.files import whole
from colafier.kinds import checked
from colafier.model_store import StoredModel, save
from colafier.nets import net_factory
from colafier.numbers import Numbers
from colafier.run_folder import CONFIG, DATA, LABELS, MODEL, SUMMARY
from colafier.train import checkpoint, records

LANES = ("frozen", "scratch")
MORE_EPOCHS = 0.5  # of a run, when it is trained on with what a person decided

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
        if not 0 <= self.precision <= 1:
            raise ValueError(f"precision must be from 0 to 1, not {self.precision}")


@dataclass(frozen=True)
class Outcome:
    """What a run gives."""

    table: pd.DataFrame
    summary: dict[str, Any]


def purify(
    options: Options,
    out: Path,
    *,
    decided: Decided | None = None,
    earlier: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    again: str | None = None,
    progress: bool = True,
    say: Say = lambda _: None,
) -> Outcome:
    """Read, embed, train, audit, write.

    Args:
        options: What to do.
        out: Folder for all outputs; a new one, unless `resume` or `overwrite`.
        decided: Rows whose label a person decided: learned from as such, and never changed.
        earlier: Folder of the run after which they were decided, to train on from its checkpoint.
        resume: Go on with the run in `out`.
        overwrite: Remove an older run in `out` first.
        again: The command that goes on with this run, for advice.
        progress: Whether a terminal shows bars.
        say: Gets a line of text at each stage.
    """
    options = replace(options, source=os.path.abspath(options.source))
    collection = read_source(options)
    say(collection.describe())
    run_folder.check(out, collection, resume=resume, overwrite=overwrite)
    methods.find(options.method)
    if options.write:
        check_form(collection, options.write)
    config: dict[str, Any] = {"options": asdict(options), "fingerprint": collection.fingerprint()}
    told = collection
    if decided is not None:
        told, config["decided"] = decided.told(collection), decided.digest()
    run_folder.check_decided(out, config, resume=resume)
    with run_folder.claimed(out, config):
        rows = _encode(collection, options, out, progress)
        say(_about_rows(rows))
        classes = _classes(told, rows)
        given, came = (
            _as_numbers([labels[row] for row in rows.rows], classes)
            for labels in (told.given, collection.given)
        )
        trusted = None if decided is None else decided.trusted(rows.rows)
        how = _recipe(options, rows, len(classes))
        start = None
        if earlier is not None:
            how, start = _going_on(how, earlier, out if resume else None, classes, say)
    try:
        if not resume:
            run_folder.clear(out)
        records.rewrite(out / CONFIG, [config])
        judged = fitting.judge(
            rows.x,
            given,
            len(classes),
            how,
            trusted=trusted,
            came=None if decided is None else came,
            groups=torch.tensor(collection.duplicates())[rows.rows],
            folder=out,
            resume=resume,
            earlier=start,
            progress=progress,
        )
        lines = _table(collection, rows, classes, given, judged)
        if decided is not None:
            lines = decided.pin(lines)
        summary = summarize(collection, rows, given, judged, lines, trusted)
        _write(out, config, options, collection, rows, classes, given, how, judged, lines, summary)
    except OSError as error:  # such as a full disk
        advice = f"when this is mended, go on with: {again or f'colafier purify --resume {out}'}"
        raise OSError(f"{error}; {advice}") from error
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
    stored = run_folder.read_config(out)["options"]
    try:
        known = {field.name: field.type for field in fields(Options)}
        return Options(**checked(stored, known, "option"))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{out / CONFIG} does not hold the options of a run: {error}") from error


def summarize(
    collection: Collection,
    rows: Numbers,
    given: Tensor,
    judged: fitting.Judged,
    lines: pd.DataFrame,
    trusted: Tensor | None = None,
) -> dict[str, Any]:
    """What a person wants to know first, and what a later check compares with."""
    found = judged.found
    actions = lines["action"].value_counts()
    labelled = int((given >= 0).sum())
    reviewed = 0 if trusted is None else int(trusted.sum())  # the rate is that of the others
    return {
        "fingerprint": collection.fingerprint(),
        "rows": len(collection),
        "labelled": labelled,
        "trusted": reviewed,
        "unusable": len(rows.problems),
        "classes": judged.p.shape[1],
        "estimated_noise_rate": round(found.rate, 4),
        "estimated_noise_interval": [round(bound, 4) for bound in found.interval],
        "estimated_wrong_labels": round(found.rate * (labelled - reviewed)),
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


def _encode(collection: Collection, options: Options, work: Path, progress: bool) -> Numbers:
    return numbers.encode(
        collection,
        lane=options.lane,
        embedder=options.embedder,
        size=options.size,
        cache=embed.default_folder() if options.cache else None,
        work=work,
        progress=progress,
    )


def _classes(collection: Collection, rows: Numbers) -> list[str]:
    """Those of the usable rows; of others nothing can be learned."""
    there = {collection.given[row] for row in rows.rows}
    classes = [name for name in collection.classes if name in there]
    if len(classes) < 2:
        raise ValueError("the labels of all usable rows are of one class: nothing to learn")
    return classes


def _as_numbers(labels: Sequence[str | None], classes: Sequence[str]) -> Tensor:
    """-1 where there is no label, or one of a class that no usable row has any more."""
    place: dict[str | None, int] = {name: number for number, name in enumerate(classes)}
    return torch.tensor([place.get(label, -1) for label in labels])


def _recipe(options: Options, rows: Numbers, num_classes: int) -> fitting.Recipe:
    chosen = {"method": options.method, "seed": options.seed, "precision": options.precision}
    shape = tuple(rows.x.shape[1:])
    how = fitting.recipe(shape, len(rows.x), **chosen, net=options.net, epochs=options.epochs)
    net_factory(how.net, shape, num_classes)  # a name that is wrong shows up here
    return how


def _going_on(
    how: fitting.Recipe, earlier: Path, resumed: Path | None, classes: Sequence[str], say: Say
) -> tuple[fitting.Recipe, Path | None]:
    """The recipe of a run that is trained on, and the checkpoint that it begins with, if any.

    Args:
        how: The recipe of a whole run.
        earlier: Folder of the run to train on from.
        resumed: Folder of this run, if it was begun before: then its own checkpoint counts.
        classes: Those of now.
        say: Is told why training starts anew, if it must.
    """
    if resumed is not None and (resumed / checkpoint.NAME).exists():
        return replace(how, epochs=checkpoint.epochs_planned(resumed / checkpoint.NAME)), None
    start = earlier / checkpoint.NAME
    if not methods.find(how.method).goes_on:
        say(f"{how.method} cannot be trained on: training starts anew")
    elif not start.exists():
        say(f"{start} is gone: training starts anew")
    elif run_folder.read_config(earlier).get("classes") != list(classes):
        say("the classes are not those of before: training starts anew")
    else:
        more = ceil(MORE_EPOCHS * how.epochs)
        return replace(how, epochs=checkpoint.epochs_done(start) + more), start
    return how, None


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


def _write(
    out: Path,
    config: dict[str, Any],
    options: Options,
    collection: Collection,
    rows: Numbers,
    classes: Sequence[str],
    given: Tensor,
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
        run_folder.remove_data(out)
        keep = np.asarray(lines["action"] != EXCLUDE).tolist()
        labels = [None if pd.isna(label) else str(label) for label in lines["label"]]
        write_back(collection, labels, keep, out / DATA, options.write, link=True)
    recipe = {**asdict(how), "hyper": dict(how.hyper)}
    records.rewrite(out / CONFIG, [{**config, "classes": list(classes), "recipe": recipe}])
    known = judged.known(classes, rows.rows, rows.x, given)
    why = evidence.gather(known, evidence.doubtful(lines), of_collection(collection))
    evidence.write(out, why)
    report.write(out, summary)
    (out / numbers.PIXELS).unlink(missing_ok=True)
    run_folder.remove_partial(out)
    records.rewrite(out / SUMMARY, [summary])


def ranked(lines: pd.DataFrame) -> pd.DataFrame:
    """The rows that a person should look at, most doubtful first."""
    return lines[lines["action"] != KEEP].sort_values("label_quality", kind="stable")
