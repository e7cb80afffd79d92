"""Tables from CSV, JSON lines and parquet files, read so that they can be written back."""

import csv
import importlib
import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from colafier.ingest.dataset import COMMON, Dialect
from colafier.readers.files import read_bytes, size_of
from colafier.readers.json_files import parse

MAX_COLUMNS = 10_000
MAX_BYTES = 2**33  # of a table as text
BEGINNING = 2**16  # bytes that are looked at before the rest is read
SEPARATORS = (",", ";", "\t")
NO_NUMBER = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None")  # among numbers


@dataclass(frozen=True)
class Table:
    """A table as read: cells of CSV are text, columns of parquet keep their Arrow types."""

    path: Path
    layout: str  # csv, jsonl or parquet
    frame: pd.DataFrame
    dialect: Dialect = COMMON

    def values(self, columns: list[str]) -> pd.DataFrame:
        """These columns as numbers and texts, with missing values."""
        if self.layout == "parquet":
            part = pyarrow().Table.from_pandas(self.frame[columns], preserve_index=False)
            return part.to_pandas(ignore_metadata=True)
        if self.layout == "jsonl":
            return self.frame[columns].infer_objects()
        comma = self.dialect.separator == ";"  # where the comma is the decimal point
        return pd.DataFrame({c: _as_values(self.frame[c], comma) for c in columns})


def load(path: Path) -> Table:
    """The table of a .csv, .tsv, .jsonl or .parquet file."""
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return _load_parquet(path)
    if suffix == ".jsonl":
        return _load_json_lines(path)
    return _load_csv(path)


def pyarrow() -> Any:
    """The package pyarrow, which is an extra."""
    try:
        importlib.import_module("pyarrow.parquet")
        importlib.import_module("pyarrow.compute")
    except ImportError as error:
        raise ImportError("parquet needs pyarrow: pip install 'colafier[parquet]'") from error
    return importlib.import_module("pyarrow")


def is_missing(value: Any) -> bool:
    """Whether a cell has no value: None, NaN or NA."""
    return value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value))


def _read_text(path: Path) -> tuple[str, str]:
    """The text of a file and its encoding: UTF-8, with or without a byte order mark."""
    if _beginning(path).startswith(b"\0\0\0\0"):  # as in a sparse file, of which all is zeros
        raise ValueError(f"{path} has NUL characters: it is damaged, or not a text file")
    content = read_bytes(path, MAX_BYTES)
    encoding = "utf-8-sig" if content.startswith(b"\xef\xbb\xbf") else "utf-8"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text (byte 0x{content[error.start]:02x} at position "
            f"{error.start}); save it as UTF-8, for example with `iconv -f LATIN1 -t UTF-8`"
        ) from None
    if "\x00" in text:
        raise ValueError(f"{path} has NUL characters: it is damaged, or not a text file")
    if not text.strip():
        raise ValueError(f"{path} is empty")
    return text, encoding


def _beginning(path: Path) -> bytes:
    size_of(path)
    with path.open("rb") as file:
        return file.read(BEGINNING)


def _load_csv(path: Path) -> Table:
    text, encoding = _read_text(path)
    first = text[: text.find("\n") + 1]
    separator, columns = _separator(text, path)
    _check_count(path, columns)
    try:
        # without `header`, as pandas would rename columns and take surplus cells for an index
        cells = pd.read_csv(
            io.StringIO(text, newline=""), sep=separator, header=None, dtype=str, na_filter=False
        )
    except pd.errors.ParserError as error:
        reason = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        raise ValueError(
            f"{path} cannot be read as a table with separator {separator!r}: {reason}; "
            'put cells that hold the separator or line ends into "quotes"'
        ) from None
    frame = cells[1:].reset_index(drop=True)
    frame.columns = cells.iloc[0].tolist()
    _check_columns(path, frame.columns.tolist())
    end = "\r\n" if first.endswith("\r\n") else "\n"
    return Table(path, "csv", frame, Dialect(separator, encoding, end))


def _separator(text: str, path: Path) -> tuple[str, int]:
    """The separator that splits the header into most columns, a tab for .tsv; and their number."""
    counts = {}
    for separator in ("\t",) if path.suffix.lower() == ".tsv" else SEPARATORS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        try:
            counts[separator] = len(next(filter(None, reader)))
        except csv.Error:  # a cell beyond the limit: not the separator of this header
            counts[separator] = 0
    most = max(counts, key=lambda separator: counts[separator])
    return most, counts[most]


def _check_count(path: Path, columns: int) -> None:
    if columns > MAX_COLUMNS:
        raise ValueError(
            f"{path} has {columns:,} columns, but no more than {MAX_COLUMNS:,} are read; save the "
            "features as an array in an .npz file"
        )


def _check_columns(path: Path, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path} has more than one column {twice[0]!r}; rename them")


def _load_json_lines(path: Path) -> Table:
    text, _ = _read_text(path)
    records = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = parse(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON: {error}") from None
        if not isinstance(record, dict):
            raise ValueError(f"{path}, line {number} is not an object with named values")
        records.append(record)
    columns = list(dict.fromkeys(name for record in records for name in record))
    _check_count(path, len(columns))
    cells = {name: [record.get(name) for record in records] for name in columns}
    return Table(path, "jsonl", pd.DataFrame(cells, dtype=object))


def _load_parquet(path: Path) -> Table:
    arrow = pyarrow()
    size_of(path)
    try:
        _check_count(path, len(arrow.parquet.read_schema(path).names))
        table = arrow.parquet.ParquetFile(path).read()  # this file alone, not a data set of files
        table.validate(full=True)  # a damaged column can have places outside of its values
        # Arrow types keep whole numbers with gaps, pairs and bytes as they are
        frame = table.to_pandas(types_mapper=pd.ArrowDtype, ignore_metadata=True)
    except (arrow.ArrowException, OSError, OverflowError, MemoryError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} is not a readable parquet file ({reason})") from None
    _check_columns(path, table.column_names)
    for name in table.column_names:
        if arrow.types.is_temporal(table[name].type):
            _check_times(arrow, path, name, table[name])
    return Table(path, "parquet", frame)


def _check_times(arrow: Any, path: Path, name: str, column: Any) -> None:
    """Refuse dates and times that Python does not have."""
    try:
        arrow.compute.min_max(column).as_py()
    except (OverflowError, ValueError):
        raise ValueError(
            f"{path}: column {name!r} has dates outside of the years 1 to 9999; replace them, or "
            "leave them empty"
        ) from None
    except arrow.ArrowNotImplementedError:  # of some durations; these are numbers
        pass


def _as_values(cells: pd.Series, decimal_comma: bool) -> pd.Series:
    """A column of text as numbers if all its cells are, else as it is; empty cells are missing.

    "NA" and the like are missing only among numbers: they can be the name of a category.
    """
    numbers = cells[~cells.str.strip().isin(NO_NUMBER)]
    for text in [numbers, numbers.str.replace(",", ".")] if decimal_comma else [numbers]:
        try:
            parsed = pd.to_numeric(text)
        except ValueError:
            continue
        if parsed.dtype == object:  # whole numbers beyond 64 bits
            parsed = parsed.astype(float)
        return parsed if len(parsed) == len(cells) else parsed.reindex(cells.index).astype(float)
    return cells.where(cells.str.strip() != "", np.nan)
