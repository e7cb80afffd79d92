"""Rows exported to each tool, answered as people do there, and imported as decisions."""

import json
import shutil
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from own_data import colafier, digest, quickly, read_labels

from colafier.ingest.read import read
from colafier.review import decisions
from colafier.review.exchange import cvat
from colafier.review.exchange.answers import rows_to_review
from colafier.workflows import apply, exchange

pytestmark = pytest.mark.usefixtures("quick")

HOSTILE = 'ca"t & <b>, ה\u202e'  # a class name with markup, quotes and right-to-left
AT = "2026-11-16T09:59:00Z"


def write_photos(folder: Path, each: int = 8) -> Path:
    image = pytest.importorskip("PIL.Image", reason="pip install 'colafier[images]'")
    random = np.random.default_rng(0)
    for name, level in ((HOSTILE, 190), ("dog", 50), ("eel", 120)):
        (folder / name).mkdir(parents=True)
        for number in range(each):
            pixels = random.normal(level, 15, (8, 8, 3)).clip(0, 255).astype(np.uint8)
            image.fromarray(pixels).save(folder / name / f"a b%{number}'ü.png")
    (folder / "dog" / "broken.png").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do not change it. Rows 0 to 7 are hostile, 8 to 16 dogs with a broken one, 17 to 24 eels."""
    folder = tmp_path_factory.mktemp("photos")
    out = folder / "out"
    quickly(write_photos(folder / "photos"), out, mode="end-to-end", size=8)
    lines = read_labels(out)
    rows = [0, 1, 2, 9, 17]  # whatever was found, these are doubtful now, the first one most
    lines.loc[rows, ["action", "reason"]] = ["review", "wrong"]
    others = lines["action"].ne("keep") & ~lines.index.isin([*rows, 16])
    lines.loc[others, ["action", "reason"]] = ["keep", ""]
    lines.loc[rows, "label_quality"] = ["0.01", "0.02", "0.03", "0.04", "0.05"]
    lines.loc[rows, "suggested_label"] = ["dog", "dog", "dog", HOSTILE, "dog"]
    lines["label"] = lines["original_label"]
    lines.to_csv(out / "labels.csv", index=False)
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


EXPECTED = {  # row -> choice and label; row 17 is left open
    0: ("suggestion", "dog"),
    1: ("keep", HOSTILE),
    2: ("exclude", None),
    9: ("other", "eel"),
}


def received(form: str, out: Path, path: Path) -> tuple[dict[int, tuple[str, Any]], list[str]]:
    """The decisions that were imported, by row, after they were applied without complaint."""
    target = out.parent / "decisions.json"
    count, notes = exchange.receive(form, out, path, target, overwrite=True)
    review = decisions.read(target)
    assert count == len(review.decisions)
    apply.apply(out, [target])
    lines = read_labels(out)
    for one in review.decisions:
        assert lines.loc[one.row, "reviewed_to"] == (one.label or "")
    return {one.row: (one.choice, one.label) for one in review.decisions}, notes


def annotate(tasks: list[dict[str, Any]]) -> None:
    """As Label Studio exports it: the predictions stay, annotations come."""
    for task in tasks:
        row = task["data"]["row"]
        task["annotations"] = []
        if row not in EXPECTED:
            task["annotations"] = [{"result": [], "was_cancelled": True, "created_at": AT}]
            continue
        _, label = EXPECTED[row]
        name, value = ("exclude", "belongs to none of these: exclude") if label is None else (
            "label", label,
        )  # fmt: skip
        part = {"from_name": name, "to_name": "item", "type": "choices", "origin": "manual"}
        result = [part | {"id": "x", "value": {"choices": [value]}}]
        made = {"id": row, "completed_by": 1, "result": result, "was_cancelled": False}
        task["annotations"].append(made | {"created_at": AT, "updated_at": AT})


def test_label_studio(out: Path, tmp_path: Path) -> None:
    before = digest(out)
    count, (path, interface) = exchange.send("label-studio", out, tmp_path / "tasks.json")
    assert digest(out) == before
    tasks = json.loads(path.read_text())
    assert [task["data"]["row"] for task in tasks] == [0, 1, 2, 9, 17]
    assert count == 5
    first = tasks[0]
    assert first["data"]["image"].startswith("/data/local-files/?d=photos/ca%22t%20")
    assert first["data"]["image"].endswith("/a%20b%250%27%C3%BC.png")
    (prediction,) = first["predictions"]
    assert prediction["result"][0]["value"] == {"choices": ["dog"]}
    lines = read_labels(out)
    assert prediction["score"] == float(lines.loc[0, "confidence"])
    view = ET.parse(interface).getroot()
    names = [choice.get("value") for choice in view.findall("Choices[@name='label']/Choice")]
    assert sorted(names) == sorted([HOSTILE, "dog", "eel"])
    assert {c.get("toName") for c in view.findall("Choices")} == {view.find("Image").get("name")}
    annotate(tasks)
    path.write_text(json.dumps(tasks))
    assert received("label-studio", out, path) == (EXPECTED, ["1 row without an annotation"])


def test_label_studio_with_addresses_and_two_people(out: Path, tmp_path: Path) -> None:
    _, (path, _) = exchange.send(
        "label-studio", out, tmp_path / "t.json", limit=2, prefix="https://host/p/"
    )
    tasks = json.loads(path.read_text())
    assert tasks[1]["data"]["image"].startswith("https://host/p/ca%22t%20")
    annotate(tasks)
    tasks[0]["annotations"] *= 2  # they agree
    other = json.loads(json.dumps(tasks[1]["annotations"][0]))
    other["result"][0]["value"]["choices"] = ["eel"]
    tasks[1]["annotations"].append(other)
    path.write_text(json.dumps(tasks))
    found, notes = received("label-studio", out, path)
    assert found == {0: EXPECTED[0]}
    assert notes == ["1 row skipped: their annotations differ"]


Change = Callable[[list[dict[str, Any]]], Any]


def relabel(value: Any) -> Change:
    return lambda t: t[0]["annotations"][0]["result"][0]["value"].update(choices=value)


BAD_TASKS: dict[str, tuple[Change, str]] = {
    "another data set": (lambda t: t[0]["data"].update(fingerprint="12"), "another data set"),
    "no row": (lambda t: t[0]["data"].update(row=99), "99 is not the number of a row"),
    "negative row": (lambda t: t[0]["data"].update(row=-1), "-1 is not the number of a row"),
    "no class": (relabel(["cow"]), "no class 'cow'"),
    "no text": (relabel([3]), "no class 3"),
    "two classes": (relabel(["dog", "eel"]), "needs one label, not 2"),
    "no time": (lambda t: t[0]["annotations"][0].update(updated_at=None, created_at=3), "no time"),
    "bad time": (lambda t: t[0]["annotations"][0].update(updated_at="now"), "'now' is not a time"),
    "JSON-MIN": (lambda t: t[0].pop("annotations"), "not JSON-MIN"),
    "no task": (lambda t: t.append(3), "has no data or annotations"),
    "no result": (lambda t: t[0]["annotations"].append({}), "an annotation has no result"),
    "twice": (lambda t: t.append(t[0]), "row 0 is decided twice"),
}


@pytest.mark.parametrize(("change", "says"), BAD_TASKS.values(), ids=BAD_TASKS)
def test_label_studio_exports_that_do_not_fit(
    out: Path, tmp_path: Path, change: Change, says: str
) -> None:
    _, (path, _) = exchange.send("label-studio", out, tmp_path / "tasks.json")
    tasks = json.loads(path.read_text())
    annotate(tasks)
    change(tasks)
    path.write_text(json.dumps(tasks))
    with pytest.raises(ValueError, match=says):
        exchange.receive("label-studio", out, path, tmp_path / "d.json")
    assert not (tmp_path / "d.json").exists()


def test_texts_to_label_studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from colafier import embed

    class Letters:
        name, key, num_features = "letters", "letters 1", 2

        def __call__(self, items: list[str]) -> tuple[np.ndarray, dict[int, str]]:
            return np.array([[t.count("a"), t.count("o")] for t in items], np.float32), {}

    monkeypatch.setattr(embed, "embedder", lambda *_: Letters())
    texts = ["a banana", "o <script>moon</script>"] * 10
    frame = pd.DataFrame({"text": texts, "label": ["a", "o"] * 10})
    frame.to_csv(tmp_path / "texts.csv", index=False)
    quickly(tmp_path / "texts.csv", tmp_path / "out")
    _, (path, interface) = exchange.send(
        "label-studio", tmp_path / "out", tmp_path / "t.json", everything=True
    )
    shown = {task["data"]["row"]: task["data"]["text"] for task in json.loads(path.read_text())}
    assert shown == dict(enumerate(texts))
    assert ET.parse(interface).getroot().find("Text").get("value") == "$text"
    with pytest.raises(ValueError, match="for images, but the rows of this run are of kind text"):
        exchange.send("cvat", tmp_path / "out", tmp_path / "t.zip", everything=True)


def test_cvat_layout(out: Path, tmp_path: Path) -> None:
    _, (path,) = exchange.send("cvat", out, tmp_path / "photos.zip")
    source = read(Path(apply.open_run(out).source().source))
    with zipfile.ZipFile(path) as archive:
        names = {name.split("/")[1].split("-")[0]: name for name in archive.namelist()}
        assert set(names) == {"row0", "row1", "row2", "row9", "row17"}
        folders = {row: name.split("/")[0] for row, name in names.items()}
        assert folders == {
            "row0": "dog", "row1": "dog", "row2": "dog", "row9": HOSTILE, "row17": "dog",
        }  # fmt: skip
        assert archive.read(names["row9"]) == source.items[9].read_bytes()


def cvat_export(path: Path, run: Path, rows: dict[int, str], images: bool) -> Path:
    """As CVAT writes it: names with the label before them, or lists without images."""
    short = apply.open_run(run).fingerprint[:8]
    with zipfile.ZipFile(path, "w") as archive:
        if images:
            for row, folder in rows.items():
                before = "" if folder == "no_label" else f"{folder}_"
                archive.writestr(f"{folder}/{before}row{row}-{short}.png", b"")
            archive.writestr("dog/dog_another.png", b"")
            return path
        labels = sorted(set(rows.values()) - {"no_label"})
        archive.writestr("synsets.txt", "\n".join(labels))
        listed = [
            f"sub/row{row}-{short}"
            if name == "no_label"
            else f"sub/{name}:row{row}-{short}.png {labels.index(name)}"
            for row, name in rows.items()
        ]
        archive.writestr("default.txt", "\n".join(listed))
    return path


@pytest.mark.parametrize("images", [True, False])
def test_cvat_and_back(out: Path, tmp_path: Path, images: bool) -> None:
    said = {0: "dog", 1: HOSTILE, 2: "colafier-exclude", 9: "eel", 17: "no_label"}
    found, notes = received("cvat", out, cvat_export(tmp_path / "back.zip", out, said, images))
    assert found == EXPECTED
    assert "1 row without a label" in notes
    assert ("1 image skipped: not of this run" in notes) is images


def test_cvat_round_trip_untouched_takes_the_suggestions(out: Path, tmp_path: Path) -> None:
    _, (path,) = exchange.send("cvat", out, tmp_path / "photos.zip", limit=2)
    found, _ = received("cvat", out, path)
    assert found == {0: ("suggestion", "dog"), 1: ("suggestion", "dog")}


def test_cvat_exports_that_do_not_fit(out: Path, tmp_path: Path) -> None:
    def refused(path: Path, says: str) -> None:
        with pytest.raises(ValueError, match=says):
            exchange.receive("cvat", out, path, tmp_path / "d.json")

    refused(cvat_export(tmp_path / "a.zip", out, {0: "cow"}, True), "no class 'cow'")
    refused(cvat_export(tmp_path / "b.zip", out, {99: "dog"}, True), "'99' is not the number")
    two = cvat_export(tmp_path / "c.zip", out, {0: "dog"}, True)
    with zipfile.ZipFile(two, "a") as archive:
        archive.writestr(archive.namelist()[0].replace("dog", "eel"), b"")
    refused(two, "row 0 has two labels")
    with zipfile.ZipFile(two, "a") as archive:
        archive.writestr("../../eel/evil.png", b"")
    refused(two, "names a folder outside")
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        archive.writestr("dog/dog_row0-00000000.png", b"")
    refused(tmp_path / "d.zip", "another data set")
    with zipfile.ZipFile(tmp_path / "e.zip", "w") as archive:
        archive.writestr("synsets.txt", "dog")
        archive.writestr("default.txt", "row0-00000000 7")
    refused(tmp_path / "e.zip", "no label has number '7'")
    with zipfile.ZipFile(tmp_path / "f.zip", "w"):
        pass
    refused(tmp_path / "f.zip", "has no image of this run")
    (tmp_path / "g.zip").write_bytes(b"PK no zip")
    refused(tmp_path / "g.zip", "is not a readable zip")


def test_class_folders_of_cvat_are_all_different() -> None:
    classes = ["../x", "A", "a", "a_2", "colafier-exclude", ".hidden", "x" * 500]
    names = cvat.folder_names(classes)
    assert len({name.casefold() for name in names.values()} | {cvat.EXCLUDE}) == len(classes) + 1
    assert not any("/" in name or name.startswith(".") for name in names.values())


def test_fiftyone(out: Path, tmp_path: Path) -> None:
    _, (path,) = exchange.send("fiftyone", out, tmp_path / "samples.json")
    content = json.loads(path.read_text())
    assert set(content["sample_fields"]) >= {"filepath", "original", "suggested", "label_quality"}
    samples = {sample["colafier_row"]: sample for sample in content["samples"]}
    assert list(samples) == [0, 1, 2, 9, 17]
    assert Path(samples[0]["filepath"]).is_file()
    assert samples[9]["original"]["label"] == "dog"
    assert samples[9]["suggested"]["label"] == HOSTILE
    assert samples[9]["suggested"]["_cls"] == "Classification"
    assert samples[0]["label_quality"] == 0.01
    samples[0]["tags"] = ["suggestion", "mine"]
    samples[1]["tags"] = ["keep"]
    samples[2]["tags"] = ["exclude"]
    samples[9]["decided"] = {"_cls": "Classification", "_id": {"$oid": "1"}, "label": "eel"}
    path.write_text(json.dumps(content))
    found, notes = received("fiftyone", out, path)
    assert found == EXPECTED
    assert notes == ["1 row without a label in 'decided' or a tag"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c["info"].clear(), "another data set"),
        (lambda c: c.pop("samples"), "has no samples"),
        (
            lambda c: c["samples"][0].update(tags=["keep", "exclude"]),
            "several answers: keep, exclude",
        ),
        (lambda c: c["samples"][0].update(tags="keep"), "tags must be a list"),
        (lambda c: c["samples"][0].update(decided={"label": "cow"}), "no class 'cow'"),
        (lambda c: c["samples"][0].pop("colafier_row"), "None is not the number of a row"),
        (lambda c: c["samples"].append(c["samples"][0]), "row 0 appears twice"),
        (lambda c: c["samples"].append(1), "sample 6 is not an object"),
    ],
)
def test_fiftyone_exports_that_do_not_fit(
    out: Path, tmp_path: Path, change: Callable[[Any], Any], says: str
) -> None:
    _, (path,) = exchange.send("fiftyone", out, tmp_path / "samples.json")
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=says):
        exchange.receive("fiftyone", out, path, tmp_path / "d.json")


def fill_in(folder: Path, cells: dict[int, dict[str, str]]) -> None:
    frame = pd.read_csv(folder / "metadata.csv", dtype=str, keep_default_na=False)
    frame = frame.set_index("row", drop=False)
    for row, values in cells.items():
        for name, value in values.items():
            frame.loc[str(row), name] = value
    frame.to_csv(folder / "metadata.csv", index=False)


def test_imagefolder(out: Path, tmp_path: Path) -> None:
    _, (folder,) = exchange.send("imagefolder", out, tmp_path / "review")
    frame = pd.read_csv(folder / "metadata.csv", dtype=str, keep_default_na=False)
    assert frame["row"].tolist() == ["0", "1", "2", "9", "17"]
    assert all((folder / name).is_file() for name in frame["file_name"])
    assert (frame["decision"] == "").all()
    again = read(folder)  # by the rules of Hugging Face's imagefolder
    assert again.original == frame["label"].tolist()
    assert not again.problems
    said = {
        0: {"decision": "suggestion"},
        1: {"decision": "Keep "},
        2: {"decision": "exclude"},
        9: {"label": "eel"},  # a label that was changed is a decision, too
    }
    fill_in(folder, said)
    assert received("imagefolder", out, folder) == (EXPECTED, ["1 row without a decision"])
    fill_in(folder, {9: {"decision": "other"}})
    assert received("imagefolder", out, folder / "metadata.csv")[0] == EXPECTED


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ({"decision": "maybe"}, "decision is 'maybe'; use keep, suggestion, other, exclude"),
        ({"label": "cow"}, "no class 'cow'"),
        ({"label": ""}, "no class ''"),
        ({"fingerprint": "12"}, "another data set"),
        ({"row": "99"}, "'99' is not the number of a row"),
        ({"row": "1"}, "row 1 appears twice"),
    ],
)
def test_imagefolders_that_do_not_fit(
    out: Path, tmp_path: Path, cells: dict[str, str], says: str
) -> None:
    _, (folder,) = exchange.send("imagefolder", out, tmp_path / "review")
    fill_in(folder, {0: cells})
    with pytest.raises(ValueError, match=says):
        exchange.receive("imagefolder", out, folder, tmp_path / "d.json")


def test_imagefolder_without_its_columns(out: Path, tmp_path: Path) -> None:
    (tmp_path / "metadata.csv").write_text("file_name,label\na.png,dog\n")
    with pytest.raises(ValueError, match="was not exported by colafier"):
        exchange.receive("imagefolder", out, tmp_path, tmp_path / "d.json")
    with pytest.raises(FileNotFoundError, match=r"has no metadata\.csv"):
        exchange.receive("imagefolder", out, out, tmp_path / "d.json")


def test_which_rows_are_exported(out: Path, tmp_path: Path) -> None:
    lines = read_labels(out)
    assert lines.loc[16, "reason"].startswith("unusable")
    assert rows_to_review(lines) == [0, 1, 2, 9, 17]
    assert rows_to_review(lines, limit=2) == [0, 1]
    everything = rows_to_review(lines, everything=True)
    assert sorted(everything) == [row for row in range(25) if row != 16]
    assert everything[:5] == [0, 1, 2, 9, 17]
    exchange.send("imagefolder", out, tmp_path / "review", limit=1)
    fill_in(tmp_path / "review", {0: {"decision": "keep"}})
    received("imagefolder", out, tmp_path / "review")
    assert rows_to_review(read_labels(out)) == [1, 2, 9, 17]  # the first one is decided


def test_images_of_a_table_of_bytes(out: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    items = apply.open_run(out).source().items
    cells = [
        {"path": None, "bytes": item.read_bytes()} for item in items if item.stat().st_size > 9
    ]
    labels = ["a", "b"] * (len(cells) // 2)
    pd.DataFrame({"image": cells, "label": labels}).to_parquet(tmp_path / "t.parquet")
    quickly(tmp_path / "t.parquet", tmp_path / "run", mode="end-to-end", size=8)
    for form in ("label-studio", "fiftyone"):
        with pytest.raises(ValueError, match="export them as cvat or imagefolder"):
            exchange.send(form, tmp_path / "run", tmp_path / form, everything=True)
    _, (path,) = exchange.send("cvat", tmp_path / "run", tmp_path / "t.zip", everything=True)
    assert len(received("cvat", tmp_path / "run", path)[0]) == len(cells)
    _, (folder,) = exchange.send("imagefolder", tmp_path / "run", tmp_path / "f", everything=True)
    assert len(list(folder.glob("row*.png"))) == len(cells)


def test_the_commands(out: Path, tmp_path: Path) -> None:
    tasks, back = tmp_path / "tasks.json", tmp_path / "decisions.json"
    assert "5 rows are in" in colafier("exchange", "out", "label-studio", out, "-o", tasks)
    assert "exists" in colafier("exchange", "out", "label-studio", out, "-o", tasks, code=2)
    content = json.loads(tasks.read_text())
    annotate(content)
    tasks.write_text(json.dumps(content))
    said = colafier("exchange", "in", "label-studio", out, tasks, "-o", back)
    assert "4 decisions are in" in said
    assert "Note: 1 row without an annotation." in said
    assert "exists" in colafier("exchange", "in", "label-studio", out, tasks, "-o", back, code=2)
    assert "4 decisions applied" in colafier("apply", out, back)
    assert "no format 'coco'" in colafier("exchange", "out", "coco", out, "-o", "x", code=2)
    assert "--prefix is for label-studio" in colafier(
        "exchange", "out", "cvat", out, "-o", tmp_path / "x", "--prefix", "p", code=2
    )
    inside = apply.open_run(out).source().source / "x"
    assert "is inside the source" in colafier(
        "exchange", "out", "imagefolder", out, "-o", inside, code=2
    )
    assert "not the folder of a finished run" in colafier(
        "exchange", "out", "cvat", tmp_path, "-o", tmp_path / "x", code=2
    )


def test_vectors_do_not_go_out(tmp_path: Path) -> None:
    from own_data import write_npz

    quickly(write_npz(tmp_path / "a.npz"), tmp_path / "out")
    with pytest.raises(
        ValueError, match="rows of kind vector from a npz source cannot be exported"
    ):
        exchange.send("cvat", tmp_path / "out", tmp_path / "x.zip", everything=True)
