"""From a user's data set to all files of OUT, for each kind of source."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from own_data import CLASSES, digest, fruit, quickly, read_labels, write_images, write_npz

from colafier import embed
from colafier.audit.label_table import COLUMNS
from colafier.workflows import model_store
from colafier.workflows import purify as workflow
from colafier.workflows.outputs import Outcome
from colafier.workflows.purify import (
    Options,
    options_of,
    purify,
    ranked,
)

pytestmark = pytest.mark.usefixtures("quick")

FILES = {
    "labels.csv", "config.json", "summary.json", "metrics.jsonl", "model", "evidence.json",
    "report.html", "checkpoint.pt",
}  # fmt: skip
MODEL = {"config.json", "model.safetensors", "README.md"}
SUMMARY = {
    "fingerprint", "rows", "labeled", "trusted", "unusable", "classes", "estimated_noise_rate",
    "estimated_noise_interval", "estimated_wrong_labels", "actions", "relabeled",
    "expected_fixed", "expected_broken", "accuracy_on_unseen_observed_labels", "implied_accuracy",
    "input",
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    source: Path
    out: Path
    outcome: Outcome
    untouched: bool  # the source, by its bytes

    @property
    def lines(self) -> pd.DataFrame:
        return read_labels(self.out)

    @property
    def summary(self) -> dict[str, Any]:
        return json.loads((self.out / "summary.json").read_text())


def run(source: Path, out: Path, **options: Any) -> Run:
    before = digest(source)
    outcome = quickly(source, out, **options)
    return Run(source, out, outcome, digest(source) == before)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def check_whole(done: Run, observed: Sequence[str], more: Sequence[str] = ()) -> None:
    """What holds for every run: nothing lost, nothing changed, nothing half-written."""
    assert done.untouched
    assert names(done.out) == FILES | set(more)
    lines = done.lines
    assert tuple(lines.columns) == ("row", "name", *COLUMNS)
    assert lines["row"].tolist() == [str(row) for row in range(len(observed))]
    assert lines["original_label"].tolist() == list(observed)
    moved = lines["label"] != lines["original_label"]
    assert moved.tolist() == lines["action"].eq("relabel").tolist()
    assert set(lines["action"]) <= {"keep", "relabel", "review", "exclude"}
    assert (lines["reason"].eq("") == lines["action"].eq("keep")).all()
    summary = done.summary
    assert set(summary) == SUMMARY
    assert summary["rows"] == len(observed)
    assert sum(summary["actions"].values()) == len(observed)
    low, high = summary["estimated_noise_interval"]
    assert 0 <= low <= summary["estimated_noise_rate"] <= high <= 1
    model_store.load(done.out / "model")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Numbers, a category, missing values and labels, an infinite number, and duplicates."""
    folder = tmp_path_factory.mktemp("table")
    frame = fruit(60, wrong=0.1).astype(object)
    frame.loc[3, "weight"] = ""
    frame.loc[4, "color"] = ""
    frame.loc[5, "width"] = "inf"
    frame.loc[[6, 7], "label"] = ["", "?"]
    frame.loc[9] = frame.loc[8]
    frame.loc[[8, 9], "label"] = ["apple", "pear"]
    frame.loc[10, "label"] = "Äpfel, grün"  # the only one of its class
    frame.insert(0, "id", range(100, 160))
    frame.to_csv(folder / "fruit.csv", index=False)
    options = {"missing": ("", "?"), "write": "csv", "epochs": 2, "method": "colafier"}
    return run(folder / "fruit.csv", folder / "out", **options)


def test_table_is_whole(table: Run) -> None:
    observed = pd.read_csv(table.source, dtype=str, keep_default_na=False)["label"].replace("?", "")
    check_whole(table, observed.tolist(), ["purified.csv"])
    assert names(table.out / "model") == MODEL | {"table.json"}
    config = json.loads((table.out / "config.json").read_text())
    assert (config["train"]["method"], config["train"]["epochs"]) == ("colafier", 2)
    metrics = (table.out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in metrics] == [0, 1]


def test_rows_of_a_table_that_cannot_be_used_are_named(table: Run) -> None:
    lines, summary = table.lines, table.summary
    assert lines.loc[5, ["action", "reason"]].tolist() == ["exclude", "unusable: not finite"]
    assert lines.loc[5, "label"] == lines.loc[5, "original_label"]
    assert (summary["unusable"], summary["labeled"], summary["classes"]) == (1, 57, 4)
    assert lines.loc[[6, 7], "label_quality"].tolist() == ["", ""]
    assert lines.loc[[6, 7], "suggested_label"].isin([*CLASSES, "Äpfel, grün"]).all()


def test_exact_duplicates_with_different_labels(table: Run) -> None:
    assert table.lines.loc[[8, 9], "reason"].tolist() == ["duplicate", "duplicate"]
    assert table.lines.loc[[8, 9], "action"].tolist() == ["review", "review"]


def test_table_is_written_back_without_excluded_rows(table: Run) -> None:
    written = pd.read_csv(table.out / "purified.csv", dtype=str, keep_default_na=False)
    lines = table.lines
    kept = lines[lines["action"] != "exclude"]
    assert written["id"].tolist() == [str(100 + int(row)) for row in kept["row"]]
    there = kept["original_label"].ne("").to_numpy()
    assert written["label"][there].tolist() == kept["label"][there].tolist()
    assert written["original_label"].tolist()[5:7] == ["", "?"]  # as they came
    assert {"weight", "color"} <= set(written.columns)


def test_options_come_back(table: Run) -> None:
    expected = Options(
        source=os.path.abspath(table.source), method="colafier", epochs=2, missing=("", "?"),
        write="csv",
    )  # fmt: skip
    assert options_of(table.out) == expected


def test_ranked_has_the_most_doubtful_first(table: Run) -> None:
    first = ranked(table.outcome.table)
    assert "keep" not in set(first["action"])
    quality = first["label_quality"].dropna().tolist()
    assert quality == sorted(quality)
    assert len(first) == (table.outcome.table["action"] != "keep").sum()


def test_summary_is_what_is_returned(table: Run) -> None:
    assert json.loads(json.dumps(table.outcome.summary)) == table.summary
    shown = table.outcome.table["original_label"].fillna("").tolist()
    assert shown == table.lines["original_label"].tolist()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("PIL.Image", reason="pip install 'colafier[images]'")
    folder = write_images(tmp_path_factory.mktemp("photos"))
    (folder / "nacht" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    (folder / "nacht" / "empty.png").touch()
    return folder


def check_photos(done: Run) -> None:
    assert done.summary["unusable"] == 2
    lines = done.lines.set_index("name")
    assert lines["original_label"].tolist() == ["größe"] * 9 + ["nacht"] * 11
    assert lines.loc["nacht/broken.png", "reason"].startswith("unusable: ")
    assert lines.loc["nacht/empty.png", "reason"] == "unusable: zero bytes"
    assert (lines["label"] == lines["original_label"]).all()


def test_folder_of_images_as_features(
    photos: Path, tmp_path: Path, need: Callable[[str], None]
) -> None:
    need("images")
    done = run(photos, tmp_path / "out", embedder="efficientnet_lite0", size=64, write="folder")
    check_whole(done, ["größe"] * 9 + ["nacht"] * 11, ["purified"])
    check_photos(done)
    assert done.summary["input"]["embedder"] == "efficientnet_lite0"
    written = {
        str(f.relative_to(done.out / "purified")) for f in (done.out / "purified").rglob("*.png")
    }
    usable = done.lines[done.lines["action"] != "exclude"]
    assert written == set(usable["name"])


def test_images_end_to_end(photos: Path, tmp_path: Path) -> None:
    options = {"mode": "end-to-end", "size": 8, "epochs": 2, "method": "colafier"}
    done = run(photos, tmp_path / "out", **options)  # and pixels.npy is gone
    check_whole(done, ["größe"] * 9 + ["nacht"] * 11)
    check_photos(done)
    assert done.summary["input"] == {"kind": "image", "size": 8}
    assert model_store.load(done.out / "model").row_shape == (3, 8, 8)


class Letters:
    """Stands for an embedder of texts: how often some letters occur."""

    name, key, num_features = "letters", "letters 1", 3

    def __call__(self, items: Sequence[str]) -> tuple[np.ndarray, dict[int, str]]:
        counts = [[text.count(letter) for letter in "aß水"] for text in items]
        return np.array(counts, np.float32), {}


def test_empty_and_other_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "embedder", lambda *_: Letters())
    texts = ["a banana, a mango", "Straße, Fuß, groß", "水と水 水", "", "   "] * 12
    labels = ["en", "de", "ja", "en", "de"] * 12
    frame = pd.DataFrame({"text": texts, "label": labels})
    frame.to_csv(tmp_path / "texts.csv", index=False)
    done = run(tmp_path / "texts.csv", tmp_path / "out")
    check_whole(done, labels)
    assert done.summary["unusable"] == 24
    assert done.lines["reason"].tolist()[3:5] == ["unusable: empty text"] * 2


def test_texts_through_minilm(tmp_path: Path, need: Callable[[str], None]) -> None:
    if "text" not in os.environ.get("COLAFIER_REQUIRE", "").split(","):
        pytest.skip("slow to import: set COLAFIER_REQUIRE=text")
    need("text")
    texts = ["The dog barks at a cat.", "Stocks fell, bonds rose."] * 15
    frame = pd.DataFrame({"text": texts, "label": ["pets", "money"] * 15})
    frame.to_csv(tmp_path / "texts.csv", index=False)
    done = run(tmp_path / "texts.csv", tmp_path / "out", embedder="minilm")
    check_whole(done, frame["label"].tolist())


def test_a_class_of_broken_rows_alone_is_not_learned(tmp_path: Path) -> None:
    frame = fruit(40)
    frame.loc[[0, 1], "label"] = "kiwi"
    frame.loc[[0, 1], "weight"] = np.inf
    frame.to_csv(tmp_path / "fruit.csv", index=False)
    done = run(tmp_path / "fruit.csv", tmp_path / "out")
    assert model_store.load(done.out / "model").classes == CLASSES
    assert done.lines["label"].tolist()[:2] == ["kiwi", "kiwi"]


def test_each_stage_is_announced(tmp_path: Path) -> None:
    said: list[str] = []
    options = Options(str(write_npz(tmp_path / "a.npz")), method="ce", epochs=1)
    purify(options, tmp_path / "out", progress=False, say=said.append)
    assert said[0].startswith("npz file, 60 vectors, 3 classes")
    assert said[1] == "60 rows as 4 numbers"


def test_a_source_that_changes_during_the_run_is_not_written_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = write_npz(tmp_path / "clouds.npz")
    train = workflow.train_and_audit

    def meanwhile(*args: Any, **options: Any) -> Any:
        write_npz(source, seed=1)
        return train(*args, **options)

    monkeypatch.setattr(workflow, "train_and_audit", meanwhile)
    quickly(source, tmp_path / "out", write="npz")
    assert len(read_labels(tmp_path / "out")) == 60
    assert not (tmp_path / "out" / "purified.npz").exists()
    assert "clouds.npz was changed since it was read" in caplog.text


def test_images_that_are_deleted_during_the_run_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("PIL.Image")
    source = write_images(tmp_path / "images")
    train = workflow.train_and_audit

    def meanwhile(*args: Any, **options: Any) -> Any:
        for number in range(3):
            (source / "nacht" / f"{number}.png").unlink()
        return train(*args, **options)

    monkeypatch.setattr(workflow, "train_and_audit", meanwhile)
    out = tmp_path / "out"
    quickly(source, out, mode="end-to-end", size=8, write="folder")
    assert len(list((out / "purified").rglob("*.png"))) == 15
    assert "15 of 18 rows: 3 images are gone or were changed" in caplog.text
