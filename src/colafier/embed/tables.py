"""Columns of a table to numbers, by an encoder that is fitted once and stored with the model."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from colafier._io import write_json
from colafier.embed.columns import (
    CategoryColumn,
    Floats,
    NumberColumn,
    categories_of,
    category_column,
    kind_of,
    number_column,
    numbers_of,
    why_useless,
)

FORMAT = 2
MAX_BYTES = 2**28  # of a stored encoder: a hostile file must not fill the memory


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
        columns = {
            "numbers": [asdict(column) for column in self.numbers],
            "categories": [asdict(column) for column in self.categories],
        }
        write_json(path, {"format": FORMAT, **columns, "dropped": self.dropped})

    @classmethod
    def load(cls, path: Path) -> "TableEncoder":
        """Read what `save` stored; a file that is damaged or holds anything else is refused."""
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing: it is needed to encode tables for this model"
            )
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path} was not loaded: it is larger than any table encoder")
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path} was not loaded: it is damaged ({error})") from error
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise ValueError(f"{path} is not a table encoder of this version of colafier")
        encoder = cls()
        try:
            encoder.numbers = [number_column(column) for column in _list(stored, "numbers")]
            encoder.categories = [category_column(column) for column in _list(stored, "categories")]
            encoder.dropped = _texts(stored.get("dropped"))
            if len(encoder.kinds) != len(encoder.numbers) + len(encoder.categories):
                raise ValueError("columns have the same name")
            encoder._fitted()
        except ValueError as error:
            raise ValueError(f"{path} was not loaded: {error}") from error
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


def _list(stored: Mapping[str, Any], name: str) -> list[Any]:
    found = stored.get(name)
    if not isinstance(found, list):
        raise ValueError(f"{name} must be a list")
    return found


def _texts(stored: Any) -> dict[str, str]:
    if not isinstance(stored, dict) or not all(type(text) is str for text in stored.values()):
        raise ValueError("dropped must hold texts")
    return stored
