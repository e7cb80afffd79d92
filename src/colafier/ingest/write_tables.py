"""Tables and archives with new labels, in the types that the source had."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from colafier.ingest import table_files
from colafier.ingest.column_roles import ReadOptions
from colafier.ingest.dataset import Dataset
from colafier.ingest.npz_files import read_npz
from colafier.readers import arrays

ORIGINAL = "original_label"

LabelTexts = Sequence[str | None]


def relabeled(dataset: Dataset, labels: LabelTexts) -> pd.DataFrame:
    """The table that was read, with new labels, and with the original ones in a new column."""
    if dataset.frame is None:
        paths = [os.path.abspath(item) for item in dataset.items]
        cells = {"file_name": paths, "label": list(labels), ORIGINAL: dataset.original}
        return pd.DataFrame(cells, dtype=object)
    if dataset.label_column is None:
        raise ValueError(f"{dataset.source} was read without labels: there is none to replace")
    frame = dataset.frame.copy()
    old = frame[dataset.label_column]
    frame[free_name(ORIGINAL, frame.columns)] = old
    frame[dataset.label_column] = _replaced(old, dataset.original, labels)
    return frame


def free_name(name: str, taken: Sequence[str]) -> str:
    """The name, with a number if there is such a column already."""
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def with_absolute_paths(dataset: Dataset, frame: pd.DataFrame) -> pd.DataFrame:
    """The table with absolute image paths."""
    if dataset.frame is None or dataset.kind != "image":
        return frame
    column = dataset.item_columns[0]
    if not any(isinstance(item, Path) for item in dataset.items):
        return frame
    cells = frame[column].tolist()
    for row, item in enumerate(dataset.items):
        if isinstance(item, Path):
            path = os.path.abspath(item)
            cells[row] = {**cells[row], "path": path} if isinstance(cells[row], dict) else path
    return frame.assign(**{column: pd.Series(cells, dtype=frame[column].dtype)})


def check_csv(frame: pd.DataFrame) -> None:
    """Refuse a table with cells that CSV cannot hold."""
    for column in frame.columns:
        if any(isinstance(cell, dict | list | bytes) for cell in frame[column]):
            raise ValueError(
                f"column {column!r} holds lists, pairs or bytes, which CSV cannot; write parquet, "
                "or for images a folder"
            )


def save_csv(dataset: Dataset, frame: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV, with the separator, encoding and line ends of the source."""
    check_csv(frame)
    how = dataset.dialect
    with path.open("w", encoding=how.encoding, newline="") as file:
        frame.to_csv(file, sep=how.separator, index=False, lineterminator=how.line_end)


def save_json_lines(_: Dataset, frame: pd.DataFrame, path: Path) -> None:
    """Write a table as one JSON object per line."""
    with path.open("w", encoding="utf-8") as file:
        for record in frame.to_dict("records"):
            plain = {
                k: None if table_files.is_missing(cell) else cell for k, cell in record.items()
            }
            file.write(json.dumps(plain, ensure_ascii=False) + "\n")


def save_parquet(dataset: Dataset, frame: pd.DataFrame, path: Path) -> None:
    """Write a table as parquet; numbers of a CSV become numbers, its labels stay text."""
    arrow = table_files.pyarrow()
    extra = None
    origin = "" if dataset.table is None else dataset.table.suffix.lower()
    if origin in (".csv", ".tsv"):
        table = table_files.Table(path, "csv", frame, dataset.dialect)
        text = {dataset.label_column, frame.columns[-1]}
        text |= set() if dataset.kind == "table" else set(dataset.item_columns)
        frame = frame.assign(**table.values([c for c in frame.columns if c not in text]))
    elif origin in (".parquet", ".pq"):
        # says which columns are images and what class numbers stand for
        found = arrow.parquet.read_schema(dataset.table).metadata or {}
        extra = {key: value for key, value in found.items() if key == b"huggingface"}
    try:
        content = arrow.Table.from_pandas(frame, preserve_index=False)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        raise ValueError(f"cannot be written as parquet, use csv ({error})") from None
    arrow.parquet.write_table(content.replace_schema_metadata(extra), path)


class SourceChangedError(ValueError):
    """A file that is needed to write a data set back is not the one that was read."""


def save_npz(dataset: Dataset, labels: LabelTexts, rows: list[int], path: Path) -> None:
    """Write all arrays of an .npz source; of arrays with one entry per row only these rows."""
    if dataset.frame is None or dataset.label_column is None:
        raise ValueError(f"{dataset.source} was read without labels: there is none to replace")
    _check_unchanged(dataset)
    with arrays.opened(dataset.source) as archive:
        found = {name: archive.read(name) for name in archive.names}
    old = found[dataset.label_column]
    new = _replaced(dataset.frame[dataset.label_column], dataset.original, labels)
    is_text = old.dtype.kind in "SU"
    cells = ["" if table_files.is_missing(cell) else cell for cell in new] if is_text else new
    found[free_name(ORIGINAL, list(found))] = old
    found[dataset.label_column] = np.asarray(cells, dtype=str if is_text else old.dtype)
    n = len(dataset)
    cut = {k: a[rows] if a.ndim and len(a) == n else a for k, a in found.items()}
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **cut)


def _replaced(old: pd.Series, original: LabelTexts, labels: LabelTexts) -> pd.Series:
    """The column with new labels in its own type; cells whose label stays are not touched."""
    cells = old.tolist()
    empty = "" if isinstance(old.dtype, pd.StringDtype) else None
    known = {text: cell for text, cell in zip(original, cells, strict=True) if text is not None}
    for row, (before, label) in enumerate(zip(original, labels, strict=True)):
        if label is None and before is not None:
            cells[row] = empty
        elif label is not None and label != before:
            cells[row] = known[label] if label in known else _as_known(label, known)
    try:
        return pd.Series(cells, dtype=old.dtype)
    except (ValueError, TypeError) as error:
        raise ValueError(f"new labels do not fit column {old.name!r}: {error}") from None


def _as_known(label: str, known: dict[str, Any]) -> Any:
    """A label that is new to the column, in the type of its other labels."""
    kinds = {type(cell) for cell in known.values()}
    if len(kinds) != 1 or kinds == {str}:
        return label
    kind = kinds.pop()
    try:
        return kind(label)
    except (ValueError, TypeError, ArithmeticError):
        raise ValueError(
            f"label {label!r} does not fit the label column, which holds {kind.__name__} values"
        ) from None


def _check_unchanged(dataset: Dataset) -> None:
    """Refuse an .npz source whose rows or labels are not those that were read."""
    assert dataset.frame is not None
    named = ReadOptions(features=dataset.item_columns, label=dataset.label_column)
    again = read_npz(dataset.source, named)
    same = again.frame is not None and again.frame.equals(dataset.frame)
    if not same or again.content_keys() != dataset.content_keys():
        raise SourceChangedError(f"{dataset.source} was changed since it was read")
