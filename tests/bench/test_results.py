"""Records: one line per run, whole or not at all, from several processes at once."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_suite import made_up, small_suite

from colafier.bench.results import Results, is_done


def test_the_newest_record_of_a_run_counts(tmp_path: Path) -> None:
    results = Results(tmp_path / "new" / "folder", "small")
    assert results.newest() == {}
    run, other = small_suite(tmp_path).runs()[:2]
    for record in (made_up(run, 0.5), made_up(other, 0.6), made_up(run, 0.7)):
        results.append(record)
    assert len(results.path.read_text().splitlines()) == 3
    found = results.newest()
    assert {key: record["test_accuracy"] for key, record in found.items()} == {
        run.key: 0.7,
        other.key: 0.6,
    }


def test_what_counts_as_done(tmp_path: Path) -> None:
    run = small_suite(tmp_path).runs()[0]
    assert not is_done(run, {})
    assert is_done(run, {run.key: made_up(run, 0.5)})
    assert not is_done(run, {run.key: made_up(run, 0.5, settings="other")})
    assert not is_done(run, {run.key: made_up(run, 0.5, error="ValueError: no")})


def test_lines_of_many_writers_stay_whole(tmp_path: Path) -> None:
    results = Results(tmp_path, "small")
    run = small_suite(tmp_path).runs()[0]
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(results.append, made_up(run, 0.5, seed=n)) for n in range(24)]
    for job in jobs:
        job.result()
    assert len(results.newest()) == len(results.path.read_text().splitlines()) == 24


def test_a_full_disk_leaves_no_part_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = Results(tmp_path, "small")
    run = small_suite(tmp_path).runs()[0]
    results.append(made_up(run, 0.5))
    before = results.path.read_bytes()
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, line: write(file, line[:10]))
        with pytest.raises(OSError, match="disk is full"):
            results.append(made_up(run, 0.6))
    assert results.path.read_bytes() == before
    results.append(made_up(run, 0.7))
    assert results.newest()[run.key]["test_accuracy"] == 0.7


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    results = Results(tmp_path, "small")
    results.path.write_text('{"part": 1}\n')
    with pytest.raises(ValueError, match="line 1 is not the record of a run"):
        results.newest()
