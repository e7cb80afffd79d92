"""The pipeline: a labeled data set in; a model, purified labels and a ranked list out."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import ceil
from pathlib import Path
from typing import Any

import pandas as pd

from colafier import embed, methods
from colafier._io import write_json
from colafier._validation import checked
from colafier.audit import pipeline
from colafier.audit.policy import KEEP, MIN_CONFIDENCE
from colafier.embed import encode
from colafier.embed.encode import EncodedData
from colafier.ingest.read import Dataset, read
from colafier.ingest.write_back import check_form
from colafier.nets import net_factory
from colafier.review.decisions import Decided
from colafier.training import checkpoint
from colafier.workflows import outputs, run_dir
from colafier.workflows.labeled_data import with_labels
from colafier.workflows.run_dir import CONFIG

MODES = ("features", "end-to-end")
CONTINUED_EPOCHS = 0.5  # of a run, when it is trained on with what a person decided

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
    mode: str = "features"
    embedder: str = "auto"
    size: int | None = None
    method: str = "colafier"
    net: str | None = None
    epochs: int | None = None
    min_confidence: float = MIN_CONFIDENCE
    seed: int = 0
    write: str | None = None
    cache: bool = True

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.mode not in MODES:
            raise ValueError(f"no lane {self.mode!r}; there are {' and '.join(MODES)}")
        if not 0 <= self.min_confidence <= 1:
            raise ValueError(f"min_confidence must be from 0 to 1, not {self.min_confidence}")


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
    dataset = read_source(options)
    say(dataset.describe())
    run_dir.check(out, dataset, resume=resume, overwrite=overwrite)
    methods.find(options.method)
    if options.write:
        check_form(dataset, options.write)
    config: dict[str, Any] = {"options": asdict(options), "fingerprint": dataset.fingerprint()}
    if decided is not None:
        config["decided"] = decided.digest()
    run_dir.check_decided(out, config, resume=resume)
    with run_dir.claimed(out, config):
        rows = _encode(dataset, options, out, progress)
        say(_about_rows(rows))
        data = with_labels(dataset, rows, decided)
        how, start = _recipe(options, rows, len(data.classes)), None
        if earlier is not None:
            how, start = _going_on(how, earlier, out if resume else None, data.classes, say)
    try:
        if not resume:
            run_dir.clear(out)
        write_json(out / CONFIG, config)
        judged = pipeline.judge(
            rows.x,
            data.observed,
            len(data.classes),
            how,
            trusted=data.trusted,
            original=data.original,
            groups=data.groups,
            folder=out,
            resume=resume,
            earlier=start,
            progress=progress,
        )
        lines = outputs.table_of(data, judged)
        if decided is not None:
            lines = decided.pin(lines)
        summary = outputs.summarize(data, judged, lines)
        outputs.write(out, config, data, how, judged, lines, summary, form=options.write)
    except OSError as error:  # such as a full disk
        advice = f"when this is mended, go on with: {again or f'colafier purify --resume {out}'}"
        raise OSError(f"{error}; {advice}") from error
    return Outcome(lines, summary)


def read_source(options: Options) -> Dataset:
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
    stored = run_dir.read_config(out)["options"]
    try:
        known = {field.name: field.type for field in fields(Options)}
        return Options(**checked(stored, known, "option"))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{out / CONFIG} does not hold the options of a run: {error}") from error


def _encode(dataset: Dataset, options: Options, work: Path, progress: bool) -> EncodedData:
    return encode.encode(
        dataset,
        mode=options.mode,
        embedder=options.embedder,
        size=options.size,
        cache=embed.default_folder() if options.cache else None,
        work=work,
        progress=progress,
    )


def _recipe(options: Options, rows: EncodedData, num_classes: int) -> pipeline.TrainConfig:
    chosen = {
        "method": options.method,
        "seed": options.seed,
        "min_confidence": options.min_confidence,
    }
    shape = tuple(rows.x.shape[1:])
    how = pipeline.recipe(shape, len(rows.x), **chosen, net=options.net, epochs=options.epochs)
    net_factory(how.net, shape, num_classes)  # a name that is wrong shows up here
    return how


def _going_on(
    how: pipeline.TrainConfig, earlier: Path, resumed: Path | None, classes: Sequence[str], say: Say
) -> tuple[pipeline.TrainConfig, Path | None]:
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
    if not methods.find(how.method).can_warm_start:
        say(f"{how.method} cannot be trained on: training starts anew")
    elif not start.exists():
        say(f"{start} is gone: training starts anew")
    elif run_dir.read_config(earlier).get("classes") != list(classes):
        say("the classes are not those of before: training starts anew")
    else:
        more = ceil(CONTINUED_EPOCHS * how.epochs)
        return replace(how, epochs=checkpoint.epochs_done(start) + more), start
    return how, None


def _about_rows(rows: EncodedData) -> str:
    said = f"{len(rows.rows):,} rows as {' x '.join(map(str, rows.x.shape[1:]))} numbers"
    if "embedder" in rows.input:
        said += f", embedded by {rows.input['embedder']}"
    if rows.problems:
        first = next(iter(rows.problems.items()))
        said += f"; {len(rows.problems):,} cannot be used, such as row {first[0]}: {first[1]}"
    return said


def ranked(lines: pd.DataFrame) -> pd.DataFrame:
    """The rows that a person should look at, most doubtful first."""
    return lines[lines["action"] != KEEP].sort_values("label_quality", kind="stable")
