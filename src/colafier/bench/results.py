"""The records of a suite's runs: one JSON line per run, which several processes may append to."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colafier._io import to_json
from colafier.bench.suite import Run
from colafier.workflows.run_lock import LockedError, locked

Record = dict[str, Any]
Key = tuple[str, str, str, int]
PATIENCE = 60.0  # seconds to wait for another process that is writing a line


@dataclass(frozen=True)
class Results:
    """The records in `FOLDER/SUITE.jsonl`; of several for one run, the newest counts."""

    folder: Path
    suite: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"{self.suite}.jsonl"

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a line, whole or not at all."""
        line = (to_json(record) + "\n").encode()
        self.folder.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with locked(self.folder), self.path.open("ab") as file:
                    _write_whole(file.fileno(), line)
                return
            except LockedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def newest(self) -> dict[Key, Record]:
        """The newest record of each run, by `Run.key`."""
        if not self.path.exists():
            return {}
        records = {}
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                record = json.loads(line)
                records[key_of(record)] = record
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{self.path}, line {number} is not the record of a run; remove that line"
                ) from error
        return records


def key_of(record: Mapping[str, Any]) -> Key:
    """`Run.key` of the run that a record describes."""
    return record["part"], record["entry"], record["noise"]["name"], record["seed"]


def failed(record: Mapping[str, Any]) -> bool:
    """Whether a run ended with an error."""
    return "error" in record


def is_done(run: Run, records: Mapping[Key, Record]) -> bool:
    """Whether there is a record of a run with the same settings that did not fail."""
    record = records.get(run.key)
    return record is not None and not failed(record) and record["settings"] == run.digest()


def _write_whole(file: int, line: bytes) -> None:
    """Write a line to the end of a file; if it does not fit, the file stays as it was."""
    before = os.fstat(file).st_size
    try:
        written = os.write(file, line)
        if written < len(line):
            raise OSError("the disk is full")
    except OSError:
        os.ftruncate(file, before)
        raise
