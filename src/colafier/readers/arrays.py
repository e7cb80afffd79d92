"""Arrays from outside: .npy and .npz files, whose claims are checked before anything is allocated.

Only numbers, texts and times are read. Nothing is unpickled.
"""

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from colafier.readers import archives
from colafier.readers.files import DamagedFileError, memory, size_of

Array = np.ndarray[Any, Any]
KINDS = "biufcSUmM"  # of data types: numbers, texts and times
OBJECTS = (
    "holds Python objects or records, which could run code and are not loaded; save numbers, or "
    "texts with array.astype(str)"
)
READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
MOST_EMPTY = 1 << 20  # rows or columns of an array that has no numbers at all


class ArrayArchive:
    """The arrays of an opened .npz file, by name."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        entries = archive.infolist()
        self._entries = {entry.filename.removesuffix(".npy"): entry for entry in entries}
        if len(self._entries) < len(entries):
            raise DamagedFileError(f"{archive.filename} has arrays of the same name")
        self.names = list(self._entries)

    def read(self, name: str) -> Array:
        """One array; an error if it is damaged, or anything but numbers, texts and times."""
        entry = self._entries[name]
        with archives.entry_file(self._archive, entry) as file:
            return _read(file, entry.file_size, f"{self._archive.filename}: array {name}")


@contextmanager
def opened(path: Path) -> Iterator[ArrayArchive]:
    """The arrays of an .npz file."""
    with archives.opened(path) as archive:
        yield ArrayArchive(archive)


def read(path: Path) -> Array:
    """The array of a .npy file."""
    size = size_of(path)
    with path.open("rb") as file:
        return _read(file, size, str(path))


def _read(file: IO[bytes], size: int, what: str) -> Array:
    """An array in NumPy's format, of a file that has `size` bytes."""
    try:
        if reason := _problem(*_header(file), size - file.tell()):
            raise DamagedFileError(f"{what} {reason}")
        file.seek(0)
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        file.read(1)  # at the end of an entry its checksum is compared
    except DamagedFileError:
        raise
    except Exception as error:  # NumPy reads the header as Python text, which can fail in any way
        raise DamagedFileError(f"{what} cannot be read ({error or 'it is damaged'})") from None
    return array


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version not in READ_HEADER:
        raise ValueError(f"unknown version {version}")
    shape, _, kind = READ_HEADER[version](file)
    return shape, kind


def _problem(shape: tuple[int, ...], kind: np.dtype[Any], rest: int) -> str:
    """What is wrong with the claims of a header, if `rest` bytes come after it."""
    if kind.kind not in KINDS:
        return OBJECTS
    if min(shape, default=0) < 0:
        return f"is damaged: its shape is {shape}"
    needed = math.prod(shape) * kind.itemsize
    if needed > rest:
        return f"claims {math.prod(shape):,} values, but the file has {rest:,} bytes; save it again"
    if not needed and math.prod(max(side, 1) for side in shape) > MOST_EMPTY:
        return f"has the shape {shape} without any values"
    if needed > memory():
        return f"needs {needed / 2**30:,.0f} GiB, which is more than the memory of this machine"
    return ""
