"""File operations that are counted, copied or made to fail, inside of the process that does them.

A process that is killed leaves what is on the disk, and nothing else. So a copy of the folder
before each operation, and in the middle of each write, is what a kill at this moment leaves.
"""

import builtins
import errno
import io
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink"}
WRITE, HALF, OPEN = "write", "half of a write", "open"
NEED_ROOM = {WRITE, HALF, OPEN, "os.mkdir", "os.link", "os.symlink"}
KILLED = 137  # as of a process that got SIGKILL

open_file = io.open


class FaultyFiles:
    """The operations of this process on the files below a folder.

    Args:
        folder: Operations elsewhere are not looked at.
        copies: Where the folder is copied to before each operation; None: it is not copied.
        kill_at: Number of the operation before which the process ends; None: it does not.
        full_at: Number of the operation from which on the disk is full; None: it has room.
        figure: Noted with each operation, such as the number of epochs that were trained.
    """

    def __init__(
        self,
        folder: Path,
        copies: Path | None,
        kill_at: int | None,
        full_at: int | None,
        figure: Callable[[], int],
    ) -> None:
        self.folder = os.fspath(folder)
        self.copies = copies
        self.kill_at = kill_at
        self.full_at = full_at
        self.figure = figure
        self.steps: list[tuple[str, str, int]] = []
        self.busy = False

    def install(self) -> None:
        """From now on operations are counted; this cannot be undone."""
        files = self

        class CountedFile(io.FileIO):
            def write(self, data: Any) -> int:
                view = memoryview(data).cast("B")
                half = len(view) // 2
                files.step(WRITE, str(self.name))
                super().write(view[:half])
                files.step(HALF, str(self.name))
                super().write(view[half:])
                return len(view)

        def counted_open(
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            rest = (buffering, encoding, errors, newline, closefd, opener)
            if not set(mode) & set("wax+") or isinstance(file, int) or not files.watches(file):
                return open_file(file, mode, *rest)
            raw = CountedFile(file, mode.translate({ord("b"): "", ord("t"): ""}), closefd, opener)
            kind = io.BufferedRandom if "+" in mode else io.BufferedWriter
            binary: Any = kind(raw)  # type: ignore[type-var]
            return binary if "b" in mode else io.TextIOWrapper(binary, encoding, errors, newline)

        sendfile = os.sendfile

        def counted_sendfile(*args: Any, **kwargs: Any) -> int:
            files.step(WRITE, "a copy")
            return sendfile(*args, **kwargs)

        io.open = builtins.open = counted_open  # type: ignore[assignment]
        os.sendfile = counted_sendfile
        sys.addaudithook(self.hook)

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by Python before each operation, which fails with the error that is raised."""
        if event == "open":
            path, _, flags = args
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and self.watches(path):
                self.step(OPEN, str(path))
        elif event in CHANGES:
            # shutil.rmtree names files relative to an open folder
            inside = event in ("os.remove", "os.rmdir") and args[1] not in (None, -1)
            if inside or any(self.watches(path) for path in args[:2]):
                self.step(event, str(args[0]))

    def watches(self, path: Any) -> bool:
        """Whether a path is in the folder."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self.folder + os.sep)

    def step(self, what: str, path: str) -> None:
        """An operation is about to be done."""
        if self.busy:
            return
        number = len(self.steps)
        self.steps.append((what, path, self.figure()))
        if self.copies is not None:
            self.copy(number)
        if number == self.kill_at:
            os._exit(KILLED)
        if self.full_at is not None and number >= self.full_at and what in NEED_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def copy(self, number: int) -> None:
        """Keep what is in the folder now."""
        assert self.copies is not None
        self.busy = True  # these operations are not counted
        try:
            shutil.copytree(self.folder, self.copies / str(number), symlinks=True)
        finally:
            self.busy = False
