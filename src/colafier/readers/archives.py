"""Zip archives from outside, which are never unpacked: entries are listed, and read one by one."""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from colafier.readers.files import DamagedFileError, size_of

MAX_ENTRIES = 2_000_000
DAMAGED = (  # all that zipfile raises, among them NotImplementedError for an unknown compression
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, ValueError, LookupError, EOFError,
    NotImplementedError, RuntimeError, OverflowError, MemoryError,
)  # fmt: skip
MAX_RATIO = 1100  # of a size to the compressed one: zlib reaches 1032


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive, after a check of the names and sizes of its entries."""
    size = size_of(path)
    try:
        archive = zipfile.ZipFile(path)
    except DAMAGED as error:
        raise DamagedFileError(
            f"{path} is not a readable zip: {error or 'it is damaged'}; save or export it again"
        ) from None
    with archive:
        entries = archive.infolist()
        if len(entries) > MAX_ENTRIES:
            raise DamagedFileError(f"{path} has {len(entries):,} entries, more than are read")
        for entry in entries:
            if reason := _problem(entry, size):
                raise DamagedFileError(f"{path} was not read: {entry.filename[:200]!r} {reason}")
        yield archive


def read_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limit: int) -> bytes:
    """The content of an entry that has at most `limit` bytes."""
    if entry.file_size > limit:
        raise DamagedFileError(
            f"{entry.filename} is larger than {limit:,} bytes, so it is not read"
        )
    with entry_file(archive, entry) as file:
        return file.read(limit)  # zipfile stops at the size that it states


@contextmanager
def entry_file(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """An entry to be read; damage that is found in the block is told in one way."""
    try:
        with archive.open(entry) as file:
            yield file
    except DamagedFileError:
        raise
    except DAMAGED as error:
        reason = error or "the file ends too early"
        raise DamagedFileError(
            f"{archive.filename}: {entry.filename} cannot be read ({reason}); save it again"
        ) from None


def _problem(entry: zipfile.ZipInfo, size: int) -> str:
    """What is wrong with an entry of an archive of this size; empty if nothing is."""
    name = entry.filename
    windows = PureWindowsPath(name)
    if windows.is_absolute() or windows.drive or PurePosixPath(name).is_absolute():
        return "names an absolute path"
    if ".." in windows.parts:
        return "names a folder outside of the archive"
    if entry.flag_bits & 1:
        return "is encrypted; save it without a password"
    if entry.compress_size > size or entry.file_size > MAX_RATIO * entry.compress_size + 1024:
        return f"claims {entry.file_size:,} bytes, which the archive cannot hold"
    return ""
