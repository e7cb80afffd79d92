"""One column of a table: what it holds, its plain values, and how these become numbers.

What is learned about a column is plain data: numbers, texts and nothing else. So it can be stored
as JSON, and a stored file cannot name anything that would run.
"""

import datetime
import re
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from colafier._validation import Range

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Kind = Literal["number", "boolean", "date", "category"]
MISSING = "<missing>"  # the category of missing values
MAX_CATEGORIES = 50  # the rarer ones share one column
TAIL = 0.01  # share of values at each end that is left out when the spread is measured
REACH = 1.0  # how far beyond these quantiles values are kept, in distances between them
MAX_DEVIATIONS = 5.0  # largest scaled value
LARGEST = 1e150  # number: sums of squares of larger ones are infinite
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?")
DAY = pd.Timedelta(days=1)


@dataclass(frozen=True)
class NumberColumn:
    """A column scaled to mean 0 and standard deviation 1, after outlying values are clipped.

    The bounds come from quantiles, so that a single 1e12 in a column does not squeeze all other
    values together; ordinary columns, also those of few values, keep their shape.
    """

    name: str
    kind: Literal["number", "boolean", "date"]
    low: float  # smallest value that is kept
    high: float  # largest value that is kept
    mean: float
    scale: Annotated[float, Range(0, low_open=True)]
    median: float  # of the scaled values; stands for missing ones
    marks_missing: bool  # whether a further number tells missing values apart

    def __post_init__(self) -> None:
        """Refuse bounds in the wrong order, which a damaged file may have."""
        if self.low > self.high:
            raise ValueError(f"low must not be above high, not {self.low} and {self.high}")

    @classmethod
    def fit(cls, name: str, kind: Any, values: Doubles) -> "NumberColumn":
        """Learn from values (n,), of which some may be missing (NaN), but not all."""
        low, high = (float(q) for q in np.nanquantile(values, [TAIL, 1 - TAIL]))
        reach = REACH * (high - low)
        if high == low:  # the rare other values carry all the information
            low, high = float(np.nanmin(values)), float(np.nanmax(values))
        else:
            low, high = low - reach, high + reach
        clipped = values.clip(low, high)
        mean, spread = float(np.nanmean(clipped)), float(np.nanstd(clipped))
        scale = spread if spread > 0 else 1.0
        median = float(np.nanmedian(_scaled(values, low, high, mean, scale)))
        missing = bool(np.isnan(values).any())
        return cls(name, kind, low, high, mean, scale, median, missing)

    def encode(self, values: Doubles) -> Doubles:
        """Scaled values (n,), the median for missing ones."""
        scaled = _scaled(values, self.low, self.high, self.mean, self.scale)
        return np.where(np.isnan(scaled), self.median, scaled)


@dataclass(frozen=True)
class CategoryColumn:
    """A column of categories, one number for each; a missing value is a category, too."""

    name: str
    categories: tuple[str, ...]  # those that have a number of their own
    others: bool  # whether rarer and unknown ones have one number together

    def __post_init__(self) -> None:
        """Refuse repeated categories, and too many, which a damaged file may have."""
        known = self.categories
        if not known or self.width > MAX_CATEGORIES or len(set(known)) < len(known):
            raise ValueError(f"categories must be 1 to {MAX_CATEGORIES} different ones")

    @classmethod
    def fit(cls, name: str, values: npt.NDArray[Any]) -> "CategoryColumn":
        """Learn from texts (n,)."""
        counts = Counter(values.tolist())
        found = sorted(counts)
        if len(found) <= MAX_CATEGORIES:
            return cls(name, tuple(found), others=False)
        frequent = sorted(found, key=counts.__getitem__)[-(MAX_CATEGORIES - 1) :]
        return cls(name, tuple(sorted(frequent)), others=True)

    @property
    def width(self) -> int:
        """Numbers per value."""
        return len(self.categories) + self.others

    def encode(self, values: npt.NDArray[Any]) -> Floats:
        """One-hot (n, width); without a number for others, all zeros for an unknown one."""
        codes = pd.Index(self.categories, dtype=object).get_indexer(values)  # (n,) -1: unknown
        rows = np.arange(len(values))
        if self.others:
            codes = np.where(codes < 0, len(self.categories), codes)  # (n,)
        known = codes >= 0
        one_hot = np.zeros((len(values), self.width), np.float32)
        one_hot[rows[known], codes[known]] = 1
        return one_hot


def _scaled(values: Doubles, low: float, high: float, mean: float, scale: float) -> Doubles:
    scaled: Doubles = (values.clip(low, high) - mean) / scale
    return scaled.clip(-MAX_DEVIATIONS, MAX_DEVIATIONS)


def why_useless(column: pd.Series) -> str:
    """Why nothing can be learned from a column, or an empty text."""
    values = column.dropna()
    texts = values.map(str)
    if values.empty:
        return "all values are missing"
    if texts.nunique() == 1 and len(values) == len(column):
        return "all values are the same"
    if kind_of(column) == "category" and len(texts) > MAX_CATEGORIES and texts.is_unique:
        return "all values are different, as in a name or a number of a row"
    return ""


def kind_of(column: pd.Series) -> Kind:
    """What the values of a column are."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "category"
    found = pd.api.types.infer_dtype(column, skipna=True)
    if found == "boolean":
        return "boolean"
    if found in ("integer", "floating", "mixed-integer-float", "decimal", "timedelta64"):
        return "number"
    if found in ("datetime64", "datetime", "date"):
        return "date"
    return "date" if found == "string" and _all_dates(column.dropna()) else "category"


def _all_dates(texts: pd.Series) -> bool:
    """Whether all texts are dates in ISO 8601; other formats can be ambiguous."""
    if not all(ISO_DATE.fullmatch(text) for text in texts):
        return False
    dates = pd.to_datetime(texts, utc=True, format="ISO8601", errors="coerce")
    return bool(dates.notna().all())


def categories_of(column: pd.Series) -> npt.NDArray[Any]:
    """Values (n,) as texts, `MISSING` for missing ones."""
    known = ~column.isna()
    texts = [
        str(value) if is_known else MISSING for value, is_known in zip(column, known, strict=True)
    ]
    return np.array(texts, object)


def numbers_of(column: pd.Series, kind: Kind) -> Doubles:
    """Values (n,) as float64, NaN for missing ones."""
    try:
        if kind == "date":
            return _days(column)
        if pd.api.types.is_timedelta64_dtype(column):
            column = column / DAY
        numbers = pd.to_numeric(column, errors="raise")
        values: Doubles = numbers.to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"column {column.name!r} must hold {kind}s as in the table that was learned from "
            f"({error})"
        ) from error
    if (too_large := np.abs(values) > LARGEST).any():
        row = int(too_large.argmax())
        raise ValueError(
            f"column {column.name!r} has infinite or huge numbers, the first in row {row}: "
            "replace them by smaller ones, or leave them empty"
        )
    return values


def _days(column: pd.Series) -> Doubles:
    """Days since 1970, missing ones NaN."""
    if pd.api.types.infer_dtype(column, skipna=True) == "date":
        column = column.map(lambda day: day.isoformat() if isinstance(day, datetime.date) else None)
    elif pd.api.types.is_numeric_dtype(column) and column.notna().any():
        raise ValueError("numbers are no dates")
    form = "ISO8601" if pd.api.types.infer_dtype(column, skipna=True) == "string" else None
    dates = pd.to_datetime(column, utc=True, format=form)
    days: Doubles = ((dates - pd.Timestamp(0, tz="UTC")) / DAY).to_numpy(np.float64)
    return days
