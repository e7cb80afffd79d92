"""A folder that is filled with images whose names come from outside.

All paths stay inside of the folder, and no file takes the place of another.
"""

import errno
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

# characters that separate parts of a path, cannot be stored, or have a meaning for Windows
UNSAFE = r"[/\\\x00-\x1f\x7f]" if os.name == "posix" else r'[/\\\x00-\x1f\x7f:*?"<>|]'
MAX_BYTES = 200  # of a name; file systems allow 255
NO_LINK = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS}


def safe_name(text: str) -> str:
    """A text as the name of one visible file: no separator, no leading dot, not too long."""
    if not text.strip():
        raise ValueError("an empty name cannot be the name of a file or folder")
    name = re.sub(UNSAFE, "_", text)
    if name.startswith("."):  # `..` leaves the folder, and hidden files are not read again
        name = "_" + name[1:]
    if len(os.fsencode(name)) <= MAX_BYTES:
        return name
    stem, suffix = os.path.splitext(name)
    if len(os.fsencode(suffix)) > MAX_BYTES // 2:  # a dot somewhere in a text
        stem, suffix = name, ""
    room = MAX_BYTES - len(os.fsencode(suffix))
    return os.fsencode(stem)[:room].decode("utf-8", "ignore") + suffix


class OutputFolder:
    """A fresh folder that is filled with class folders and images."""

    def __init__(self, root: Path, link: bool) -> None:
        self.root = root
        self.link = link
        self.linked = 0
        self.copied = 0
        self._classes: dict[str, Path] = {}
        self._numbers: dict[Path, int] = {}

    def class_folder(self, label: str) -> Path:
        """The folder of a class; made at the first call, with a number if its name is taken."""
        if label not in self._classes:
            place = self._free(self.root, safe_name(label))
            place.mkdir()
            self._classes[label] = place
        return self._classes[label]

    def put(self, item: Path | bytes, folder: Path, parts: Sequence[str]) -> Path:
        """Link, copy or write an image to a path in a folder; returns where it is."""
        names = [safe_name(part) for part in parts if part not in ("", ".", "..")]
        if not names:
            raise ValueError(f"{'/'.join(parts)!r} cannot be the name of an image file")
        parent = folder
        for name in names[:-1]:
            parent = self._free(parent, name) if (parent / name).is_file() else parent / name
            parent.mkdir(exist_ok=True)
        place = self._free(parent, *os.path.splitext(names[-1]))
        if isinstance(item, bytes):
            place.write_bytes(item)
        elif self.link and self._linked(item, place):
            self.linked += 1
        else:
            shutil.copy2(item, place)
            self.copied += 1
        return place

    def _linked(self, item: Path, place: Path) -> bool:
        """Whether a hard link could be made; if the file system refuses, a copy is needed."""
        try:
            # a relative symbolic link would be broken in another folder
            os.link(item.resolve(), place)
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
            return False
        return True

    def _free(self, folder: Path, stem: str, suffix: str = "") -> Path:
        """A path in a folder, with a number if it is taken.

        The file system is asked, as it may ignore the case of letters.
        """
        wanted = place = folder / (stem + suffix)
        while place.exists():
            self._numbers[wanted] = self._numbers.get(wanted, 1) + 1
            place = folder / f"{stem}_{self._numbers[wanted]}{suffix}"
        return place
