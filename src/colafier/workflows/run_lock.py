"""The lock file of a run folder, so that only one process at a time writes to it."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from colafier.readers.json_files import parse

LOCK = "run.lock"


class LockedError(OSError):
    """Another process is writing to the folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; an error if another process holds it.

    The lock of a process that no longer runs on this host is removed. A process on another host
    cannot be checked, so its lock is always respected. Unfinished files that a killed process left
    are removed, too.
    """
    path = folder / LOCK
    content = json.dumps(_this_process())
    while not _created(path, content):
        _remove_if_stale(path, folder)
    try:
        _remove_partial(folder)
        yield
    finally:
        with suppress(OSError):
            if path.read_text(encoding="utf-8") == content:
                path.unlink()


def _created(path: Path, text: str) -> bool:
    """Whether the lock could be created; it appears with its content, or not at all."""
    draft = _unique(path)
    try:
        draft.write_text(text, encoding="utf-8")
        os.link(draft, path)
    except FileExistsError:
        return False
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise
        return False  # another process, which has just got the lock, removed the draft
    finally:
        draft.unlink(missing_ok=True)
    return True


def _unique(path: Path) -> Path:
    """A name that no other process uses; such a file is unfinished, and goes if it is left."""
    return path.with_name(f"{path.name}.{uuid4().hex}.partial")


def _remove_partial(folder: Path) -> None:
    """Remove the unfinished files of a killed process; only the holder of the lock may do so."""
    for path in folder.glob("*.partial"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _remove_if_stale(path: Path, folder: Path) -> None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return  # released just now
    holder = _read(text)
    if holder.get("host") != socket.gethostname() or _runs(holder):
        raise LockedError(
            f"another run is writing to {folder} (process {holder.get('pid', 'unknown')} on "
            f"{holder.get('host', 'an unknown host')}); wait for it or choose another folder, or "
            f"remove {path} if that run is gone"
        )
    aside = _unique(path)
    with suppress(FileNotFoundError):  # another process was faster
        os.rename(path, aside)
        if aside.read_text(encoding="utf-8") != text:  # a new lock took the stale one's place
            with suppress(FileExistsError):
                os.link(aside, path)
        aside.unlink(missing_ok=True)


def _this_process() -> dict[str, Any]:
    pid = os.getpid()
    return {"pid": pid, "host": socket.gethostname(), "started": _start_time(pid)}


def _read(text: str) -> dict[str, Any]:
    try:
        found = parse(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _runs(holder: dict[str, Any]) -> bool:
    """Whether the process that holds a lock of this host still runs."""
    pid = holder.get("pid")
    if type(pid) is not int or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it belongs to another user
    return _start_time(pid) == holder.get("started")  # the process id may have been reused


def _start_time(pid: int) -> str | None:
    """When a process was started, in ticks since boot; None if the system does not provide it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
