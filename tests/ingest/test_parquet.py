import json

import numpy as np
import pytest
from test_read import check_imagefolder, png, put

from colafier.ingest import table_files
from colafier.ingest.read import read
from colafier.ingest.write_back import write_back

pa = pytest.importorskip("pyarrow", reason="needs pip install 'colafier[parquet]'")
pq = pytest.importorskip("pyarrow.parquet")


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_imagefolder_with_parquet(tmp_path):
    def write(path, rows):
        pq.write_table(pa.Table.from_pylist(rows), path)

    check_imagefolder(tmp_path, "metadata.parquet", write)


def test_parquet_keeps_labels_as_decimal_text(tmp_path):
    columns = {"text": ["a", "b", None], "label": pa.array([10, 9, None], pa.int32())}
    found = read(parquet(tmp_path / "a.parquet", **columns))
    assert found.original == ["10", "9", None]
    assert found.classes == ["9", "10"]
    assert found.items == ["a", "b", ""]
    assert found.problems == {2: "empty text"}


@pytest.mark.parametrize(
    ("column", "original"),
    [
        (pa.array([1.0, None, 2.0, float("nan")]), ["1", None, "2", None]),
        (pa.array([True, None, False, True]), ["True", None, "False", "True"]),
        (pa.array(["é", None, "b", ""]).dictionary_encode(), ["é", None, "b", None]),
    ],
)
def test_parquet_label_types(tmp_path, column, original):
    found = read(parquet(tmp_path / "a.parquet", v=[1, 1, 2, 3], label=column))
    assert found.original == original


def test_parquet_image_pairs_and_bytes(tmp_path):
    put(tmp_path / "x.png", png(1))
    pairs = [
        {"bytes": png(2), "path": "train/0.png"},
        {"bytes": None, "path": "x.png"},
        {"bytes": b"", "path": None},
        None,
    ]
    found = read(parquet(tmp_path / "a.parquet", img=pairs, label=[0, 1, 1, 0]))
    assert (found.kind, found.item_columns) == ("image", ("img",))
    assert found.items == [png(2), tmp_path / "x.png", b"", None]
    assert found.names == ["train/0.png", "x.png", "2", "3"]
    assert found.problems == {2: "zero bytes", 3: "no image"}
    raw = read(parquet(tmp_path / "b.parquet", pixels=[png(1), png(2)], label=["a", "b"]))
    assert (raw.kind, raw.items) == ("image", [png(1), png(2)])


def test_sound_in_pairs_is_not_taken_for_images(tmp_path):
    pairs = [{"bytes": b"RIFF....WAVE", "path": "a.wav"}] * 2
    found = read(parquet(tmp_path / "a.parquet", audio=pairs, v=[1.0, 1.0], label=[0, 1]))
    assert (found.kind, found.item_columns) == ("table", ("v",))
    assert "1 column left out as lists, pairs or bytes: 'audio'" in found.describe()


def test_parquet_table_with_gaps(tmp_path):
    columns = {
        "n": pa.array([1, None, 3, 3]),
        "c": pa.array(["u", None, "u", "u"]).dictionary_encode(),
        "f": [0.5, float("inf"), 1.0, None],
    }
    found = read(parquet(tmp_path / "a.parquet", **columns, label=["a", "b", "a", "b"]))
    np.testing.assert_array_equal(found.items["n"], [1, np.nan, 3, 3])
    assert found.items["c"].isna().tolist() == [False, True, False, False]
    assert found.problems == {1: "not finite"}


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"v": [[1.0], [2.0]], "label": [0, 1]}, {"features": ["v"]}, "save embeddings as an .npz"),
        ({"v": [1, 2], "label": [[0], [1]]}, {}, "one label per row is needed"),
        ({"v": [1, 2], "label": [0, 1]}, {"text": "v"}, "holds int values.*with features"),
    ],
)
def test_parquet_columns_of_the_wrong_type(tmp_path, columns, options, message):
    with pytest.raises(ValueError, match=message):
        read(parquet(tmp_path / "a.parquet", **columns), **options)


def test_damaged_parquet_and_no_pyarrow(tmp_path, monkeypatch):
    path = put(tmp_path / "a.parquet", b"PAR1 nothing PAR1")
    with pytest.raises(ValueError, match="is not a readable parquet file"):
        read(path)

    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(table_files.importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"pip install 'colafier\[parquet\]'"):
        read(path)


# written back


def relabel(source, out, labels, form, keep=None, **options):
    found = read(source, **options)
    return write_back(found, labels, keep or [True] * len(found), out, form, link=True).path


@pytest.mark.parametrize(
    ("column", "labels", "expected"),
    [
        (pa.array([7, 8, None, 8], pa.int16()), ["8", "8", None, "9"], [8, 8, None, 9]),
        (pa.array([1.0, 2.0, None, 2.0]), ["2", "2", "1", None], [2.0, 2.0, 1.0, None]),
        (pa.array([True, False, None, True]), ["False", "False", None, "True"],
         [False, False, None, True]),
        (pa.array(["a", "b", None, "b"]).dictionary_encode(), ["b", "b", "a", "new"],
         ["b", "b", "a", "new"]),
    ],
)  # fmt: skip
def test_the_type_of_the_labels_is_restored(tmp_path, column, labels, expected):
    source = parquet(tmp_path / "a.parquet", v=pa.array([1, 1, None, 2]), label=column)
    before = source.read_bytes()
    table = pq.read_table(relabel(source, tmp_path / "out", labels, "parquet"))
    assert table.column_names == ["v", "label", "original_label"]
    assert table["label"].to_pylist() == expected
    assert table["original_label"].to_pylist() == column.to_pylist()
    assert table["label"].type == table["original_label"].type == column.type
    assert table["v"].type == pa.int64()
    assert source.read_bytes() == before


def test_a_label_that_does_not_fit_leaves_nothing(tmp_path):
    source = parquet(tmp_path / "a.parquet", v=[1, 1], label=[1, 2])
    with pytest.raises(ValueError, match="'cat' does not fit the label column"):
        relabel(source, tmp_path / "out", ["1", "cat"], "parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_image_pairs_keep_their_bytes_and_what_hugging_face_knows(tmp_path):
    put(tmp_path / "x.png", png(1))
    pairs = [{"bytes": png(2), "path": "0.png"}, {"bytes": None, "path": "x.png"}]
    known = {"huggingface": json.dumps({"info": {"features": {"img": {"_type": "Image"}}}})}
    source = tmp_path / "a.parquet"
    table = pa.table({"img": pairs, "label": [0, 1]}).replace_schema_metadata(known)
    pq.write_table(table, source)
    out = relabel(source, tmp_path / "deep" / "out.parquet", ["1", "1"], "parquet")
    found = pq.read_table(out)
    assert found["img"].to_pylist() == [pairs[0], {"bytes": None, "path": str(tmp_path / "x.png")}]
    assert found.schema.metadata == {k.encode(): v.encode() for k, v in known.items()}
    with pytest.raises(ValueError, match="'img' holds lists, pairs or bytes, which CSV cannot"):
        relabel(source, tmp_path / "out", ["1", "1"], "csv")
    folder = relabel(source, tmp_path / "classes", ["1", "1"], "folder")
    assert {p.name: p.read_bytes() for p in (folder / "1").iterdir()} == {
        "0.png": png(2),
        "x.png": png(1),
    }


def test_csv_as_parquet_has_numbers_but_labels_as_text(tmp_path):
    source = put(tmp_path / "a.csv", "v,c,label\n1,x,007\n,y,1\n")
    table = pq.read_table(relabel(source, tmp_path / "out", ["1", "1"], "parquet"))
    assert table["v"].to_pylist() == [1.0, None]
    assert table["c"].to_pylist() == ["x", "y"]
    assert table["label"].to_pylist() == ["1", "1"]
    assert table["original_label"].to_pylist() == ["007", "1"]


def test_imagefolder_with_parquet_is_written_back(tmp_path):
    source = tmp_path / "set"
    for name in ("a.png", "b.png"):
        put(source / name, png(1))
    parquet(source / "metadata.parquet", file_name=["a.png", "b.png"], label=[0, 1], n=[5, None])
    out = relabel(source, tmp_path / "out", ["1", "1"], "folder", keep=[False, True])
    rows = pq.read_table(out / "metadata.parquet").to_pylist()
    assert rows == [{"file_name": "b.png", "label": 1, "n": None, "original_label": 1}]
    assert sorted(path.name for path in out.iterdir()) == ["b.png", "metadata.parquet"]


@pytest.mark.parametrize(
    ("kind", "far"), [("date32", 2**31 - 1), ("timestamp", 10**15), ("timestamp", -(10**15))]
)
def test_dates_that_python_does_not_have_are_refused(tmp_path, kind, far):
    types = {"date32": pa.date32(), "timestamp": pa.timestamp("ms")}
    days = pa.array([0, 1, 2, far], types[kind])
    table = pa.table({"day": days, "label": ["a", "b", "a", "b"]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="column 'day' has dates outside of the years 1 to 9999"):
        read(tmp_path / "a.parquet")
