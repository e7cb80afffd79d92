"""`colafier compare` on folders as runs leave them."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from colafier.cli.app import app
from colafier.workflows import compare as workflow
from colafier.workflows.run_dir import FORMAT

ASKED = {"method": "ce", "source": "digits", "noise": "pair:0.3", "hyper": {"rate": 1}}


def make_run(
    folder: Path, seed: int, record: dict[str, Any] | None, kind: str = "train", **asked: Any
) -> Path:
    folder.mkdir(parents=True)
    config = {"asked": {**ASKED, "seed": seed, **asked}, "fingerprint": f"data{seed}"}
    (folder / "config.json").write_text(json.dumps({"format": FORMAT, "kind": kind, **config}))
    (folder / "summary.json").write_text('{"rows": 100, "estimated_noise_rate": 0.25}')
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")  # of the model, not of a run
    lines = [{"epoch": 0, "test_accuracy": 0.5, "seconds": 2.0, "lid_auroc": None}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if record is not None:
        (folder / "record.json").write_text(json.dumps(record))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    out = tmp_path / "runs"
    for seed, accuracy in ((1, 0.8), (2, 0.9)):
        record = {"test_accuracy": accuracy, "audit": {"labels_right_after": 0.7}, "auroc": None}
        make_run(out / "ce" / f"seed{seed}", seed, record)
    make_run(out / "other", 1, {"test_accuracy": 0.4}, hyper={"rate": 2})
    (make_run(out / "stopped", 1, {}) / "summary.json").unlink()
    (make_run(out / "damaged", 1, {}) / "metrics.jsonl").write_text("[1]\n")
    (out / "nothing").mkdir()
    (out / "notes.txt").write_text("")
    return out


def call(*words: object, code: int = 0) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["compare", *map(str, words)])
    assert done.exit_code == code, done.output
    return done.output


def test_runs_are_grouped_and_the_rest_is_named(runs: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    said = call(*sorted(runs.iterdir()), runs / "ce", "--out", page)
    assert "ce, rate=1" in said
    assert "85.0 ± 7.1" in said
    assert "4 left out" in said
    for name, why in (("stopped", "not finished"), ("damaged", "is damaged"),
                      ("nothing", "no run"), ("notes.txt", "not a folder")):  # fmt: skip
        assert name in said
        assert why in said
    assert "85.0 ± 7.1" in page.read_text()


def test_figures_and_epochs_of_a_run(runs: Path) -> None:
    found = workflow.read(runs / "ce" / "seed1")
    assert found.figures == {
        "test_accuracy": 0.8,
        "audit.labels_right_after": 0.7,
        "estimated_noise_rate": 0.25,
        "seconds": 2.0,
    }
    assert found.epochs == [{"test_accuracy": 0.5}]
    assert (found.seed, found.settings["rate"]) == (1, 1)


def test_runs_without_truth_have_fewer_columns(tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = make_run(tmp_path / "out" / str(seed), seed, None, kind="purify")
        config = json.loads((folder / "config.json").read_text()) | {"fingerprint": "same"}
        (folder / "config.json").write_text(json.dumps(config))
    said = call(tmp_path / "out", "--out", tmp_path / "page.html")
    assert "labels estimated wrong" in said
    assert "accuracy" not in said
    assert "25.0 ± 0.0" in said


def test_nothing_to_compare_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert "no finished run" in call(tmp_path, tmp_path / "absent", "--out", page, code=2)
    assert not page.exists()
