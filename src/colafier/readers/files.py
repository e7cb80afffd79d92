"""Opening files from outside: regular files of a limited size only."""

import os
import stat
from pathlib import Path


class DamagedFileError(ValueError):
    """A file is not what it should be; the message says what to do."""


def size_of(path: Path, limit: int | None = None) -> int:
    """The size of a file; a pipe, a device, a folder and a file beyond the limit are refused.

    Nothing is opened before, because opening a pipe or reading a device would never end.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{path} does not exist") from None
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is not a regular file; give one, or a copy of its content")
    if limit is not None and found.st_size > limit:
        raise DamagedFileError(
            f"{path} has {found.st_size:,} bytes, but no more than {limit:,} are read"
        )
    return found.st_size


def read_bytes(path: Path, limit: int) -> bytes:
    """The content of a file that has at most `limit` bytes."""
    size = size_of(path, limit)
    with path.open("rb") as file:
        content = file.read(size + 1)  # Python allocates this at once
    if len(content) > size:
        raise DamagedFileError(f"{path} grows while it is read; close what is writing to it")
    return content


def memory() -> int:
    """Bytes of memory that this machine has; no array that is larger can be used."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return 1 << 40
