"""Reading a user's labeled data set, whatever its format: the door to the other readers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colafier.ingest import columns, frames, image_files
from colafier.ingest.archives import read_npz
from colafier.ingest.columns import Wanted
from colafier.ingest.dataset import Dataset, counted
from colafier.ingest.folders import read_folder
from colafier.ingest.labels import check_two_classes, class_names

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
        image: Column of image paths or bytes; detected like all others if it is left out.
        text: Column of texts.
        features: Columns of numbers and categories.
        label: Column of labels.
        missing: What is written where a row has no label, besides empty cells.
        labeled: Whether labels of two classes or more must be there. If not, a label column may
            be missing, and a folder may hold images in any place.
    """
    wanted = Wanted(
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


def _read_table(source: Path, layout: str, wanted: Wanted) -> Dataset:
    table = frames.load(source)
    if table.frame.empty:
        raise ValueError(f"{source} has no rows")
    roles = columns.roles_of(table, wanted)
    n = len(table.frame)
    names = [str(row) for row in range(n)]
    items: Any
    if roles.kind == "table":
        items = table.values(list(roles.items))
        problems = _infinite_rows(items)
    else:
        cells = table.frame[roles.items[0]].tolist()
        if roles.kind == "image":
            items = [image_files.item_of(cell, source.parent) for cell in cells]
            names = [image_files.name_of(cell, row) for row, cell in enumerate(cells)]
            problems = image_files.problems_of(items)
        else:
            items = [_text(cell, roles.items[0]) for cell in cells]
            problems = {row: "empty text" for row, item in enumerate(items) if not item.strip()}
    original: list[str | None] = [None] * n
    if roles.label is not None:
        original = columns.labels_of(table.frame[roles.label], roles.label, wanted.missing)
    return Dataset(
        source, layout, roles.kind, names, original, items, roles.label, roles.items, problems,
        table.frame, source, roles.notes, table.dialect,
    )  # fmt: skip


def _text(cell: Any, column: str) -> str:
    if frames.is_missing(cell):
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
