"""The folder of a `train` run is one like any other: report, apply, continue, predict, export."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from own_data import colafier, digest, quickly, read_labels, write_decisions, write_npz
from sklearn.datasets import load_digits

from colafier import arrays, resolve, run
from colafier.audit.label_table import COLUMNS
from colafier.nets import inference
from colafier.workflows import apply, model_store
from colafier.workflows.experiment import prepare, settings_of
from colafier.workflows.model_store.onnx_export import NEEDS

pytestmark = pytest.mark.usefixtures("quick")

N = 200
WORDS = (
    "train", "--preset", "digits", "--limit", str(N), "--net", "linear", "--epochs", "4",
    "--method", "ce", "--noise", "symmetric:0.2", "--lr", "0.02", "--batch-size", "16",
)  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do not change it."""
    out = tmp_path_factory.mktemp("runs") / "digits"
    colafier(*WORDS, "--out", out)
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def content(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def some(out: Path, path: Path) -> tuple[Path, dict[int, str]]:
    """Decisions about the rows 0 to 3, one of each choice, and the labels that come of them."""
    lines = read_labels(out)
    other = str((int(lines.loc[0, "original_label"]) + 1) % 10)
    suggested, kept = lines.loc[1, "suggested_label"], lines.loc[2, "original_label"]
    choices = (
        (0, "other", other),
        (1, "suggestion" if suggested != lines.loc[1, "original_label"] else "keep", suggested),
        (2, "keep", kept),
        (3, "exclude", None),
    )
    return write_decisions(out, path, *choices), {0: other, 1: suggested, 2: kept}


def test_it_has_the_files_of_any_run(finished: Path, tmp_path: Path) -> None:
    quickly(write_npz(tmp_path / "a.npz"), tmp_path / "out")
    purified = {path.name for path in (tmp_path / "out").iterdir()}
    trained = {path.name for path in finished.iterdir()}
    assert trained == purified | {"record.json", "noise.json"}
    assert tuple(read_labels(finished).columns) == ("row", "name", *COLUMNS)
    assert read_labels(finished).columns.equals(read_labels(tmp_path / "out").columns)
    summaries = content(tmp_path / "out" / "summary.json"), content(finished / "summary.json")
    assert summaries[0].keys() == summaries[1].keys()
    assert summaries[1]["rows"] == N


def test_the_table_the_summary_and_the_record_agree(finished: Path) -> None:
    lines, record = read_labels(finished), content(finished / "record.json")
    task = prepare(settings_of(finished))
    assert task.truth is not None
    assert lines["original_label"].tolist() == [str(label) for label in task.observed.tolist()]
    right = lines["label"] == [str(label) for label in task.truth.tolist()]
    assert record["audit"]["labels_right_after"] == pytest.approx(right.mean())
    assert record["audit"]["labels_changed"] == lines["action"].eq("relabel").sum() > 0
    assert record["labels_changed"] == (lines["method_label"] != lines["original_label"]).sum()
    actions = lines["action"].value_counts().to_dict()
    assert content(finished / "summary.json")["actions"] == actions


def test_the_report_is_built_again(out: Path) -> None:
    before = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert "report.html: open it in a browser" in colafier("report", out)
    assert (out / "report.html").read_bytes() == before


def test_decisions_are_applied(out: Path, tmp_path: Path) -> None:
    before = read_labels(out)
    file, labels = some(out, tmp_path / "d.json")
    assert "4 decisions applied; 4 rows are decided in all" in colafier("apply", out, file)
    after = read_labels(out)
    assert after.loc[list(labels), "label"].tolist() == list(labels.values())
    assert after.loc[3, "action"] == "exclude"
    pd.testing.assert_frame_equal(after.loc[4:, before.columns], before.loc[4:])
    assert content(out / "summary.json")["reviewed"] == 4
    assert read_labels(out).equals(after)
    colafier("report", out)


def test_training_continues_with_the_decisions(out: Path, tmp_path: Path) -> None:
    file, labels = some(out, tmp_path / "d.json")
    apply.apply(out, [file])
    begun = (out / "metrics.jsonl").read_text().splitlines()
    noise = (out / "noise.json").read_bytes()
    for epochs in (6, 8):  # each time half of the four that were asked for
        said = colafier("apply", out, "--continue")
        assert "Trained with 4 decided rows" in said
        lines = (out / "metrics.jsonl").read_text().splitlines()
        assert lines[:4] == begun
        assert len(lines) == epochs
    after = read_labels(out)
    assert after.loc[list(labels), "label"].tolist() == list(labels.values())
    assert after.loc[[0, 2, 3], "action"].tolist() == ["relabel", "keep", "exclude"]
    assert len(after) == N
    assert content(out / "summary.json")["trusted"] == 3
    assert (out / "noise.json").read_bytes() == noise
    record = content(out / "record.json")
    assert (record["config"]["epochs"], settings_of(out).epochs) == (8, 4)
    assert not (out / "continued").exists()
    model_store.load(out / "model")


def test_a_stopped_continuation_goes_on(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply.apply(out, [some(out, tmp_path / "d.json")[0]])
    twin = Path(shutil.copytree(out, tmp_path / "twin"))
    applied = digest(out)

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("colafier.audit.pipeline.posterior", stop)
        said = colafier("apply", out, "--continue", code=130)
    assert f"colafier apply {out} --continue" in said
    assert {k: v for k, v in digest(out).items() if "continued" not in k} == applied
    assert "colafier apply" in colafier("train", "--resume", "--out", out / "continued", code=2)
    apply.continue_training(out, progress=False)
    apply.continue_training(twin, progress=False)
    pd.testing.assert_frame_equal(read_labels(out), read_labels(twin))
    weights = Path("model") / "model.safetensors"
    assert (out / weights).read_bytes() == (twin / weights).read_bytes()


def test_decisions_for_other_rows_are_refused(out: Path, tmp_path: Path) -> None:
    file = write_decisions(out, tmp_path / "d.json", (0, "exclude", None), fingerprint="1234")
    before = digest(out)
    assert "'1234'" in colafier("apply", out, file, code=2)
    assert digest(out) == before


def test_rows_from_memory_cannot_be_read_again(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    source = arrays(x, np.arange(40) % 2, name="mine")
    settings = resolve(overrides={"method": "ce", "net": "linear", "epochs": 1, "batch_size": 16})
    run(settings, source, tmp_path / "out", progress=False)
    keep = write_decisions(tmp_path / "out", tmp_path / "d.json", (0, "keep", "0"))
    colafier("apply", tmp_path / "out", keep)
    before = read_labels(tmp_path / "out")
    assert "no source 'mine'" in colafier("apply", tmp_path / "out", "--continue", code=2)
    assert read_labels(tmp_path / "out").equals(before)


def new_images(path: Path) -> np.ndarray:
    """Images that were not trained on, as an archive; their true classes."""
    data = load_digits()
    pixels = (data.images[-100:] / 16 * 255).round().astype(np.uint8)  # (100, 8, 8)
    np.savez(path, features=pixels)
    return data.target[-100:]


def test_new_images_are_predicted(finished: Path, tmp_path: Path) -> None:
    truth, out = new_images(tmp_path / "new.npz"), tmp_path / "predictions.csv"
    colafier("predict", finished / "model", tmp_path / "new.npz", "-o", out)
    lines = pd.read_csv(out)
    assert lines["row"].tolist() == list(range(100))
    model = model_store.load(finished / "model")
    with np.load(tmp_path / "new.npz") as archive:
        p = model.predict(archive["features"][:, None])
    assert lines["predicted_label"].tolist() == p.argmax(1).tolist()
    assert (lines["predicted_label"] == truth).mean() > 0.6
    assert lines["problem"].isna().all()


@pytest.mark.skipif(any(find_spec(name) is None for name in NEEDS), reason="colafier[onnx]")
def test_the_model_is_exported(out: Path) -> None:
    said = colafier("export", out / "model", "--onnx")
    assert "largest difference to torch on 64 rows" in said


def test_all_rows_are_predicted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the finished classifier; the scores of each epoch are about the test rows."""
    calls: list[int] = []
    predict = inference.predict

    def counted(module: Any, x: torch.Tensor, normalize: Any, rows: Any = None) -> torch.Tensor:
        calls.append(len(x) if rows is None else len(rows))
        return predict(module, x, normalize, rows)

    monkeypatch.setattr(inference, "predict", counted)
    colafier(*WORDS, "--out", tmp_path / "run")
    assert calls.count(N) == 1
    assert calls.count(360) == 4  # the test rows, after each epoch
