"""Predict, check and export with the model of an earlier run, through the command line."""

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from own_data import CLASSES, colafier, digest, fruit, quickly, write_images, write_npz

from colafier.workflows import model_store
from colafier.workflows.model_store.onnx_export import NEEDS

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table; do not change it."""
    folder = tmp_path_factory.mktemp("table")
    frame = fruit(240)
    frame["constant"] = 1
    frame.loc[7, "color"] = None
    frame.to_csv(folder / "fruit.csv", index=False)
    quickly(folder / "fruit.csv", folder / "out", epochs=12)
    return folder / "out"


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on images; do not change it."""
    pytest.importorskip("PIL.Image", reason="pip install 'colafier[images]'")
    folder = tmp_path_factory.mktemp("photos")
    write_images(folder / "photos")
    quickly(folder / "photos", folder / "out", mode="end-to-end", size=8, epochs=8, net="linear")
    return folder / "out"


def new_rows(folder: Path, n: int = 120, wrong: float = 0.0, **columns: object) -> Path:
    fruit(n, seed=9).assign(**columns).to_csv(folder / "new.csv", index=False)
    if wrong:
        frame = pd.read_csv(folder / "new.csv")
        moved = np.random.default_rng(1).random(n) < wrong
        turned = frame["label"].map(dict(zip(CLASSES, CLASSES[1:] + CLASSES[:1], strict=True)))
        frame["label"] = frame["label"].where(~moved, turned)
        frame.to_csv(folder / "new.csv", index=False)
    return folder / "new.csv"


def test_predict_has_every_row_in_order(run: Path, tmp_path: Path) -> None:
    new, out = new_rows(tmp_path), tmp_path / "predictions.csv"
    before = digest(new)
    assert "120 rows are in" in colafier("predict", run / "model", new, "-o", out)
    lines, truth = pd.read_csv(out), pd.read_csv(new)["label"]
    columns = ["row", "name", "predicted_label", "confidence", "problem"]
    assert list(lines.columns) == columns
    assert lines["row"].tolist() == list(range(120))
    assert (lines["predicted_label"] == truth).mean() > 0.9
    assert lines["confidence"].between(1 / 3, 1).all()
    assert lines["problem"].isna().all()
    assert digest(new) == before


def test_predict_needs_no_labels_and_no_useless_column(run: Path, tmp_path: Path) -> None:
    new, out = new_rows(tmp_path), tmp_path / "predictions.csv"
    frame = pd.read_csv(new)[["color", "height", "width", "weight"]]  # in another order
    frame.insert(0, "a remark", "this is a long text that says nothing at all")
    frame.to_csv(new, index=False)
    colafier("predict", run / "model", new, "-o", out)
    assert set(pd.read_csv(out)["predicted_label"]) <= set(CLASSES)


def test_new_categories_and_missing_values(run: Path, tmp_path: Path) -> None:
    new, out = new_rows(tmp_path, color="violet", width=""), tmp_path / "predictions.csv"
    colafier("predict", run / "model", new, "-o", out)
    assert pd.read_csv(out)["predicted_label"].notna().all()


def test_infinite_number_is_named(run: Path, tmp_path: Path) -> None:
    new, out = new_rows(tmp_path), tmp_path / "predictions.csv"
    frame = pd.read_csv(new)
    frame.loc[3, "width"] = np.inf
    frame.to_csv(new, index=False)
    colafier("predict", run / "model", new, "-o", out)
    lines = pd.read_csv(out)
    assert lines["problem"][3] == "not finite"
    assert lines["predicted_label"].isna().to_numpy().nonzero()[0].tolist() == [3]


def test_missing_column_and_wrong_kind_are_explained(run: Path, tmp_path: Path) -> None:
    new, out = new_rows(tmp_path), tmp_path / "predictions.csv"
    pd.read_csv(new).drop(columns="width").to_csv(new, index=False)
    said = colafier("predict", run / "model", new, "-o", out, code=2)
    assert "has no feature column 'width'" in said
    assert "'weight', 'height', 'color', 'label'" in said
    said = colafier("predict", run / "model", new, "--features", "color", "-o", out, code=2)
    assert "the table lacks weight, width, height" in said
    said = colafier("predict", run / "model", write_npz(tmp_path / "a.npz"), "-o", out, code=2)
    assert "trained on rows of kind table" in said
    assert "was read as vector" in said
    said = colafier("predict", run / "model", new, "--text", "color", "-o", out, code=2)
    assert "was read as text; name the columns" in said
    assert not out.exists()


def test_results_are_not_replaced_unless_asked(run: Path, tmp_path: Path) -> None:
    new, out = new_rows(tmp_path), tmp_path / "predictions.csv"
    out.write_text("mine")
    for command in ("predict", "check"):
        assert "--overwrite" in colafier(command, run / "model", new, "-o", out, code=2)
        said = colafier(command, run / "model", new, "-o", new, "--overwrite", code=2)
        assert "is the source, which is never changed" in said
    assert out.read_text() == "mine"
    colafier("predict", run / "model", new, "-o", out, "--overwrite")
    assert len(pd.read_csv(out)) == 120


def test_no_model(tmp_path: Path) -> None:
    said = colafier("predict", tmp_path / "model", tmp_path, "-o", tmp_path / "x.csv", code=2)
    assert "there is no model folder" in said


def test_broken_images_come_out_named(photos: Path, tmp_path: Path) -> None:
    new, out = write_images(tmp_path / "new", each=3), tmp_path / "predictions.csv"
    (new / "größe" / "1.png").write_bytes(b"no image")
    (new / "nacht" / "0.png").write_bytes(b"")
    colafier("predict", photos / "model", new, "-o", out)
    lines = pd.read_csv(out).set_index("name")
    assert lines.index.tolist() == [f"{c}/{n}.png" for c in ("größe", "nacht") for n in range(3)]
    assert lines["problem"].notna().tolist() == [False, True, False, True, False, False]
    assert "not an image" in lines.loc["größe/1.png", "problem"]
    assert (lines["predicted_label"].isna() == lines["problem"].notna()).all()


def test_check_passes_good_labels(run: Path, tmp_path: Path) -> None:
    new, out = new_rows(tmp_path), tmp_path / "audit.csv"
    said = colafier("check", run / "model", new, "--fail-above", "0.1", "-o", out)
    assert said.startswith("ok: about ")
    lines = pd.read_csv(out)
    assert lines["row"].tolist() == list(range(120))
    assert {"original_label", "suggested_label", "label_quality", "action"} <= set(lines.columns)


def test_check_fails_on_wrong_labels(run: Path, tmp_path: Path) -> None:
    new, out = new_rows(tmp_path, wrong=0.4), tmp_path / "audit.csv"
    said = colafier("check", run / "model", new, "-o", out, code=1)
    assert said.startswith("FAIL: about ")
    lines, truth = pd.read_csv(out), fruit(120, seed=9)["label"]
    assert (lines["label"] == truth).mean() > (lines["original_label"] == truth).mean() + 0.2
    assert lines["original_label"].tolist() == pd.read_csv(new)["label"].tolist()


def test_check_names_classes_that_the_model_does_not_know(run: Path, tmp_path: Path) -> None:
    new, out = new_rows(tmp_path), tmp_path / "audit.csv"
    frame = pd.read_csv(new)
    frame.loc[[4, 8], "label"] = ["kiwi", "?"]
    frame.to_csv(new, index=False)
    words = ("check", run / "model", new, "--fail-above", "0.1", "-o", out, "--overwrite")
    assert "2 more have a class that the model does not know" in colafier(*words)
    lines = pd.read_csv(out)
    assert lines.loc[4, ["original_label", "label", "action", "reason"]].tolist() == [
        "kiwi", "kiwi", "exclude", "unknown class",
    ]  # fmt: skip
    assert "1 more have" in colafier(*words, "--missing", "?")
    assert pd.isna(pd.read_csv(out)["original_label"][8])
    frame.loc[:16, "label"] = "kiwi"
    frame.to_csv(new, index=False)
    assert colafier(*words, code=1).startswith("FAIL")


def test_check_needs_labels_and_enough_of_them(run: Path, tmp_path: Path) -> None:
    new = new_rows(tmp_path, n=99)
    said = colafier("check", run / "model", new, code=2)
    assert "99 labels of the model's classes are too few" in said
    pd.read_csv(new).rename(columns={"label": "sort"}).to_csv(new, index=False)
    said = colafier("check", run / "model", new, code=2)
    assert "which column is the label?" in said
    assert "'sort'" in said


def test_check_of_one_class(run: Path, tmp_path: Path) -> None:
    frame = fruit(360, seed=9)
    frame[frame["label"] == "plum"].to_csv(tmp_path / "plums.csv", index=False)
    words = ("check", run / "model", tmp_path / "plums.csv", "--fail-above", "0.1")
    assert colafier(*words).startswith("ok: about ")


@pytest.mark.skipif(any(find_spec(name) is None for name in NEEDS), reason="colafier[onnx]")
def test_export_compares_with_torch_on_the_rows_of_the_run(run: Path, tmp_path: Path) -> None:
    import onnxruntime

    copy = Path(shutil.copytree(run, tmp_path / "out"))
    said = colafier("export", copy / "model", "--onnx")
    assert "largest difference to torch on 64 rows" in said
    model = model_store.load(copy / "model")
    rows = np.zeros((2, *model.row_shape), np.float32)
    session = onnxruntime.InferenceSession(str(copy / "model" / "model.onnx"))
    found = session.run(None, {"rows": rows})[0]
    assert np.abs(found - model.predict(rows).numpy()).max() < 1e-4
    assert "--overwrite" in colafier("export", copy / "model", "--onnx", code=2)


def test_export_says_what_it_needs(run: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(run / "model", tmp_path / "alone" / "model"))
    out = tmp_path / "model.onnx"
    assert "say which format" in colafier("export", model, "-o", out, code=2)
    assert "give --rows SOURCE" in colafier("export", model, "--onnx", "-o", out, code=2)
    config = json.loads((run / "config.json").read_text())
    config["asked"]["source"] = str(tmp_path / "gone.csv")
    (model.parent / "config.json").write_text(json.dumps(config))
    said = colafier("export", model, "--onnx", "-o", out, code=2)
    assert "the rows of the run are gone" in said
    assert "gone.csv" in said
    assert "give --rows SOURCE" in said
    assert not out.exists()
