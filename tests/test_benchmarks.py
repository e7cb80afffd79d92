"""The benchmark scripts run and print what they promise, on little data."""

import json
import runpy
from pathlib import Path

import pytest

from colafier.bench.suite import FOLDER, load_suite

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_detectors_print_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cleanlab")
    text = (FOLDER / "digits.toml").read_text(encoding="utf-8")
    small = tmp_path / "digits.toml"
    small.write_text(text.replace("epochs = 40", "epochs = 1\nlimit = 200"), encoding="utf-8")
    suite = load_suite(str(small))
    monkeypatch.setattr("colafier.bench.suite.load_suite", lambda _: suite)
    monkeypatch.setattr("sys.argv", ["detectors.py"])
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
