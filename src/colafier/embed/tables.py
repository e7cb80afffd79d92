"""Columns of a table to numbers, by an encoder that is fitted once and stored with the model."""

import datetime
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from colafier._io import atomic_file, content_digest

Floats = npt.NDArray[np.float32]
MISSING = "<missing>"  # the category of missing values
MAX_CATEGORIES = 50  # the rarer ones share one column
TAIL = 0.01  # share of values at each end that is left out when the spread is measured
REACH = 1.0  # how far beyond these quantiles values are kept, in distances between them
MAX_DEVIATIONS = 5.0  # largest scaled value
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}.*)?")
DAY = pd.Timedelta(days=1)
FORMAT = 1
# besides what skops trusts by default: estimators of scikit-learn, arrays, plain containers
TRUSTED = ["numpy.dtype", "colafier.embed.tables.ClippedScaler"]


class ClippedScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Mean 0 and standard deviation 1, after outlying values are clipped.

    The bounds come from quantiles, so that a single 1e12 in a column does not squeeze all other
    values together; ordinary columns, also those of few values, keep their shape.
    """

    def fit(self, x: npt.NDArray[Any], y: None = None) -> "ClippedScaler":  # noqa: ARG002
        """Learn bounds, mean and spread of each column; missing values are left out."""
        x = np.asarray(x, np.float64)  # (n, d)
        low, high = np.nanquantile(x, [TAIL, 1 - TAIL], axis=0)
        reach = REACH * (high - low)
        # where nearly all values are equal, the rare other ones carry all the information
        flat = high == low
        self.low_ = np.where(flat, np.nanmin(x, 0), low - reach)
        self.high_ = np.where(flat, np.nanmax(x, 0), high + reach)
        clipped = x.clip(self.low_, self.high_)
        self.mean_ = np.nanmean(clipped, 0)
        spread = np.nanstd(clipped, 0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        self.n_features_in_ = x.shape[1]
        return self

    def transform(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Scaled values; missing ones stay missing."""
        clipped = np.asarray(x, np.float64).clip(self.low_, self.high_)
        scaled: npt.NDArray[np.float64] = (clipped - self.mean_) / self.scale_
        return scaled.clip(-MAX_DEVIATIONS, MAX_DEVIATIONS)


class TableEncoder:
    """Numbers, booleans and dates scaled, categories one-hot; missing values are marked as such.

    Attributes:
        kinds: Of each column that is used: number, boolean, date or category.
        dropped: Columns that are not used, and why.
    """

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.dropped: dict[str, str] = {}
        self._transformer: Any = None

    @property
    def num_features(self) -> int:
        """Numbers per row."""
        return len(self.feature_names)

    @property
    def feature_names(self) -> list[str]:
        """What each number stands for."""
        return [str(name) for name in self._fitted().get_feature_names_out()]

    def fit(self, frame: pd.DataFrame) -> Floats:
        """Learn from a table, without its labels, and encode it (n, d)."""
        _check_names(frame)
        self.kinds, self.dropped = {}, {}
        for name in frame.columns:
            if reason := _useless(frame[name]):
                self.dropped[name] = reason
            else:
                self.kinds[name] = _kind(frame[name])
        if not self.kinds:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.dropped.items())
            raise ValueError(f"no column to learn from is left ({reasons or 'there is none'})")
        categories = [name for name, kind in self.kinds.items() if kind == "category"]
        numbers = [name for name in self.kinds if name not in categories]
        scaled = make_pipeline(
            ClippedScaler(), SimpleImputer(strategy="median", add_indicator=True)
        )
        one_hot = OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            max_categories=MAX_CATEGORIES,
            sparse_output=False,
            dtype=np.float32,
        )
        parts = [("numbers", scaled, numbers), ("categories", one_hot, categories)]
        self._transformer = ColumnTransformer([part for part in parts if part[2]])
        return _float32(self._transformer.fit_transform(self._plain(frame)))

    def transform(self, frame: pd.DataFrame) -> Floats:
        """Encode a table (n, d); its columns may be in any order, and further ones are ignored."""
        transformer = self._fitted()
        missing = [name for name in self.kinds if name not in frame.columns]
        if missing:
            raise ValueError(
                f"the table lacks {', '.join(missing)}; it has {', '.join(map(str, frame.columns))}"
            )
        _check_names(frame[list(self.kinds)])
        if not len(frame):
            return np.zeros((0, self.num_features), np.float32)
        return _float32(transformer.transform(self._plain(frame)))

    def save(self, path: Path) -> str:
        """Store without pickle, whole or not at all; returns the file's SHA-256, for `load`."""
        import skops.io  # type: ignore[import-untyped,unused-ignore]

        content = {
            "format": FORMAT,
            "kinds": self.kinds,
            "dropped": self.dropped,
            "transformer": self._fitted(),
        }
        stored = skops.io.dumps(content)
        with atomic_file(path) as partial:
            partial.write_bytes(stored)
        return content_digest(stored)

    @classmethod
    def load(cls, path: Path, sha256: str | None = None) -> "TableEncoder":
        """Read what `save` stored; a file that is damaged or holds other types is refused.

        Args:
            path: Of the file.
            sha256: What `save` returned; if given, a file with any change is refused.
        """
        import skops.io

        if not path.is_file():
            raise FileNotFoundError(
                f"{path} is missing: it is needed to encode tables for this model"
            )
        stored = path.read_bytes()
        if sha256 is not None and content_digest(stored) != sha256:
            raise ValueError(f"{path} was changed after it was saved; it was not loaded")
        try:
            content = skops.io.loads(stored, trusted=TRUSTED)
        except Exception as error:  # a damaged file can fail in any way
            raise ValueError(f"{path} was not loaded: damaged or changed ({error})") from error
        encoder = cls()
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"{path} is not a table encoder of this version of colafier")
        encoder.kinds, encoder.dropped = content["kinds"], content["dropped"]
        encoder._transformer = content["transformer"]
        if not isinstance(encoder._transformer, ColumnTransformer):
            raise ValueError(f"{path} is not a table encoder of this version of colafier")
        return encoder

    def _fitted(self) -> Any:
        if self._transformer is None:
            raise ValueError("the table encoder was not fitted: call fit first")
        return self._transformer

    def _plain(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The columns that are used, as float64, or as texts with `MISSING` for missing ones."""
        return pd.DataFrame(
            {name: _plain_column(frame[name], kind) for name, kind in self.kinds.items()},
            index=frame.index,
        )


def _check_names(frame: pd.DataFrame) -> None:
    names = frame.columns
    if not names.is_unique:
        raise ValueError(f"columns have the same name: {', '.join(names[names.duplicated()])}")
    if other := [name for name in names if not isinstance(name, str)]:
        raise ValueError(f"names of columns are texts, not {other[0]!r}: rename the columns")


def _useless(column: pd.Series) -> str:
    """Why nothing can be learned from a column, or an empty text."""
    values = column.dropna()
    texts = values.map(str)
    if values.empty:
        return "all values are missing"
    if texts.nunique() == 1 and len(values) == len(column):
        return "all values are the same"
    if _kind(column) == "category" and len(texts) > MAX_CATEGORIES and texts.is_unique:
        return "all values are different, as in a name or a number of a row"
    return ""


def _kind(column: pd.Series) -> str:
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


def _plain_column(column: pd.Series, kind: str) -> npt.NDArray[Any]:
    """Values (n,) as float64, missing ones NaN; of categories as texts."""
    if kind == "category":
        return np.array([MISSING if lost else str(value) for value, lost
                         in zip(column, column.isna(), strict=True)], object)  # fmt: skip
    try:
        if kind == "date":
            return _days(column)
        if pd.api.types.is_timedelta64_dtype(column):
            column = column / DAY
        numbers = pd.to_numeric(column, errors="raise")
        values: npt.NDArray[np.float64] = numbers.to_numpy(np.float64, na_value=np.nan)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"column {column.name!r} must hold {kind}s as in the table that was learned from "
            f"({error})"
        ) from error
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise ValueError(
            f"column {column.name!r} has infinite numbers, the first in row {row}: "
            "replace them by numbers, or leave them empty"
        )
    return values


def _days(column: pd.Series) -> npt.NDArray[np.float64]:
    """Days since 1970, missing ones NaN."""
    if pd.api.types.infer_dtype(column, skipna=True) == "date":
        column = column.map(lambda day: day.isoformat() if isinstance(day, datetime.date) else None)
    elif pd.api.types.is_numeric_dtype(column) and column.notna().any():
        raise ValueError("numbers are no dates")
    form = "ISO8601" if pd.api.types.infer_dtype(column, skipna=True) == "string" else None
    dates = pd.to_datetime(column, utc=True, format=form)
    days: npt.NDArray[np.float64] = ((dates - pd.Timestamp(0, tz="UTC")) / DAY).to_numpy(np.float64)
    return days


def _float32(features: npt.NDArray[Any]) -> Floats:
    return np.ascontiguousarray(features, np.float32)
