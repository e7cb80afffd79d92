"""Purify a user's data set: read, encode, train, audit, and write labels, model and report."""

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Annotated, get_type_hints

import pandas as pd

from colafier import embed, methods
from colafier._surroundings import own_surroundings
from colafier._validation import Range, checked
from colafier.audit.config import AuditConfig
from colafier.audit.pipeline import configure, train_and_audit
from colafier.audit.policy import KEEP
from colafier.audit.strategies import FEATURES, MODES
from colafier.embed import encode
from colafier.embed.encode import EncodedData
from colafier.ingest.dataset import Dataset
from colafier.ingest.read import read
from colafier.ingest.write_back import check_form
from colafier.nets import net_factory
from colafier.review.decided import DecidedRows
from colafier.training import checkpoint
from colafier.training.config import MAX_EPOCHS, TrainConfig
from colafier.workflows import run_dir
from colafier.workflows.labeled_data import LabeledData, with_labels
from colafier.workflows.outputs import Outcome, Outputs
from colafier.workflows.run_dir import CONFIG, RunConfig

CONTINUED_EPOCHS = 0.5  # additional share of a run's epochs, for training with decisions

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """The options of a purify run; None: chosen by the data."""

    source: str
    image: str | None = None
    text: str | None = None
    features: tuple[str, ...] | None = None
    label: str | None = None
    missing: tuple[str, ...] = ("",)
    mode: str = FEATURES
    embedder: str = "auto"
    size: int | None = None
    method: str = TrainConfig.method
    net: str | None = None
    epochs: Annotated[int, Range(1, MAX_EPOCHS)] | None = None
    min_confidence: Annotated[float, Range(0, 1)] = AuditConfig.min_confidence
    seed: int = 0
    write: str | None = None
    cache: bool = True

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        checked(vars(self), get_type_hints(Options, include_extras=True), "option")
        if self.mode not in MODES:
            raise ValueError(f"no mode {self.mode!r}; there are {' and '.join(MODES)}")


@own_surroundings()
def purify(
    options: Options,
    out: Path,
    *,
    decided: DecidedRows | None = None,
    earlier: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    again: str | None = None,
    progress: bool = True,
    say: Say = lambda _: None,
) -> Outcome:
    """Purify a data set: read, encode, train, audit, and write the results.

    Args:
        options: The options of the run.
        out: Folder for all outputs; it must be new, unless `resume` or `overwrite` is set.
        decided: Rows whose label a person decided; these labels are never changed.
        earlier: Folder of the reviewed run, whose training is continued from its checkpoint.
        resume: Continue the run in `out`.
        overwrite: Remove an older run in `out` first.
        again: The command that continues this run, for error messages.
        progress: Whether to show progress bars in a terminal.
        say: Called with a line of text at each stage.
    """
    options = replace(options, source=os.path.abspath(options.source))
    dataset = read_source(options)
    say(dataset.describe())
    _check_apart(out, dataset)
    methods.find(options.method)
    if options.write:
        check_form(dataset, options.write)
    config = RunConfig(
        "purify",
        asdict(options),
        dataset.fingerprint(),
        None if decided is None else decided.digest(),
    )
    with run_dir.claimed(out, config, resume=resume, overwrite=overwrite, again=again) as claim:
        data = with_labels(dataset, _encode(dataset, options, out, progress), decided)
        say(_about_rows(data.rows))
        train, judge, start = _configured(options, data, earlier, out if resume else None, say)
        claim.start(classes=tuple(data.classes), train=train.to_dict(), audit=asdict(judge))
        result = train_and_audit(
            data.rows.x,
            data.labels,
            len(data.classes),
            train,
            judge,
            groups=data.groups,
            progress=progress,
            folder=out,
            resume=resume,
            warm_start=start,
        )
        return Outputs(data, train, result, decided, options.write).write(out)


def read_source(options: Options) -> Dataset:
    """Read the data set that the options name."""
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
    config = run_dir.read_config(out)
    if config.kind != "purify":
        raise ValueError(f"the run in {out} was made by colafier {config.kind}, not by purify")
    try:
        return Options(**checked(config.asked, get_type_hints(Options), "option"))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{out / CONFIG} does not hold the options of a run: {error}") from error


def _check_apart(out: Path, dataset: Dataset) -> None:
    """Refuse an output folder that overlaps with the source."""
    here, source = out.resolve(), dataset.source.resolve()
    if source.is_dir() and here.is_relative_to(source):
        raise ValueError(f"{out} is inside the source, which is never changed; choose another")
    items = dataset.items if isinstance(dataset.items, list) else []
    images = (item.absolute() for item in items if isinstance(item, Path))
    if source.is_relative_to(here) or any(path.is_relative_to(here) for path in images):
        raise ValueError(f"the source is in {out}, which is for the results; choose another folder")


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


def _configured(
    options: Options, data: LabeledData, earlier: Path | None, resumed: Path | None, say: Say
) -> tuple[TrainConfig, AuditConfig, Path | None]:
    """The configurations of training and audit, and the checkpoint to start from, if any."""
    asked = {name: getattr(options, name) for name in ("method", "net", "epochs", "seed")}
    judge = {"min_confidence": options.min_confidence}
    train, config = configure(data.row_shape, len(data.rows.x), asked, judge)
    chosen = methods.build(train.method, **train.hyper).run_defaults
    train = train.settled(chosen, data.row_shape)
    net_factory(train.net, data.row_shape, len(data.classes))  # refuses a wrong name
    if earlier is None:
        return train, config, None
    epochs, start = warm_start(train, earlier, resumed, data.classes, say)
    return replace(train, epochs=epochs), config, start


def warm_start(
    config: TrainConfig, earlier: Path, resumed: Path | None, classes: list[str], say: Say
) -> tuple[int, Path | None]:
    """Epochs of a run that continues an earlier one, and the checkpoint to start from, if any.

    Args:
        config: The training configuration of a whole run.
        earlier: Folder of the earlier run.
        resumed: Folder of this run, if it was started before; its own checkpoint then counts.
        classes: The classes of this run.
        say: Called with the reason if training has to start over.
    """
    if resumed is not None and (resumed / checkpoint.NAME).exists():
        return checkpoint.epochs_planned(resumed / checkpoint.NAME), None
    start = earlier / checkpoint.NAME
    if not methods.find(config.method).can_warm_start:
        say(f"{config.method} cannot be trained on: training starts over")
    elif not start.exists():
        say(f"{start} is gone: training starts over")
    elif list(run_dir.read_config(earlier).classes or ()) != classes:
        say("the classes are not those of before: training starts over")
    else:
        more = ceil(CONTINUED_EPOCHS * config.epochs)
        return checkpoint.epochs_done(start) + more, start
    return config.epochs, None


def _about_rows(rows: EncodedData) -> str:
    text = f"{len(rows.rows):,} rows as {' x '.join(map(str, rows.x.shape[1:]))} numbers"
    if "embedder" in rows.input:
        text += f", embedded by {rows.input['embedder']}"
    if rows.problems:
        first = next(iter(rows.problems.items()))
        text += f"; {len(rows.problems):,} cannot be used, such as row {first[0]}: {first[1]}"
    return text


def ranked(lines: pd.DataFrame) -> pd.DataFrame:
    """The rows that a person should review, the most doubtful first."""
    return lines[lines["action"] != KEEP].sort_values("label_quality", kind="stable")
