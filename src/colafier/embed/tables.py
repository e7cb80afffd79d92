"""Columns of a table to numbers, by an encoder that is fitted once and stored with the model."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from colafier._io import write_json
from colafier.embed.columns import (
    CategoryColumn,
    Floats,
    NumberColumn,
    categories_of,
    kind_of,
    numbers_of,
    why_useless,
)
from colafier.readers import json_files

FORMAT: Literal[2] = 2


@dataclass(frozen=True)
class Stored:
    """The content of a stored encoder."""

    format: Literal[2]
    numbers: list[NumberColumn]
    categories: list[CategoryColumn]
    dropped: dict[str, str]


class TableEncoder:
    """Numbers, booleans and dates scaled, categories one-hot; missing values are marked as such.

    Attributes:
        numbers: What was learned about each column of numbers, booleans or dates.
        categories: What was learned about each column of categories.
        dropped: Columns that are not used, and why.
    """

    def __init__(self) -> None:
        self.numbers: list[NumberColumn] = []
        self.categories: list[CategoryColumn] = []
        self.dropped: dict[str, str] = {}

    @property
    def kinds(self) -> dict[str, str]:
        """Of each column that is used: number, boolean, date or category."""
        numbers = {column.name: str(column.kind) for column in self.numbers}
        return numbers | {column.name: "category" for column in self.categories}

    @property
    def num_features(self) -> int:
        """Numbers per row."""
        return len(self.feature_names)

    @property
    def feature_names(self) -> list[str]:
        """What each number stands for."""
        names = [column.name for column in self.numbers]
        names += [f"{column.name} is missing" for column in self.numbers if column.marks_missing]
        for column in self.categories:
            names += [f"{column.name} = {category}" for category in column.categories]
            names += [f"{column.name} = another"] if column.others else []
        return names

    def fit(self, frame: pd.DataFrame) -> Floats:
        """Learn from a table, without its labels, and encode it (n, d)."""
        _check_names(frame)
        self.numbers, self.categories, self.dropped = [], [], {}
        for name in frame.columns:
            column = frame[name]
            if reason := why_useless(column):
                self.dropped[name] = reason
            elif (kind := kind_of(column)) == "category":
                self.categories.append(CategoryColumn.fit(name, categories_of(column)))
            else:
                self.numbers.append(NumberColumn.fit(name, kind, numbers_of(column, kind)))
        if not self.kinds:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.dropped.items())
            raise ValueError(f"no column to learn from is left ({reasons or 'there is none'})")
        return self.transform(frame)

    def transform(self, frame: pd.DataFrame) -> Floats:
        """Encode a table (n, d); its columns may be in any order, and further ones are ignored."""
        used = list(self._fitted().kinds)
        if missing := [name for name in used if name not in frame.columns]:
            raise ValueError(
                f"the table lacks {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}"
            )
        _check_names(frame[used])
        scaled, marks, one_hot = [], [], []
        for number in self.numbers:
            values = numbers_of(frame[number.name], number.kind)  # (n,)
            scaled.append(number.encode(values)[:, None])
            if number.marks_missing:
                marks.append(np.isnan(values)[:, None])
        for category in self.categories:
            one_hot.append(category.encode(categories_of(frame[category.name])))
        return np.concatenate([*scaled, *marks, *one_hot], axis=1, dtype=np.float32)

    def save(self, path: Path) -> None:
        """Store as JSON, whole or not at all."""
        self._fitted()
        stored = Stored(FORMAT, self.numbers, self.categories, self.dropped)
        write_json(path, asdict(stored))

    @classmethod
    def load(cls, path: Path) -> "TableEncoder":
        """Read what `save` stored; a file that is damaged or holds anything else is refused."""
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing: it is needed to encode tables for this model"
            )
        stored: Stored = json_files.read(path, Stored)
        encoder = cls()
        encoder.numbers, encoder.categories = stored.numbers, stored.categories
        encoder.dropped = stored.dropped
        if not len(encoder.kinds) == len(encoder.numbers) + len(encoder.categories) > 0:
            raise json_files.damaged(path, "it has no columns, or several of the same name")
        return encoder

    def _fitted(self) -> "TableEncoder":
        if not self.kinds:
            raise ValueError("the table encoder was not fitted: call fit first")
        return self


def _check_names(frame: pd.DataFrame) -> None:
    names = frame.columns
    if not names.is_unique:
        raise ValueError(f"columns have the same name: {', '.join(names[names.duplicated()])}")
    if other := [name for name in names if not isinstance(name, str)]:
        raise ValueError(f"names of columns are texts, not {other[0]!r}: rename the columns")
