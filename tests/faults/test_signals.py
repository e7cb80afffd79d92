"""Runs that get a signal at a random moment, and two real runs at once."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from commands import ALL, Counts, assert_same, restore
from own_data import fruit
from scenes import Scenes

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TIMES = 20 if ALL else 1  # of each signal
REFUSED = ("another run is writing to", "exists; use --resume")


@pytest.mark.parametrize("name", ["purify_table", "train", "proceed"])
def test_after_a_signal_the_run_is_resumed(
    scenes: Scenes, total: Counts, tmp_path: Path, name: str
) -> None:
    scene, disk = scenes[name], scenes.server.disk
    restore(scene.before, disk)
    begin = time.monotonic()
    assert scenes.server.run(scene.words).code == 0
    seconds = time.monotonic() - begin
    expected = Path(shutil.copytree(disk, tmp_path / "expected", symlinks=True))
    moments = random.Random(0)
    counts = Counts()
    for number in SIGNALS * TIMES:
        restore(scene.before, disk)
        moment = moments.uniform(0, seconds)
        what = f"{name}: {number.name} after {moment:.3f} of {seconds:.3f} s"
        ended = scenes.server.run(scene.words, signal=(number, moment))
        assert ended.code in (0, -number, 130), f"{what}: {ended.output}"
        assert "Traceback" not in ended.output, f"{what}: {ended.output}"
        if ended.code != 0:
            again = scenes.server.run(scene.resume or scene.words)
            if again.code != 0:  # it was too early for a run, or too late
                assert again.error
                if "there is no run" in again.error:
                    assert scenes.server.run(scene.words).code == 0, what
        (scenes.out / "run.lock").unlink(missing_ok=True)
        assert_same(disk, expected, what)
        counts.add(Counts(1, int(ended.code == 130), 1))
    print(f"signals, {name}: {counts}")  # noqa: T201 - shown by make faults
    total.add(counts)


@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_of_two_runs_at_once_one_is_refused(tmp_path: Path, more: tuple[str, ...]) -> None:
    out = tmp_path / "out"
    tables = [tmp_path / "small.csv", tmp_path / "large.csv"]
    for table, rows in zip(tables, (40, 60), strict=True):
        fruit(rows, wrong=0.2).to_csv(table, index=False)
    words = ("--method", "ce", "--epochs", "1", *more)
    runs = [
        subprocess.Popen(
            [sys.executable, "-m", "colafier", "purify", str(table), "-o", str(out), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        for table in tables
    ]
    said = [run.communicate(timeout=300)[0] for run in runs]
    codes = [run.returncode for run in runs]
    assert all("Traceback" not in text for text in said), said
    if not (more and codes == [0, 0]):  # both are right if one came when the other was done
        assert sorted(codes) == [0, 2], said
        assert any(reason in said[codes.index(2)] for reason in REFUSED), said
    lines = pd.read_csv(out / "labels.csv")
    summary = pd.read_json(out / "summary.json", lines=True)
    assert summary["rows"].item() == len(lines)
    if sorted(codes) == [0, 2]:
        assert len(lines) == (40, 60)[codes.index(0)]
    assert not list(out.glob("run.lock*"))
