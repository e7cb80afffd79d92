"""Which column of a table is what: the label, and the images, texts or features."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from colafier.ingest.dataset import counted, listed
from colafier.ingest.image_files import looks_like_image
from colafier.ingest.table_files import Table, is_missing

LABEL_NAMES = ("label", "labels", "class", "target", "y", "category")
IMAGE_NAMES = ("image", "file_name", "path", "file", "filepath", "image_path")
TEXT_NAMES = ("text", "sentence", "review", "content", "message")
ID_NAMES = ("id", "index", "row", "", "__index_level_0__")
SAMPLE = 200  # cells of a column that are looked at
LONG = 20  # mean number of characters from which cells are texts rather than categories


@dataclass(frozen=True)
class ReadOptions:
    """Which columns or arrays the user named; None is detected."""

    image: str | None = None
    text: str | None = None
    features: tuple[str, ...] | None = None
    label: str | None = None
    missing: tuple[str, ...] = ("",)
    labeled: bool = True

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.image, self.text, self.features)) > 1:
            raise ValueError("name columns for one of image, text and features, not for several")
        if self.features is not None and not self.features:
            raise ValueError("features names no column; leave it out to use all")


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are for."""

    kind: str
    items: tuple[str, ...]
    label: str | None
    notes: tuple[str, ...] = ()


def roles_of(table: Table, wanted: ReadOptions) -> Roles:
    """What the columns are for; by their names and values where the user did not name them."""
    label = label_column(table, wanted)
    rest = [name for name in table.frame.columns if name != label]
    for kind, name in (("image", wanted.image), ("text", wanted.text)):
        if name is not None:
            return _single(kind, require(table, name, kind), label, rest)
    if wanted.features is not None:
        features = tuple(require(table, name, "feature") for name in wanted.features)
        if label in features:
            raise ValueError(f"column {label!r} is the label and cannot be a feature as well")
        if nested := [name for name in features if _is_nested(table.frame[name])]:
            raise ValueError(
                f"column {nested[0]!r} holds lists, pairs or bytes, not numbers or categories; "
                "save embeddings as an .npz file, and name images with image"
            )
        return Roles("table", features, label)
    if (image := _image_column(table, rest)) is not None:
        return _single("image", image, label, rest)
    plain = [name for name in rest if not _is_nested(table.frame[name])]
    values = table.values(plain)
    if (text := _text_column(values)) is not None:
        return _single("text", text, label, rest)
    return _features(table, values, label, rest)


def label_column(table: Table, wanted: ReadOptions) -> str | None:
    """The label column; None only if there is none and none is needed."""
    if wanted.label is not None:
        return require(table, wanted.label, "label")
    taken = {wanted.image, wanted.text, *(wanted.features or ())}
    free = [name for name in table.frame.columns if name not in taken]
    found = _by_name(free, LABEL_NAMES)
    if not found and wanted.labeled:
        raise ValueError(
            f"{table.path}: which column is the label? None is called "
            f"{', '.join(LABEL_NAMES)}; the columns are {_quoted(table.frame.columns)}"
        )
    return found[0] if found else None


def require(table: Table, name: str, what: str) -> str:
    """The name of a column, which must exist."""
    columns = [str(column) for column in table.frame.columns]
    if name in columns:
        return name
    lower = {column.strip().lower(): column for column in columns}
    near = difflib.get_close_matches(name.strip().lower(), lower, n=1)
    hint = f"did you mean {lower[near[0]]!r}? " if near else ""
    raise ValueError(
        f"{table.path} has no {what} column {name!r}; {hint}The columns are {_quoted(columns)}"
    )


def labels_of(frame: pd.DataFrame, column: str | None, missing: Sequence[str]) -> list[str | None]:
    """The labels of a column as texts; None for empty cells and for texts in `missing`.

    Without a label column no row has a label.
    """
    if column is None:
        return [None] * len(frame)
    return [_label(cell, column, missing) for cell in frame[column]]


def _label(cell: Any, column: str, missing: Sequence[str]) -> str | None:
    if is_missing(cell):
        return None
    if isinstance(cell, dict | list | tuple | bytes):
        raise ValueError(
            f"column {column!r} holds {type(cell).__name__} values: one label per row is needed"
        )
    # whole numbers with gaps are stored as floats by many tools
    text = str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
    return None if not text.strip() or text in missing else text


def _by_name(columns: Iterable[str], names: Sequence[str]) -> list[str]:
    """The columns with one of these names, in the order of the names."""
    known = [column for column in columns if column.strip().lower() in names]
    return sorted(known, key=lambda column: names.index(column.strip().lower()))


def _quoted(names: Iterable[str]) -> str:
    return listed([repr(name) for name in names], limit=40)


def _single(kind: str, name: str, label: str | None, rest: list[str]) -> Roles:
    if name == label:
        raise ValueError(f"column {name!r} is the label and cannot be the {kind} as well")
    unused = [column for column in rest if column != name]
    notes = (f"columns not used: {listed(unused)}",) if unused else ()
    return Roles(kind, (name,), label, notes)


def _sample(cells: pd.Series) -> list[Any]:
    """The first cells that have a value."""
    found = []
    for cell in cells:
        if not is_missing(cell) and cell != "":
            found.append(cell)
            if len(found) == SAMPLE:
                break
    return found


def _is_nested(cells: pd.Series) -> bool:
    return any(isinstance(cell, dict | list | bytes) for cell in _sample(cells))


def _is_text(cells: pd.Series) -> bool:
    sample = _sample(cells)
    return bool(sample) and all(isinstance(cell, str) for cell in sample)


def _image_column(table: Table, columns: list[str]) -> str | None:
    """A column of image paths with a usual name, or of bytes or pairs with any name."""
    named = _by_name(columns, IMAGE_NAMES)
    for name in [*named, *(column for column in columns if column not in named)]:
        sample = _sample(table.frame[name])
        if name not in named:
            sample = [cell for cell in sample if not isinstance(cell, str)]
        if sample and sum(map(looks_like_image, sample)) * 2 >= len(sample):
            return name
    return None


def _text_column(values: pd.DataFrame) -> str | None:
    """A text column with a usual name, or the only one if its texts are long and varied."""
    texts = [name for name in values.columns if _is_text(values[name])]
    named = _by_name(texts, TEXT_NAMES)
    if named:
        return named[0]
    if len(texts) != 1:
        return None
    cells = values[texts[0]].dropna()
    long = cells.str.len().mean() >= LONG and cells.str.count(r"\s").mean() >= 2
    return texts[0] if long and cells.nunique() * 2 > len(cells) else None


def _features(table: Table, values: pd.DataFrame, label: str | None, rest: list[str]) -> Roles:
    """All columns that can be features; the notes list the others, with the reason."""
    out: dict[str, list[str]] = {}
    for name in rest:
        if name not in values.columns:
            out.setdefault("lists, pairs or bytes", []).append(name)
        elif values[name].isna().all():
            out.setdefault("empty", []).append(name)
        elif _is_id(name, values[name]):
            out.setdefault("an id of the row", []).append(name)
    lost = {name for names in out.values() for name in names}
    features = tuple(name for name in rest if name not in lost)
    notes = tuple(
        f"{counted(len(names), 'column')} left out as {why}: {_quoted(names)}"
        for why, names in out.items()
    )
    if not features:
        raise ValueError(
            f"{table.path}: no column is left to learn from; the columns are "
            f"{_quoted(table.frame.columns)}. {'; '.join(notes) or 'All are labels'}. "
            "Name them with image, text or features"
        )
    return Roles("table", features, label, notes)


def _is_id(name: str, cells: pd.Series) -> bool:
    """Whether all values differ, and are texts, or whole numbers in a column named like an id."""
    filled = cells.dropna()
    if len(filled) < 2 or not filled.is_unique:
        return False
    plain = name.strip().lower()
    named = plain in ID_NAMES or plain.endswith("_id") or plain.startswith("unnamed:")
    return _is_text(cells) or (named and pd.api.types.is_integer_dtype(cells))
