"""One run at a time in a folder, and no lock outlives its run."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from own_data import colafier, digest, quickly, write_npz

from colafier import resolve
from colafier.audit import pipeline
from colafier.workflows import experiment, run_dir
from colafier.workflows.run_dir import RunConfig, claimed
from colafier.workflows.run_lock import LOCK, LockedError, locked

pytestmark = pytest.mark.usefixtures("quick")

TINY = ("--preset", "digits", "--limit", "60", "--net", "linear", "--epochs", "1", "--method", "ce")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_npz(tmp_path_factory.mktemp("source") / "clouds.npz")


def words(kind: str, source: Path, out: Path) -> tuple[str | Path, ...]:
    """A command that takes no time."""
    if kind == "purify":
        return ("purify", source, "-o", out, "--method", "ce", "--epochs", "1")
    return ("train", *TINY, "--out", out)


@contextmanager
def another_process(out: Path) -> Iterator[int]:
    """Another process holds the lock of a folder; its number."""
    code = (
        "import sys; from pathlib import Path\n"
        "from colafier.workflows.run_lock import locked\n"
        "with locked(Path(sys.argv[1])):\n"
        "    print('locked', flush=True); sys.stdin.read()"
    )
    out.mkdir(exist_ok=True)
    command = [sys.executable, "-c", code, str(out)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"locked\n"
            yield process.pid
        finally:
            process.communicate(timeout=60)
    assert process.returncode == 0


def held_by(pid: int, host: str | None = None, **more: Any) -> str:
    return json.dumps({"pid": pid, "host": host or socket.gethostname(), **more})


def dead() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.mark.parametrize("kind", ["purify", "train"])
def test_the_second_of_two_runs_is_refused(kind: str, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with another_process(out) as pid:
        before = digest(out)
        said = colafier(*words(kind, source, out), code=2)
        assert digest(out) == before
        with_overwrite = colafier(*words(kind, source, out), "--overwrite", code=2)
    line = said.splitlines()[-1]
    assert line.startswith(f"error: another run is writing to {out} (process {pid} on ")
    assert "wait for it or choose another folder" in line
    assert with_overwrite == said
    assert not (out / LOCK).exists()
    colafier(*words(kind, source, out))  # now it is free


@pytest.mark.parametrize("kind", ["purify", "train"])
def test_a_run_is_refused_while_another_runs_in_this_process(
    kind: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run starts where the first is in the middle of training."""
    out = tmp_path / "out"
    said: list[str] = []
    where = "colafier.audit.pipeline.fit"
    fit = pipeline.fit

    def start_another(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(where, fit)
        said.append(colafier(*words(kind, source, out), "--overwrite", code=2))
        return fit(*args, **kwargs)

    monkeypatch.setattr(where, start_another)
    colafier(*words(kind, source, out))
    assert f"another run is writing to {out} (process {os.getpid()} on" in said[0]
    assert (out / "summary.json").exists()
    assert not (out / LOCK).exists()


@pytest.mark.parametrize("command", ["apply", "continue"])
def test_decisions_wait_for_the_run(command: str, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    quickly(source, out)
    decisions = tmp_path / "d.json"
    decisions.write_text("{}")
    (out / LOCK).write_text(held_by(1, "another-host"))
    before = digest(out)
    more = (decisions,) if command == "apply" else ("--continue",)
    said = colafier("apply", out, *more, code=2)
    assert "another run is writing to" in said
    assert digest(out) == before


@pytest.mark.parametrize("kind", ["purify", "train"])
def test_the_lock_of_a_dead_process_is_taken_over(kind: str, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / LOCK).write_text(held_by(dead()))
    colafier(*words(kind, source, out))
    assert (out / "summary.json").exists()
    assert {path.name for path in out.iterdir() if LOCK in path.name} == set()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "1"}', held_by(-1), held_by(0)])
def test_a_lock_that_names_no_process(content: str, tmp_path: Path) -> None:
    """Of this host it is stale; where the host is unknown nobody can tell."""
    (tmp_path / LOCK).write_text(content)
    if "host" in content:
        with locked(tmp_path):
            pass
        assert not (tmp_path / LOCK).exists()
        return
    with pytest.raises(
        LockedError, match=r"an unknown host.*remove .*run\.lock if that run is gone"
    ):
        locked(tmp_path).__enter__()
    assert (tmp_path / LOCK).read_text() == content


def test_a_number_that_another_process_has_got_by_now_is_stale(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(held_by(os.getpid(), started="1"))
    if not Path("/proc/self/stat").exists():
        pytest.skip("the system does not say when a process was started")
    with locked(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["started"] != "1"


@pytest.mark.parametrize("kind", ["purify", "train"])
def test_the_lock_of_another_host_is_respected(kind: str, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / LOCK).write_text(held_by(dead(), "another-host"))
    said = colafier(*words(kind, source, out), code=2)
    assert "on another-host)" in said
    assert f"remove {out / LOCK} if that run is gone" in said
    assert [path.name for path in out.iterdir()] == [LOCK]


@pytest.mark.parametrize("kind", ["purify", "train"])
@pytest.mark.parametrize(
    ("error", "code"), [(OSError("the disk is full"), 2), (KeyboardInterrupt(), 130)]
)
def test_no_lock_stays_after_an_error_or_ctrl_c(
    kind: str,
    error: BaseException,
    code: int,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "out"

    def fail(*_: Any, **__: Any) -> None:
        assert (out / LOCK).exists()
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("colafier.audit.pipeline.posterior", fail)  # after training
        said = colafier(*words(kind, source, out), code=code)
    assert "--resume" in said
    names = {path.name for path in out.iterdir()}
    assert LOCK not in names
    assert {"config.json", "checkpoint.pt", "metrics.jsonl"} <= names
    resume = (
        ("purify", "--resume", out) if kind == "purify" else ("train", "--resume", "--out", out)
    )
    colafier(*resume)
    assert (out / "summary.json").exists()
    assert not (out / LOCK).exists()


def test_an_error_before_training_leaves_no_folder(tmp_path: Path) -> None:
    config = RunConfig("train", {"source": "digits"}, "1234")
    out = tmp_path / "new" / "out"

    def fail() -> None:
        with claimed(out, config, resume=False, overwrite=False):
            assert (out / LOCK).exists()
            raise ValueError("a typo")

    with pytest.raises(ValueError, match="a typo"):
        fail()
    assert not out.exists()


def test_of_many_processes_one_gets_the_lock(tmp_path: Path) -> None:
    """All of them find the same stale lock at the same time."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from colafier.workflows.run_lock import locked, LockedError\n"
        "out = Path(sys.argv[1])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "try:\n"
        "    with locked(out):\n"
        "        print('got it', flush=True); sys.stdin.read()\n"
        "except LockedError:\n"
        "    print('refused', flush=True)"
    )
    (tmp_path / LOCK).write_text(held_by(dead()))
    command = [sys.executable, "-c", code, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(4)]
    try:
        assert [process.stdout.readline() for process in processes] == ["ready\n"] * 4
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.stdout.readline() for process in processes]
    finally:
        for process in processes:
            process.communicate(timeout=60)
    assert sorted(said) == ["got it\n"] + ["refused\n"] * 3
    assert not list(tmp_path.iterdir())


def test_run_from_python_is_locked_too(tmp_path: Path) -> None:
    settings = resolve("digits", {"limit": 60, "net": "linear", "epochs": 1, "method": "ce"})
    task = experiment.prepare(settings)
    with locked(tmp_path), pytest.raises(LockedError, match="another run is writing to"):
        experiment.train(settings, task, tmp_path, progress=False)
    assert not run_dir.is_run(tmp_path)
