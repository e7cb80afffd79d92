"""Bad and unusual input: refused with what to do, or worked through; never half-written."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from own_data import clouds, colafier, fruit, quickly, read_labels, write_images, write_npz

from colafier.workflows.purify import Options

pytestmark = pytest.mark.usefixtures("quick")


def no_label(folder: Path) -> Path:
    fruit(12).rename(columns={"label": "kind"}).to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def plain(folder: Path) -> Path:
    fruit(12).to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def one_class(folder: Path) -> Path:
    fruit(12).assign(label="plum").to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def no_labels(folder: Path) -> Path:
    fruit(12).assign(label="").to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def one_class_is_usable(folder: Path) -> Path:
    frame = fruit(12)
    frame.loc[frame["label"] != "plum", "weight"] = np.inf
    frame.to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def constant(folder: Path) -> Path:
    frame = fruit(12)
    frame[["weight", "width", "height", "color"]] = 1
    frame.to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def mismatched(folder: Path) -> Path:
    np.savez(folder / "a.npz", features=np.zeros((9, 2)), labels=np.arange(8))
    return folder / "a.npz"


def infinite(folder: Path) -> Path:
    np.savez(folder / "a.npz", features=np.full((9, 2), np.inf), labels=np.arange(9))
    return folder / "a.npz"


def empty_file(folder: Path) -> Path:
    (folder / "a.csv").touch()
    return folder / "a.csv"


def broken_images(folder: Path) -> Path:
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        (folder / "photos" / name / "1.png").write_bytes(b"no image")
    return folder / "photos"


def one_readable_class(folder: Path) -> Path:
    write_images(folder / "photos", each=2)
    for path in (folder / "photos" / "nacht").iterdir():
        path.write_bytes(b"no image")
    return folder / "photos"


def missing_file(folder: Path) -> Path:
    return folder / "nowhere.csv"


def other_file(folder: Path) -> Path:
    (folder / "notes.txt").write_text("label\n")
    return folder / "notes.txt"


@pytest.mark.parametrize(
    ("make", "words", "says"),
    [
        (no_label, (), "which column is the label?"),
        (no_label, (), "the columns are 'weight', 'width', 'height', 'color', 'kind'"),
        (plain, ("--label", "labels"), "no label column 'labels'; did you mean 'label'?"),
        (plain, ("--label", "labels"), "The columns are 'weight', 'width'"),
        (plain, ("--features", "weigth"), "no feature column 'weigth'; did you mean 'weight'?"),
        (missing_file, (), "nowhere.csv does not exist; give a folder or a file"),
        (other_file, (), "give a folder of class folders, or a file that ends with"),
        (one_class, (), "there is nothing to learn"),
        (one_class_is_usable, (), "there is nothing to learn"),
        (no_labels, (), "all labels of 'label' are missing"),
        (constant, (), "no column to learn from is left (weight: all values are the same"),
        (mismatched, (), "features has 9 rows but labels has 8; they must match"),
        (infinite, (), "none of its 9 rows can be used; the first has the problem: not finite"),
        (empty_file, (), "a.csv is empty"),
        (broken_images, ("--mode", "end-to-end"), "none of the 2 rows can be used: not an image"),
        (
            one_readable_class,
            ("--mode", "end-to-end"),
            "labels of all usable rows are of one class",
        ),
        (plain, ("--mode", "end-to-end"), "is for images"),
        (plain, ("--mode", "fast"), "no mode 'fast'; there are features and end-to-end"),
        (plain, ("--min-confidence", "1.2"), "min_confidence must be a number (0 to 1)"),
        (plain, ("--method", "colafer"), "did you mean colafier"),
        (plain, ("--net", "resnet9"), "no net 'resnet9'; there are resnet8"),
        (plain, ("--net", "resnet18"), "resnet18 needs images"),
        (plain, ("--write", "folder"), "table rows are not written as folder: use csv"),
        (plain, ("--write", "xlsx"), "no form 'xlsx'; there are folder, csv, parquet, npz"),
        (plain, ("--text", "color", "--embedder", "bert"), "no embedder 'bert' for texts"),
    ],
)
def test_refused_with_what_to_do(
    make: Callable[[Path], Path], words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    if make in (broken_images, one_readable_class):
        pytest.importorskip("PIL.Image", reason="pip install 'colafier[images]'")
    source, out = make(tmp_path), tmp_path / "out"
    said = colafier("purify", source, "-o", out, *words, code=2)
    assert says in said
    assert "error: " in said
    assert "Traceback" not in said
    assert not out.exists()


def test_source_and_out_are_asked_for() -> None:
    assert "colafier purify SOURCE -o OUT" in colafier("purify", code=2)


def test_default_of_min_confidence_is_the_same_everywhere() -> None:
    said = colafier("purify", "--help")
    assert f"[default: {Options('x').min_confidence}]" in said


def test_constant_features_of_an_archive_move_no_label(tmp_path: Path) -> None:
    labels = np.arange(60) % 3
    np.savez(tmp_path / "a.npz", features=np.ones((60, 4)), labels=labels)
    quickly(tmp_path / "a.npz", tmp_path / "out")
    assert read_labels(tmp_path / "out")["label"].tolist() == labels.astype(str).tolist()


def test_infinite_and_missing_features_of_an_archive_are_named(tmp_path: Path) -> None:
    x, labels = clouds(60)
    x[4, 1], x[9, 0] = np.inf, np.nan
    np.savez(tmp_path / "a.npz", features=x, labels=labels)
    quickly(tmp_path / "a.npz", tmp_path / "out")
    lines = read_labels(tmp_path / "out")
    assert lines["reason"].str.startswith("unusable").to_numpy().nonzero()[0].tolist() == [4, 9]


@pytest.mark.parametrize("n", [6, 50])
def test_few_rows_and_a_class_with_one(n: int, tmp_path: Path) -> None:
    x, labels = clouds(n)
    labels[2] = 7
    np.savez(tmp_path / "a.npz", features=x, labels=labels)
    outcome = quickly(tmp_path / "a.npz", tmp_path / "out", method="colafier")
    assert outcome.summary["classes"] == 4
    assert len(read_labels(tmp_path / "out")) == n


def test_300_classes(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", n=600, classes=300)
    outcome = quickly(tmp_path / "a.npz", tmp_path / "out", method="colafier")
    assert outcome.summary["classes"] == 300
    names = read_labels(tmp_path / "out")["original_label"].tolist()
    assert names == [str(row % 300) for row in range(600)]


def test_labels_missing_on_most_rows(tmp_path: Path) -> None:
    frame = fruit(60)
    frame.loc[10:, "label"] = ""
    frame.to_csv(tmp_path / "a.csv", index=False)
    outcome = quickly(tmp_path / "a.csv", tmp_path / "out")
    assert outcome.summary["labeled"] == 10
    lines = read_labels(tmp_path / "out")
    assert set(lines["label"][10:]) == {""}
    assert set(lines["action"][10:]) == {"keep"}
    assert lines["predicted_label"].ne("").all()


def test_labels_are_texts_as_they_are_written(tmp_path: Path) -> None:
    frame = fruit(60)
    frame["label"] = frame["label"].map({"apple": "007", "pear": "NA", "plum": ' "1,5"\n'})
    frame.to_csv(tmp_path / "a.csv", index=False)
    quickly(tmp_path / "a.csv", tmp_path / "out", write="csv")
    assert read_labels(tmp_path / "out")["original_label"].tolist() == frame["label"].tolist()
    written = pd.read_csv(tmp_path / "out" / "purified.csv", dtype=str, keep_default_na=False)
    assert set(written["original_label"]) == set(frame["label"])


def test_a_table_that_csv_cannot_hold_is_refused_before_training(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'colafier[parquet]'")
    image = pytest.importorskip("PIL.Image", reason="pip install 'colafier[images]'")
    assert image
    write_images(tmp_path / "photos", each=1)
    cells = [path.read_bytes() for path in sorted((tmp_path / "photos").rglob("*.png"))]
    frame = pd.DataFrame({"image": cells, "label": ["a", "b"]})
    frame.to_parquet(tmp_path / "a.parquet")
    out = tmp_path / "out"
    said = colafier("purify", tmp_path / "a.parquet", "-o", out, "--write", "csv", code=2)
    assert "which CSV cannot; write parquet" in said
    assert not out.exists()
