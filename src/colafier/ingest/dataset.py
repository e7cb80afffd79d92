"""A user's data set as it was read: its rows, their content keys, and a description."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from colafier._io import content_digest
from colafier.ingest.content import content_key, duplicate_groups
from colafier.ingest.labels import class_names

LAYOUTS = {
    "folder": "folder of class folders",
    "imagefolder": "folder of images with metadata",
    "csv": "CSV file",
    "parquet": "parquet file",
    "npz": "npz file",
}
SHOWN = 6  # names in a line before "and 3 more"


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written, so that it can be written back in the same way."""

    separator: str = ","
    encoding: str = "utf-8"
    line_end: str = "\n"


COMMON = Dialect()


@dataclass(frozen=True, eq=False)  # arrays have no plain equality
class Dataset:
    """A user's data set, read but not yet turned into numbers."""

    source: Path
    layout: str  # folder, imagefolder, csv, parquet or npz
    kind: str  # image, text, table or vector
    names: list[str]  # to show: a path relative to the source, or the row number
    original: list[str | None]  # the labels that came with the data; None where there is none
    # image: list of Path, bytes or None, or an array (n, h, w) or (n, h, w, c) of bytes;
    # text: list of str; table: DataFrame of the features; vector: float32 array (n, d)
    items: Any
    label_column: str | None = None
    item_columns: tuple[str, ...] = ()
    problems: dict[int, str] = field(default_factory=dict)  # rows that cannot be used, and why
    frame: pd.DataFrame | None = None  # the table as read, to be written back
    table: Path | None = None  # the file of that table
    notes: tuple[str, ...] = ()  # what was left out or detected
    dialect: Dialect = COMMON

    def __len__(self) -> int:
        return len(self.names)

    @property
    def classes(self) -> list[str]:
        """The labels that occur, sorted; as numbers if all of them are whole numbers."""
        return class_names(self.original)

    def content_keys(self) -> list[str]:
        """The key of each row's content, see `ingest.content.content_key`."""
        return list(self._keys)

    def fingerprint(self) -> str:
        """SHA-256 of all names, labels and contents, in their order."""
        rows = zip(self.names, self.original, self._keys, strict=True)
        return content_digest(self.kind, (json.dumps(row) for row in rows))

    def changed_files(self) -> set[int]:
        """The rows whose file is gone, or does not hold any more what was read."""
        return {
            row
            for row, (item, key) in enumerate(zip(self.items, self._keys, strict=True))
            if key and isinstance(item, Path) and content_key(item) != key
        }

    def duplicates(self) -> list[int]:
        """For each usable row the number of its group of exact duplicates, else -1."""
        keys = ["" if row in self.problems else key for row, key in enumerate(self._keys)]
        return duplicate_groups(keys)

    def head(self, count: int) -> "Dataset":
        """The data set of the first rows."""
        return replace(
            self,
            names=self.names[:count],
            original=self.original[:count],
            items=self.items[:count],
            problems={row: why for row, why in self.problems.items() if row < count},
            frame=None if self.frame is None else self.frame[:count],
        )

    def describe(self) -> str:
        """One or two lines for the terminal."""
        things = {"image": "images", "text": "texts", "vector": "vectors", "table": "rows"}
        label = "none" if self.label_column is None else self.label_column
        if self.layout == "folder":
            columns = "label = name of the folder"
        else:
            what = "features" if self.kind in ("table", "vector") else self.kind
            columns = f"{what} = {listed(self.item_columns)}, label = {label}"
        number = f"{len(self):,} {things[self.kind]}, {counted(len(self.classes), 'class')}"
        line = f"{LAYOUTS[self.layout]}, {number}; {columns}"
        remarks = [*self.notes, *self._shortcomings()]
        return "\n".join([line, "; ".join(remarks)] if remarks else [line])

    def _shortcomings(self) -> list[str]:
        found = []
        if missing := self.original.count(None):
            found.append(f"{counted(missing, 'row')} without a label")
        if self.problems:
            reasons = Counter(self.problems.values()).most_common()
            why = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
            found.append(f"{counted(len(self.problems), 'row')} cannot be used ({why})")
        return found

    @cached_property
    def _keys(self) -> list[str]:
        """Computed once: each file is read for this."""
        if self.kind == "table":
            return [content_key(repr(row)) for row in self.items.itertuples(index=False, name=None)]
        return [content_key(item) for item in self.items]


def counted(number: int, what: str) -> str:
    """As in "1 row", "2,000 rows" and "3 classes"."""
    plural = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number:,} {what}{plural}"


def listed(names: Iterable[str], limit: int = SHOWN) -> str:
    """The first names and how many more there are; all of them if only one would be left out."""
    names = list(names)
    if len(names) <= limit + 1:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit:,} more"
