"""Commands that are run in forks, with kills and full disks, and what they must leave."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ALL = os.environ.get("COLAFIER_FAULTS") == "all"
SERVER = Path(__file__).with_name("command_server.py")
RANDOM_NAME = re.compile(r"[0-9a-f]{32}")
CACHE = "cache"  # has random names; its content shows in the results


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    hangs: bool
    output: str
    steps: list[tuple[str, str, int]]  # operation, path, epochs that were trained before it
    epochs: int  # that were trained, or begun

    @property
    def error(self) -> str:
        """The only error line; any traceback, hang or crash fails the test."""
        assert not self.hangs, f"hangs: {self.output}"
        assert "Traceback" not in self.output, self.output
        lines = [line for line in self.output.splitlines() if line.startswith("error: ")]
        assert self.code == 2, (self.code, self.output)
        assert len(lines) == 1, self.output
        return lines[0]


class CommandServer:
    """A process that runs commands in forks of itself; see `command_server.py`.

    Args:
        place: A folder for what the process needs; commands may change `place / "disk"`.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.disk = place / "disk"
        self.disk.mkdir()
        self.variables = {"COLAFIER_CACHE": str(self.disk / CACHE), "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [sys.executable, SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.variables, "COLAFIER_CACHE": str(place / "warm")},
        )

    def run(
        self,
        words: Sequence[str | Path],
        *,
        copies: Path | None = None,
        kill_at: int | None = None,
        full_at: int | None = None,
        signal: tuple[int, float] | None = None,
    ) -> Ended:
        """Run a command, see `FaultyFiles`.

        Args:
            words: The command.
            copies: Where the disk is copied to before each operation.
            kill_at: Number of the operation before which the process ends.
            full_at: Number of the operation from which on the disk is full.
            signal: A signal that the process gets, and after how many seconds.
        """
        job = {
            "words": [str(word) for word in words],
            "folder": str(self.disk),
            "copies": None if copies is None else str(copies),
            "kill_at": kill_at,
            "full_at": full_at,
            "signal": signal,
            "variables": self.variables,
            "output": str(self.place / "output"),
            "report": str(self.place / "report"),
        }
        return Ended(**self._ask(job))

    def warm(self, words: Sequence[str | Path]) -> None:
        """Run a command in the process itself: what it imports, later ones need not."""
        self._ask({"warm": True, "words": [str(word) for word in words]})

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the process that runs the commands has ended"
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        """End the process."""
        self.process.communicate(timeout=60)


@dataclass
class Counts:
    """What became of the faults of one test."""

    tried: int = 0
    clear: int = 0  # ended in a clear error, or were refused by one
    right: int = 0  # right result in the end

    def add(self, other: "Counts") -> None:
        """Add those of another test."""
        self.tried += other.tried
        self.clear += other.clear
        self.right += other.right

    def __str__(self) -> str:
        return f"{self.tried} tried, {self.clear} clear errors, {self.right} right results"


@dataclass
class Scene:
    """A command, what is there before, and how a user goes on after it was stopped."""

    words: tuple[str | Path, ...]
    before: Path  # a copy of the disk
    resume: tuple[str | Path, ...] | None = None  # the documented next command; None: the same
    epochs: int = 0  # that the command trains
    starts_over: bool = False  # the same command after the end means to train again
    repeated: int = 1  # epochs that may be trained twice: those without a checkpoint
    other: Path | None = None  # another result that is right: of the run that is replaced
    finished: tuple[str, ...] = field(default=("is finished", "exists; give"))


def restore(copy: Path, disk: Path) -> None:
    """Put a copy in place of the disk."""
    shutil.rmtree(disk)
    shutil.copytree(copy, disk, symlinks=True)


def state(disk: Path, *, begun: bool) -> str:
    """A digest of the disk without random names and the content of locks and unfinished files.

    Args:
        disk: The folder.
        begun: Whether it counts that an unfinished file is no longer empty.
    """
    digest = hashlib.sha256()
    for path in sorted(disk.rglob("*"), key=lambda p: RANDOM_NAME.sub("", str(p))):
        digest.update(RANDOM_NAME.sub("", str(path.relative_to(disk))).encode() + b"\0")
        if begun and ".partial" in path.name and path.is_file():
            digest.update(bytes(path.stat().st_size > 0))
        elif path.is_file() and "run.lock" not in path.name and ".partial" not in str(path):
            with contextlib.suppress(OSError):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def result(disk: Path) -> dict[str, Any]:
    """All files with their content, without times and the commit, which may change between runs."""
    return {
        str(path.relative_to(disk)): _content(path)
        for path in sorted(disk.rglob("*"))
        if path.is_file() and path.relative_to(disk).parts[0] != CACHE
    }


def assert_same(found: Path, expected: Path, what: str) -> None:
    """Fail unless two disks hold the same results."""
    there, wanted = result(found), result(expected)
    assert there.keys() == wanted.keys(), f"{what}: {there.keys() ^ wanted.keys()}"
    different = [name for name in wanted if there[name] != wanted[name]]
    assert not different, f"{what}: {different} differ"


def same(found: Path, expected: Path) -> bool:
    """Whether two disks hold the same results."""
    there = {name: content for name, content in result(found).items() if "run.lock" not in name}
    return there == result(expected)


def _content(path: Path) -> Any:
    if path.name == "report.html":
        text = path.read_text(encoding="utf-8").rstrip()
        return "whole" if text.endswith("</html>") else "half"
    if path.suffix in (".pt", ".onnx"):
        return path.stat().st_size > 0
    if path.suffix in (".json", ".jsonl"):
        text = path.read_text(encoding="utf-8")
        for parts in ([text], text.splitlines()):
            with contextlib.suppress(ValueError):
                return [_lasting(json.loads(part)) for part in parts]
    return path.read_bytes()


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        times = ("seconds", "saved", "started", "finished", "at", "commit")
        return {
            key: _lasting(item)
            for key, item in value.items()
            if key not in times and not key.endswith("_seconds")
        }
    return [_lasting(item) for item in value] if isinstance(value, list) else value
