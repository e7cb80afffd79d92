"""Runs: records as they end, continue where they stopped, errors, workers, time left, labels."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_suite import TEXT, made_up, small_suite

from colafier.bench import manifests
from colafier.bench.cost import estimate
from colafier.bench.execute import execute, prepared
from colafier.bench.results import Record, Results
from colafier.bench.runner import Progress, run_all, runs_ahead, threads_each
from colafier.bench.suite import load_suite

pytestmark = pytest.mark.usefixtures("quick")


def silent(record: Record, progress: Progress) -> None:
    """Report nothing."""


def test_runs_continue_where_they_stopped(tmp_path: Path) -> None:
    results = Results(tmp_path, "small")
    runs = small_suite(tmp_path).runs("", seeds=[1])

    def stop_after_two(record: Record, progress: Progress) -> None:
        assert "error" not in record
        if progress.done == 2:
            raise KeyboardInterrupt

    ahead = runs_ahead(runs, results)
    assert ahead == runs
    with pytest.raises(KeyboardInterrupt):
        run_all(ahead, results, jobs=1, redo=False, report=stop_after_two)
    ahead = runs_ahead(runs, results)
    assert ahead == runs[2:]
    progress = run_all(ahead, results, jobs=1, redo=False, report=silent)
    assert (progress.done, progress.total, progress.failures) == (2, 2, 0)
    assert runs_ahead(runs, results) == []
    assert len(runs_ahead(runs, results, redo=True)) == 4
    run_all(runs[:1], results, jobs=1, redo=True, report=silent)
    assert len(results.path.read_text().splitlines()) == 5
    # what another command has done in the meantime is left out
    assert run_all(runs, results, jobs=1, redo=False, report=silent).total == 0


def test_a_record_has_what_the_tables_need_and_is_small(tmp_path: Path) -> None:
    run = small_suite(tmp_path).runs("", ["jocor"])[0]
    record = execute(run)
    assert len(json.dumps(record)) < 1500
    for name in made_up(run, 0.0):
        assert record[name] is not None
    assert record["knows_rate"]
    assert record["hyper"] == {"noise_rate": pytest.approx(record["noise"]["true_rate"], abs=1e-3)}
    assert record["labels_right_before"] == pytest.approx(1 - record["noise"]["true_rate"])


def test_a_run_that_fails_is_recorded_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = tmp_path / "breaks.py"
    method.write_text(
        "from colafier.methods.contract import Method\n"
        "class Breaks(Method):\n"
        "    def loss(self, batch):\n"
        "        raise ZeroDivisionError('no rows')\n"
    )
    monkeypatch.setenv("COLAFIER_METHODS", str(method))
    results = Results(tmp_path, "small")
    runs = small_suite(tmp_path).runs("", ["breaks", "ce"], ["pair:0.2"], [1])
    progress = run_all(runs, results, jobs=1, redo=False, report=silent)
    assert (progress.done, progress.failures) == (2, 1)
    assert results.newest()[runs[0].key]["error"] == "ZeroDivisionError: no rows"
    assert runs_ahead(runs, results) == runs[:1]


def test_workers_run_side_by_side_and_stop_at_once(tmp_path: Path) -> None:
    results = Results(tmp_path, "small")
    runs = small_suite(tmp_path).runs()

    def stop(record: Record, progress: Progress) -> None:
        assert progress.done == 1
        assert record["hardware"]["threads"] == threads_each(2)
        begins.append(time.monotonic())
        raise KeyboardInterrupt

    begins: list[float] = []
    before = dict(os.environ)
    with pytest.raises(KeyboardInterrupt):
        run_all(runs, results, jobs=2, redo=False, report=stop)
    assert time.monotonic() - begins[0] < 10
    assert dict(os.environ) == before
    assert len(results.newest()) == 1


FIRST = """
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from colafier.bench.runner import _follow_the_first

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_follow_the_first)
    pool.submit(time.time).result()
    pool.submit(time.sleep, 600)
    print(*pool._processes, flush=True)
    time.sleep(600)
"""


def test_workers_end_with_the_first_process(tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(FIRST)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        worker = int(first.stdout.readline())
        os.kill(worker, 0)  # it lives
        first.kill()
    for _ in range(100):
        if not alive(worker):
            return
        time.sleep(0.1)
    pytest.fail("the worker still runs")


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended may still be listed."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_missing_files_are_an_error_before_the_first_run(tmp_path: Path) -> None:
    runs = load_suite("features").runs(str(tmp_path), ["ce"])
    with pytest.raises(FileNotFoundError, match="cifar-10-batches-py"):
        run_all(runs, Results(tmp_path, "features"), jobs=2, redo=False, report=silent)


def test_the_time_left_comes_from_runs_of_the_same_entry(tmp_path: Path) -> None:
    runs = small_suite(tmp_path).runs()
    progress = Progress(4, jobs=2, ahead=[(r.part, r.entry.name) for r in runs[:4]])
    assert progress.seconds_left() is None
    progress.finished(made_up(runs[0], 0.5, run_seconds=10.0))  # ce
    assert progress.seconds_left() == 3 * 10 / 2
    progress.finished(made_up(runs[1], 0.5, run_seconds=30.0))  # gce
    assert progress.seconds_left() == (10 + 30) / 2


def test_labels_of_the_suites_are_those_of_the_manifest() -> None:
    for run in load_suite("digits").runs("", ["ce"]):
        prepared(run.settings, run.noise)  # raises if they differ


def test_the_manifest_has_the_labels_of_all_suites() -> None:
    known = json.loads(manifests.FILE.read_text())
    for name in ("digits", "features", "fm-mini", "ablation-mini", "table1a", "table1b", "table2"):
        suite = load_suite(name)
        for run in suite.runs("", [suite.entries[0].name]):
            assert manifests.label_name(run.settings, run.noise) in known


def test_other_labels_than_those_of_the_benchmark_are_refused() -> None:
    run = load_suite("digits").runs("", ["ce"], ["pair:0.4"], [1])[0]
    with pytest.raises(ValueError, match=r"labels of pair:0.4 with seed 1 on digits differ"):
        manifests.check_labels(run.settings, run.noise, {"sha256": "0" * 64, "true_rate": 0.5})


def test_the_cost_grows_with_epochs(tmp_path: Path) -> None:
    text = TEXT.replace("epochs = 1", "epochs = 500")
    short = estimate(small_suite(tmp_path).runs("", ["ce"]))
    long = estimate(small_suite(tmp_path, text).runs("", ["ce"]))
    assert short.runs == long.runs == 4
    assert long.seconds > 5 * short.seconds
    assert "4 runs take about" in str(long)
    assert "steps of 4 rows" in str(long)
