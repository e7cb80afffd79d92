"""The benchmark scripts run and print what they promise, on made-up files."""

import importlib
import json
import runpy
import struct
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Idx files of 70 training and 20 test images, and noisy labels of the first 60."""
    rng = np.random.default_rng(0)
    for part, n in (("train", 70), ("t10k", 20)):
        images, labels = rng.integers(0, 256, (n, 28, 28)), np.arange(n) % 10
        for name, values in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
            (tmp_path / f"{part}-{name}-ubyte").write_bytes(head + values.astype("u1").tobytes())
    noisy = np.arange(60) % 10
    noisy[:15] = (noisy[:15] + 1) % 10
    np.save(tmp_path / "noisy.npy", noisy)
    return tmp_path


@pytest.mark.parametrize("method", ["colafier", "ce"])
def test_fm_mini_prints_one_line(
    method: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"--seeds 1 2 --epochs 1 --limit 60 --method {method} --variant authors".split()
    where = ["--data", str(folder), "--labels", str(folder / "noisy.npy")]
    monkeypatch.setattr("sys.argv", ["fm_mini.py", *words, *where])
    runpy.run_path(str(BENCHMARKS / "fm_mini.py"), run_name="__main__")
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert result["seeds"] == [1, 2]
    assert result["true_rate"] == result["config"]["limit"] / 240  # 15 of 60
    each = [one["test_accuracy_last5"] for one in result["each"]]
    assert result["test_accuracy_last5"] == pytest.approx(sum(each) / 2, abs=1e-4)
    assert result["labels_right_before"] == 0.75
    assert len(result["test_accuracy_by_epoch"]) == 1
    hyper = result["config"]["hyper"]
    assert (hyper.get("variant"), hyper.get("warmup"), hyper.get("ramp")) == (
        ("authors", 3, 5) if method == "colafier" else (None, None, None)
    )


def test_methods_prints_a_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    fm_mini = importlib.import_module("fm_mini")
    small = fm_mini.conditions(str(folder), str(folder / "noisy.npy"), limit=60, epochs=1)
    monkeypatch.setattr(fm_mini, "conditions", lambda: small)
    words = ["--fm-mini", "--methods", "ce", "jocor", "--seeds", "1", "2"]
    monkeypatch.setattr("sys.argv", ["methods.py", *words])
    runpy.run_path(str(BENCHMARKS / "methods.py"), run_name="__main__")
    *lines, head, _, first, second = capsys.readouterr().out.splitlines()
    runs = [json.loads(line) for line in lines]
    assert [(run["method"], run["seed"]) for run in runs] == [
        ("ce", 1),
        ("ce", 2),
        ("jocor", 1),
        ("jocor", 2),
    ]
    assert "last epoch" in head
    assert sum("`ce` |" in row for row in (first, second)) == 1
    assert sum("`jocor` (knows the rate)" in row for row in (first, second)) == 1


def test_detectors_print_a_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cleanlab")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    fm_mini = importlib.import_module("fm_mini")
    small = fm_mini.conditions(str(folder), str(folder / "noisy.npy"), limit=60, epochs=1)
    monkeypatch.setattr(fm_mini, "conditions", lambda: small)
    monkeypatch.setattr("sys.argv", ["detectors.py", "--fm-mini"])
    runpy.run_path(str(BENCHMARKS / "detectors.py"), run_name="__main__")
    _, _, *rows = capsys.readouterr().out.splitlines()
    cells = [row.strip("| ").split(" | ") for row in rows]
    names = ["confident_learning", "small_loss", "mean_margin", "knn_voting"]
    assert [cell[0] for cell in cells] == [f"`{name}`" for name in names]
    assert all(0 <= float(value) <= 1 for cell in cells for value in cell[1:])


def test_report_size_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["report_size.py", "--rows", "300"])
    monkeypatch.setattr("shutil.which", lambda _: None)  # without a browser
    runpy.run_path(str(BENCHMARKS / "report_size.py"), run_name="__main__")
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert result["rows"] == 300
    assert 0 < result["of_which_pictures_and_reasons"] < result["page_megabytes"] < 15


def test_warmups_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    words = ["--methods", "cores2", "pencil", "--seeds", "1", "--epochs", "4", "--limit", "60"]
    monkeypatch.setattr("sys.argv", ["warmups.py", *words])
    runpy.run_path(str(BENCHMARKS / "warmups.py"), run_name="__main__")
    *lines, head, _, first, second, third, fourth = capsys.readouterr().out.splitlines()
    found = [json.loads(line) for line in lines]
    assert [line["warmup"] for line in found] == [1, 2, 1, 2] * 2
    assert all(0 <= line["agreement"] <= 1 for line in found)
    assert head.startswith("| method | warm-up | held-out agreement")
    mean = (found[0]["agreement"] + found[4]["agreement"]) / 2
    assert first.split("|")[3].strip() == f"{mean:.3f}"
    assert [row.split("|")[1].strip() for row in (second, third, fourth)] == [
        "`cores2`",
        "`pencil`",
        "`pencil`",
    ]
