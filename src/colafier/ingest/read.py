"""Reading a user's data set, whatever its format."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colafier.ingest import column_roles, image_files, table_files
from colafier.ingest.column_roles import ReadOptions
from colafier.ingest.dataset import Dataset, counted
from colafier.ingest.folders import read_folder
from colafier.ingest.labels import check_two_classes, class_names
from colafier.ingest.npz_files import read_npz

__all__ = ["Dataset", "read"]

LAYOUTS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet", ".npz": "npz"}


def read(
    source: Path,
    *,
    image: str | None = None,
    text: str | None = None,
    features: Sequence[str] | None = None,
    label: str | None = None,
    missing: Sequence[str] = ("",),
    labeled: bool = True,
) -> Dataset:
    """A data set from a folder of images, a CSV or parquet table, or an .npz file.

    Args:
        source: The folder or file; image paths in a table are relative to its folder.
        image: Column of image paths or bytes; this and all others are detected if left out.
        text: Column of texts.
        features: Columns of numbers and categories.
        label: Column of labels.
        missing: Texts that mean that a row has no label, besides empty cells.
        labeled: Whether labels of two or more classes are needed. If not, the label column may be
            missing, and the images of a folder may be anywhere in it.
    """
    wanted = ReadOptions(
        image, text, None if features is None else tuple(features), label, tuple(missing), labeled
    )
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist; give a folder or a file")
    layout = "folder" if source.is_dir() else LAYOUTS.get(source.suffix.lower())
    if layout == "folder":
        dataset = read_folder(source, wanted)
    elif layout == "npz":
        dataset = read_npz(source, wanted)
    elif layout is not None:
        dataset = _read_table(source, layout, wanted)
    else:
        raise ValueError(
            f"{source} cannot be read; give a folder of class folders, or a file that ends with "
            f"{', '.join(LAYOUTS)}"
        )
    _check(dataset, labeled)
    return dataset


def _read_table(source: Path, layout: str, wanted: ReadOptions) -> Dataset:
    table = table_files.load(source)
    if table.frame.empty:
        raise ValueError(f"{source} has no rows")
    roles = column_roles.roles_of(table, wanted)
    names = [str(row) for row in range(len(table.frame))]
    items: Any
    if roles.kind == "table":
        items = table.values(list(roles.items))
        problems = _infinite_rows(items)
    else:
        cells = table.frame[roles.items[0]].tolist()
        if roles.kind == "image":
            items, names = image_files.from_cells(cells, source.parent)
            problems = image_files.problems_of(items)
        else:
            items = [_text(cell, roles.items[0]) for cell in cells]
            problems = {row: "empty text" for row, item in enumerate(items) if not item.strip()}
    original = column_roles.labels_of(table.frame, roles.label, wanted.missing)
    return Dataset(
        source, layout, roles.kind, names, original, items, roles.label, roles.items, problems,
        table.frame, source, roles.notes, table.dialect,
    )  # fmt: skip


def _text(cell: Any, column: str) -> str:
    if table_files.is_missing(cell):
        return ""
    if not isinstance(cell, str):
        raise ValueError(
            f"text column {column!r} holds {type(cell).__name__} values, as {cell!r}; "
            "name columns of numbers with features"
        )
    return cell


def _infinite_rows(values: Any) -> dict[int, str]:
    """Rows of a table with an infinite number; missing values are no problem."""
    numbers = values.select_dtypes("number").to_numpy(dtype=float, na_value=np.nan)
    rows = np.flatnonzero(np.isinf(numbers).any(axis=1))
    return dict.fromkeys(rows.tolist(), "not finite")


def _check(dataset: Dataset, labeled: bool) -> None:
    """Refuse data sets from which nothing can be learned."""
    source, problems = dataset.source, dataset.problems
    if len(dataset) == 0:
        raise ValueError(f"{source} has no rows")
    if len(problems) == len(dataset):
        row, reason = next(iter(problems.items()))
        item = dataset.items[row] if dataset.kind == "image" else None
        where = f" at {item}" if isinstance(item, Path) else ""
        raise ValueError(
            f"{source}: none of its {counted(len(dataset), 'row')} can be used; the first has "
            f"the problem: {reason}{where}"
        )
    if not labeled:
        return
    if not dataset.classes:
        raise ValueError(
            f"{source}: all labels of {dataset.label_column!r} are missing; name another column "
            "with label"
        )
    usable = (label for row, label in enumerate(dataset.original) if row not in problems)
    check_two_classes(class_names(usable), f"{source}: the labels of the rows that can be used")
