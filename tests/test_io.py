"""Files and folders appear whole or not at all; content is hashed; JSON is valid."""

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

from colafier._io import (
    append_json_line,
    atomic_file,
    atomic_folder,
    content_digest,
    file_digest,
    to_json,
    write_json_lines,
)

Atomic = Callable[[Path], AbstractContextManager[Path]]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail(atomic: Atomic, path: Path, error: type[BaseException]) -> None:
    with atomic(path) as partial:
        (partial / "half" if partial.is_dir() else partial).write_text("half")
        raise error


def test_a_file_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "labels.csv"
    with atomic_file(path) as partial:
        partial.write_text("a")
        assert not path.exists()
    assert path.read_text() == "a"
    assert names(path.parent) == ["labels.csv"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_older_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("before")
    with pytest.raises(error):
        fail(atomic_file, path, error)
    assert path.read_text() == "before"
    assert names(tmp_path) == ["labels.csv"]


def test_a_folder_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "model"
    left = path.with_name("model.partial")  # by a process that was killed
    left.mkdir(parents=True)
    (left / "old").touch()
    with atomic_folder(path) as partial:
        (partial / "a").write_text("a")
        assert not path.exists()
    assert names(path.parent) == ["model"]
    assert names(path) == ["a"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_no_folder(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        fail(atomic_folder, tmp_path / "model", error)
    assert names(tmp_path) == []


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(FileExistsError, match="remove it, or give another folder"):
        fail(atomic_folder, tmp_path / "model", ValueError)
    assert names(tmp_path) == ["model"]


def test_digests_are_sha256(tmp_path: Path) -> None:
    expected = hashlib.sha256("Grüße 2".encode()).hexdigest()
    assert (
        content_digest("Grüße 2") == content_digest("Grü", [b"", "ße".encode(), " 2"]) == expected
    )
    (tmp_path / "a").write_text("Grüße 2", encoding="utf-8")
    assert file_digest(tmp_path / "a") == expected


def test_json_is_valid(tmp_path: Path) -> None:
    record = {"a": np.float64("nan"), 1: [np.arange(2), (float("-inf"), 0.5)], "p": tmp_path}
    assert json.loads(to_json(record)) == {
        "a": None,
        "1": [[0, 1], [None, 0.5]],
        "p": str(tmp_path),
    }


def test_json_lines_are_replaced_and_added(tmp_path: Path) -> None:
    path = tmp_path / "new" / "metrics.jsonl"
    append_json_line(path, {"epoch": 7})
    write_json_lines(path, [{"epoch": 0}, {"epoch": 1, "loss": float("inf")}])
    append_json_line(path, {"epoch": 2})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [{"epoch": 0}, {"epoch": 1, "loss": None}, {"epoch": 2}]
    assert names(path.parent) == ["metrics.jsonl"]
