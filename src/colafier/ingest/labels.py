"""Labels as class numbers: which classes there are, and the number of each row's class."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

Array = npt.NDArray[Any]

LONGEST = 1000  # characters of a label: each is stored and shown many times
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,300}")


@dataclass(frozen=True)
class EncodedLabels:
    """Labels as they are written, and the same as class numbers."""

    values: Array  # (n,) as they are written
    classes: Array  # (c,) sorted
    numbers: Tensor  # (n,) positions in `classes`, -1 where there is no label

    @classmethod
    def of(cls, y: Any, missing: Any = None) -> "EncodedLabels":
        """Labels of any type that scikit-learn takes, of at least two classes.

        Args:
            y: One label for each row.
            missing: What stands where a row has no label; None also finds what pandas writes for
                it among texts and objects.
        """
        from sklearn.utils import assert_all_finite, column_or_1d
        from sklearn.utils.multiclass import check_classification_targets

        if isinstance(y, pd.Series) and not isinstance(y.dtype, np.dtype):
            y = y.to_numpy(dtype=object)  # as it is: otherwise NA among whole numbers becomes NaN
        values = column_or_1d(np.asarray(y), warn=True)
        empty = _is_missing(values, missing)
        known = values[~empty]
        if known.dtype.kind == "O":
            if len({isinstance(value, str) for value in known}) > 1:
                raise ValueError("labels are texts and numbers; make all of them texts")
            known = np.array(known.tolist())
        if known.dtype.kind == "f" and np.isnan(known).any():
            raise ValueError("Input y contains NaN; for rows without a label: missing_label=np.nan")
        assert_all_finite(known, input_name="y")
        check_classification_targets(known)
        classes, positions = np.unique(known, return_inverse=True)
        check_two_classes(classes, f"the labels of {len(values)} rows")
        numbers = torch.full((len(values),), -1)
        numbers[torch.from_numpy(~empty)] = torch.from_numpy(positions).long()
        return cls(values, classes, numbers)

    def written(self, numbers: Tensor) -> Array:
        """Other class numbers (n,), written as the labels are; rows that keep theirs are copied."""
        moved = (numbers != self.numbers).numpy()
        values = self.values.copy()
        values[moved] = self.classes[numbers.numpy()[moved]]
        return values


def class_names(labels: Iterable[str | None]) -> list[str]:
    """The labels that occur, sorted; as numbers if all of them are whole numbers."""
    found = {label for label in labels if label is not None}
    longest = max(map(len, found), default=0)
    if longest > LONGEST:
        raise ValueError(
            f"a label has {longest:,} characters, more than {LONGEST:,}: these are texts, no "
            "classes; name the column of the labels with --label"
        )
    if all(WHOLE_NUMBER.fullmatch(label) for label in found):
        return sorted(found, key=lambda label: (int(label), label))
    return sorted(found)


def class_numbers(labels: Iterable[Any], classes: Iterable[Any]) -> Tensor:
    """Positions in `classes` (n,), -1 for no label and for one that is none of the classes."""
    numbers = {name: number for number, name in enumerate(classes)}
    return torch.tensor([numbers.get(label, -1) for label in labels], dtype=torch.int64)


def check_class_numbers(values: Array, num_classes: int, what: str, lowest: int = 0) -> Tensor:
    """Labels that are class numbers already (n,), as int64.

    Args:
        values: One whole number for each row.
        num_classes: How many classes there are.
        what: What to call the labels in an error.
        lowest: -1 where a row may have no label.
    """
    needed = f"must be whole numbers from {lowest} to {num_classes - 1}, one per row"
    if values.dtype.kind not in "biu" or values.ndim != 1:
        raise ValueError(f"{what} {needed}, not {values.dtype} of shape {values.shape}")
    others = values[(values < lowest) | (values >= num_classes)]
    if len(others):
        raise ValueError(f"{what} {needed}, but {others[0]} is among them")
    return torch.from_numpy(values.astype(np.int64))


def check_two_classes(classes: Collection[Any], what: str) -> None:
    """Refuse labels from which nothing can be learned.

    Args:
        classes: Those that occur.
        what: What to call the labels in the error, in the plural.
    """
    if len(classes) < 2:
        found = f"one class ({next(iter(classes))})" if len(classes) else "no class"
        raise ValueError(f"{what} are of {found}: there is nothing to learn")


def _is_missing(values: Array, missing: Any) -> Array:
    if missing is None and values.dtype.kind != "O":
        return np.zeros(len(values), dtype=bool)
    if missing is None or pd.isna(missing):
        return np.asarray(pd.isna(values))
    return np.array([value == missing for value in values.tolist()], dtype=bool)
