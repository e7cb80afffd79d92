"""The benchmark scripts run and print what they promise, on little data."""

import json
import runpy
from pathlib import Path

import pytest
import torch

from colafier.bench.suite import FOLDER, load_suite
from colafier.core import holdout_check

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


def test_class_prior_floor_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--cases", "rare, symmetric:0.4", "--shares", "0.7", "--seeds", "1", "--epochs", "1"]
    monkeypatch.setattr("sys.argv", ["class_prior_floor.py", *words])
    runpy.run_path(str(BENCHMARKS / "class_prior_floor.py"), run_name="__main__")
    line, _, _, row = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert 0.6 < found["labels_right_before"] < 0.7  # the noise is that of all rows
    labels, test = found["labels_right_after"], found["test_accuracy"]
    assert row == f"| rare, symmetric:0.4 | {labels:.3f} ({test:.3f}) |"


def test_holdout_check_prints_its_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = holdout_check.SHARED_ERRORS
    monkeypatch.setattr("sys.argv", ["holdout_check.py", "--sims", "2", "--sizes", "300"])
    runpy.run_path(str(BENCHMARKS / "holdout_check.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    (known,) = [line for line in lines if "2 % 'exactly equal'" in line]
    (clear,) = [line for line in lines if line.startswith("| 300 | 0.5 | all |")]
    shares = [float(cell) for cell in clear.strip("| ").split(" | ")[3:]]
    assert len(shares) == 10
    assert shares[0] == 0  # predictions 30 points worse than the labels
    assert shares[-1] > 0.5  # 40 points better
    assert float(known.strip("| ").split(" | ")[1]) > 0.7
    assert sum(line.startswith("| CIFAR-10N worst") for line in lines) == 12
    assert lines[-1].startswith("One look at 300 rows")
    assert before == holdout_check.SHARED_ERRORS


def test_simulated_rows_are_as_accurate_as_asked() -> None:
    script = runpy.run_path(str(BENCHMARKS / "holdout_check.py"))
    generator = torch.Generator().manual_seed(3)
    for noise in script["NOISES"]:
        case = script["Case"](1000, 0.6, 0.2, noise, 0.5)
        gen, dis, _, observed, truth = script["draw"](case, 10, generator)
        for classes, right in ((gen, 0.8), (dis, 0.8), (observed, 0.6)):
            assert float((classes == truth).double().mean()) == pytest.approx(right, abs=0.02)


@pytest.mark.parametrize("runs", [False, True])
def test_lid_evidence_prints_a_table(
    runs: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--noises", "symmetric:0.35", "--seeds", "11", "--limit", "200", "--epochs", "5"]
    monkeypatch.setattr("sys.argv", ["lid_evidence.py", *words, *(["--runs"] if runs else [])])
    runpy.run_path(str(BENCHMARKS / "lid_evidence.py"), run_name="__main__")
    first, *table = capsys.readouterr().out.splitlines()
    found = json.loads(first)
    if runs:
        assert [row.split(" | ")[1] for row in table[2:]] == ["usual", "plain"]
        assert all(0 < found[name]["labels_right_after"] <= 1 for name in ("usual", "plain"))
        return
    names = list(found["scores"])
    assert names[:3] == ["posterior", "posterior + lid_dis", "lid_dis"]
    assert {"difference 128 k20", "posterior + difference 128 k_by_labels"} <= set(names)
    assert all(0 <= value <= 1 for score in found["scores"].values() for value in score.values())
    assert len(table) == 2 + len(names)
