import hashlib
import io
import json
import os
import pickle

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from colafier.ingest.read import Dataset, read


def png(shade):
    file = io.BytesIO()
    Image.new("RGB", (3, 2), (shade, 0, 0)).save(file, "PNG")
    return file.getvalue()


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "set"
    for shade, name in enumerate(("dog/b.PNG", "dog/a.png", "Käfer/deep/er/x.png")):
        put(root / name, png(shade))
    return root


# class folders


def test_class_folders(folder):
    put(folder / "dog" / ".hidden.png", png(9))
    put(folder / ".cache" / "y.png", png(9))
    found = read(folder)
    assert (found.layout, found.kind, found.label_column) == ("folder", "image", None)
    assert found.names == ["Käfer/deep/er/x.png", "dog/a.png", "dog/b.PNG"]
    assert found.original == ["Käfer", "dog", "dog"]
    assert found.items == [folder / name for name in found.names]
    assert found.classes == ["Käfer", "dog"]
    assert found.problems == {}
    expected = "folder of class folders, 3 images, 2 classes; label = name of the folder"
    assert found.describe() == expected


def test_what_a_folder_leaves_out_is_said(folder):
    put(folder / "dog" / "notes.txt", "x")
    put(folder / "Thumbs.db", "x")
    put(folder / "loose.jpg", png(7))
    (folder / "nothing").mkdir()
    found = read(folder)
    assert len(found) == 3
    assert found.describe().split("\n")[1] == (
        "2 files of other kinds left out; 1 image outside of the class folders left out; "
        "1 folder without images: nothing"
    )


def test_zero_bytes_and_dangling_links_are_problems(folder):
    put(folder / "dog" / "c.jpg", b"")
    (folder / "dog" / "d.jpg").symlink_to(folder / "gone.jpg")
    found = read(folder)
    assert found.problems == {3: "zero bytes", 4: "missing file"}
    assert "2 rows cannot be used (1 zero bytes, 1 missing file)" in found.describe()


def test_a_circle_of_links_ends(folder):
    (folder / "dog" / "again").symlink_to(folder, target_is_directory=True)
    assert read(folder).names[:3] == ["Käfer/deep/er/x.png", "dog/a.png", "dog/b.PNG"]


def test_a_linked_class_folder_is_read(folder, tmp_path):
    put(tmp_path / "elsewhere" / "z.gif", png(5))
    (folder / "cat").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert "cat/z.gif" in read(folder).names


def test_names_that_are_not_utf8_are_still_text(folder):
    put(folder / os.fsdecode(b"caf\xe9") / os.fsdecode(b"\xff.png"), png(5))
    found = read(folder)
    assert "caf\\xe9/\\xff.png" in found.names
    assert "caf\\xe9" in found.classes
    assert "" not in found.content_keys()
    assert not found.problems


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "expected two or more folders of images.*it is empty"),
        (["a.png", "b.png"], r"it holds a.png, b.png \(2 images outside of the class folders"),
        (["cat/a.png"], "images are in cat only: there is nothing to learn"),
        (["cat/a.txt", "dog/b.txt"], r"it holds cat, dog \(2 files of other kinds"),
        (["train/cat/a.png", "val/dog/b.png"], "train, val are parts of a data set.*give .*/train"),
    ],
)
def test_folders_without_classes_are_refused(tmp_path, files, message):
    root = tmp_path / "set"
    root.mkdir()
    for name in files:
        put(root / name, png(1))
    with pytest.raises(ValueError, match=message):
        read(root)


def test_a_label_column_makes_no_sense_for_class_folders(folder):
    with pytest.raises(ValueError, match="leave out label"):
        read(folder, label="class")


def test_images_without_labels_can_be_anywhere(folder):
    put(folder / "loose.jpg", png(7))
    found = read(folder, labeled=False)
    assert dict(zip(found.names, found.original, strict=True))["loose.jpg"] is None
    assert len(found) == 4


# folders with metadata


METADATA = {
    "metadata.csv": lambda path, rows: pd.DataFrame(rows).to_csv(path, index=False),
    "metadata.jsonl": lambda path, rows: path.write_text("\n".join(map(json.dumps, rows))),
}


@pytest.mark.parametrize("name", METADATA)
def test_imagefolder(tmp_path, name):
    check_imagefolder(tmp_path, name, METADATA[name])


def check_imagefolder(tmp_path, name, write):
    for shade in range(3):
        put(tmp_path / "img" / f"{shade}.png", png(shade))
    rows = [{"file_name": f"img/{i}.png", "Label": i % 2, "caption": "é"} for i in (1, 0, 5)]
    write(tmp_path / name, rows)
    found = read(tmp_path)
    assert (found.layout, found.kind, found.label_column) == ("imagefolder", "image", "Label")
    assert found.names == ["img/1.png", "img/0.png", "img/5.png"]
    assert found.original == ["1", "0", "1"]
    assert found.items[0] == tmp_path / "img" / "1.png"
    assert found.problems == {2: "missing file"}
    assert "columns not used: caption" in found.describe()
    assert f"1 image not in {name} left out" in found.describe()


def test_metadata_without_file_names_belongs_to_class_folders(folder):
    put(folder / "metadata.csv", "author,year\nme,2020\n")
    assert read(folder).layout == "folder"


def test_damaged_json_lines_name_the_line(tmp_path):
    put(tmp_path / "metadata.jsonl", '{"file_name": "a.png", "label": 1}\n{"file_name"\n')
    with pytest.raises(ValueError, match="line 2 is not JSON"):
        read(tmp_path)


# labels and format of CSV


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_of_each_writer(tmp_path, separator, mark, end):
    rows = [("label", "text"), ("007", '"Grüße, du; da"'), ("1", '"two\nlines\there"'), ("NA", "x")]
    text = mark + end.join(separator.join(row) for row in rows) + end
    found = read(put(tmp_path / "a.csv", text))
    assert (found.layout, found.kind, found.label_column) == ("csv", "text", "label")
    assert found.items == ["Grüße, du; da", "two\nlines\there", "x"]
    assert found.original == ["007", "1", "NA"]
    assert found.names == ["0", "1", "2"]


def test_tsv_may_have_commas_in_its_header(tmp_path):
    found = read(put(tmp_path / "a.tsv", "text\tlabel\t,,,\na\tx\t1\nb\ty\t2\n"))
    assert found.original == ["x", "y"]


def test_only_empty_cells_and_those_named_are_missing_labels(tmp_path):
    path = put(tmp_path / "a.csv", "x,label\n1,NA\n2,\n3,nan\n4,?\n5,None\n")
    assert read(path).original == ["NA", None, "nan", "?", "None"]
    found = read(path, missing=["?", "None"])
    assert found.original == ["NA", None, "nan", None, None]
    assert "3 rows without a label" in found.describe()


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["10", "9", "-1"], ["-1", "9", "10"]),
        (["10", "9", "a"], ["10", "9", "a"]),
        (["01", "1", "2"], ["01", "1", "2"]),
    ],
)
def test_classes_that_are_numbers_are_in_their_order(tmp_path, labels, classes):
    path = put(tmp_path / "a.csv", "x,y\n" + "".join(f"1,{label}\n" for label in labels))
    assert read(path).classes == classes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"x,label\n", "has no rows"),
        ("x,label\n1,\xe4\n".encode("latin1"), "is not UTF-8 text .byte 0xe4 at position 10"),
        ("x,label\n1,a\n".encode("utf-16"), "is not UTF-8 text"),
        (b"x,label\n1,a\x00\n", "NUL"),
        (b"x,label\n1,a,b\n", "Expected 2 fields in line 2, saw 3"),
        (b"x,x,label\n1,2,a\n", "more than one column 'x'"),
        (b"x,label\n1,\n2, \n", "all labels of 'label' are missing"),
        (b"x,label\n1,a\n2,a\n", r"one class \(a\): there is nothing to learn"),
        (b"x,kind\n1,a\n2,b\n", "which column is the label.*columns are 'x', 'kind'"),
        (b"label\na\nb\n", "no column is left to learn from"),
        (b"id,label\n1,a\n2,b\n", "no column is left.*1 column left out as an id of the row: 'id'"),
        (b"image,label\n1.png,a\n2.png,b\n", "missing file at .*1.png"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read(put(tmp_path / "a.csv", content))


def test_texts_that_are_all_empty(tmp_path):
    path = put(tmp_path / "a.csv", "text,label\n ,a\n,b\n")
    with pytest.raises(ValueError, match=r"none of its 2 rows can be used.*empty text"):
        read(path, text="text")


def test_one_class_among_the_usable_rows_is_refused(tmp_path):
    path = put(tmp_path / "a.csv", "text,label\nhello,a\n,b\n")
    with pytest.raises(ValueError, match=r"one class \(a\): there is nothing to learn"):
        read(path)


def test_a_source_that_is_not_there_or_unknown(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read(tmp_path / "no")
    with pytest.raises(ValueError, match=r"a file that ends with .csv, .tsv, .parquet"):
        read(put(tmp_path / "a.docx", "x"))


# which column is what


def test_a_wrong_name_lists_the_columns_and_the_nearest(tmp_path):
    path = put(tmp_path / "a.csv", "Review,Stars\ngood,5\nbad,1\n")
    with pytest.raises(ValueError, match=r"no label column 'star'; did you mean 'Stars'\? The col"):
        read(path, label="star")
    with pytest.raises(ValueError, match="no text column 'zzz'; The columns are 'Review', 'Stars'"):
        read(path, text="zzz", label="Stars")
    with pytest.raises(ValueError, match="'Stars' is the label and cannot be a feature"):
        read(path, features=["Stars"], label="Stars")
    with pytest.raises(ValueError, match="'Stars' is the label and cannot be the text"):
        read(path, text="Stars", label="Stars")
    with pytest.raises(ValueError, match="one of image, text and features"):
        read(path, text="Review", features=["Stars"], label="Stars")


def test_many_columns_are_cut_in_the_description_but_not_in_errors(tmp_path):
    names = [f"v{i}" for i in range(20)]
    rows = "".join(",".join([str(i)] * 20) + f",{label}\n" for i, label in enumerate("ab"))
    path = put(tmp_path / "a.csv", ",".join(names) + ",label\n" + rows)
    assert "features = v0, v1, v2, v3, v4, v5 and 14 more, label = label" in read(path).describe()
    with pytest.raises(ValueError, match=r"'v19', 'label'$"):
        read(path, label="zzzz")


def test_image_paths_are_relative_to_the_table(tmp_path):
    put(tmp_path / "d" / "ü.png", png(1))
    put(tmp_path / "d" / "empty.jpg", b"")
    outside = put(tmp_path / "other.png", png(2))
    rows = f"ü.png,a\nempty.jpg,b\n{outside},b\n,a\ngone.png,a\nd\0.png,a\n".replace("\0", "/")
    found = read(put(tmp_path / "d" / "a.csv", "file,label\n" + rows))
    assert found.kind == "image"
    assert found.items[0] == tmp_path / "d" / "ü.png"
    assert found.items[2] == outside
    assert found.items[3] is None
    assert found.names[:4] == ["ü.png", "empty.jpg", str(outside), "3"]
    assert found.problems == {
        1: "zero bytes",
        3: "no image",
        4: "missing file",
        5: "missing file",
    }


def test_a_column_called_path_without_images_is_no_image(tmp_path):
    found = read(put(tmp_path / "a.csv", "path,v,label\n/home,1,a\n/home,2,b\n"))
    assert found.kind == "table"
    assert found.item_columns == ("path", "v")


def test_empty_texts_are_problems(tmp_path):
    found = read(put(tmp_path / "a.csv", "text,label\n你好,a\n,b\n\u3000 ,a\nfine,b\n"))
    assert found.items == ["你好", "", "\u3000 ", "fine"]
    assert found.problems == {1: "empty text", 2: "empty text"}


def test_the_only_column_of_long_texts_is_the_text(tmp_path):
    rows = [f"{i},this is the comment with number {i},x{i % 2}" for i in range(4)]
    found = read(put(tmp_path / "a.csv", "id,comment,class\n" + "\n".join(rows)))
    assert (found.kind, found.item_columns) == ("text", ("comment",))
    assert "columns not used: id" in found.describe()


def test_table_features_keep_numbers_categories_and_missing_values(tmp_path):
    text = (
        ",customer_id,age,code,size,user,empty,target\n"
        "0,11,3,NA,1.5,ann,,a\n1,12,,b,inf,bob,,b\n2,13,NA,,2,cid,,a\n3,14,4,b,nan,dan,,b\n"
    )
    found = read(put(tmp_path / "a.csv", text))
    assert found.kind == "table"
    assert found.item_columns == ("age", "code", "size")
    assert list(found.items.columns) == ["age", "code", "size"]
    np.testing.assert_array_equal(found.items["age"], [3, np.nan, np.nan, 4])
    assert found.items["code"].isna().tolist() == [False, False, True, False]
    assert found.items["code"][0] == "NA", "a category can be called so"
    np.testing.assert_array_equal(found.items["size"], [1.5, np.inf, 2, np.nan])
    assert found.problems == {1: "not finite"}
    assert "3 columns left out as an id of the row: '', 'customer_id', 'user'" in found.describe()
    assert "1 column left out as empty: 'empty'" in found.describe()
    assert found.describe().startswith(
        "CSV file, 4 rows, 2 classes; features = age, code, size, label = target"
    )


def test_named_features_are_taken_even_if_they_look_like_ids(tmp_path):
    path = put(tmp_path / "a.csv", "id,v,label\n1,5,a\n2,6,b\n")
    assert read(path, features=["id"]).item_columns == ("id",)
    assert read(path).item_columns == ("v",)


def test_decimal_commas(tmp_path):
    found = read(put(tmp_path / "a.csv", "v;w;label\n1,5;3;a\n-2,25;4;b\n"))
    assert found.items["v"].tolist() == [1.5, -2.25]
    assert found.items["w"].dtype == np.int64


def test_a_table_without_labels_can_be_read_for_prediction(tmp_path):
    found = read(put(tmp_path / "a.csv", "v,w\n1,2\n3,4\n"), labeled=False)
    assert found.original == [None, None]
    assert found.label_column is None
    assert found.item_columns == ("v", "w")


# npz


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_npz_vectors(tmp_path):
    x = np.array([[1, 2], [np.nan, 0], [np.inf, 0], [1e300, 0], [3, 4], [5, 6]])
    found = read(npz(tmp_path / "a.npz", X=x, y=["é", "b", "b", "b", "", "b"]))
    assert (found.layout, found.kind) == ("npz", "vector")
    assert (found.item_columns, found.label_column) == (("X",), "y")
    assert found.items.dtype == np.float32
    assert found.original == ["é", "b", "b", "b", None, "b"]
    assert found.problems == dict.fromkeys((1, 2, 3), "not finite"), "1e300 is beyond float32"


def test_npz_images_and_names_that_were_asked_for(tmp_path):
    images = np.arange(2 * 3 * 4 * 3, dtype=np.uint8).reshape(2, 3, 4, 3)
    path = npz(tmp_path / "a.npz", pixels=images, kind=[1, 0], X=np.zeros((2, 1)), y=[1, 1])
    found = read(path, image="pixels", label="kind")
    assert (found.kind, found.original) == ("image", ["1", "0"])
    assert np.array_equal(found.items, images)
    gray = read(npz(tmp_path / "b.npz", x=images[..., 0], labels=[-1, 5]), labeled=False)
    assert gray.items.shape == (2, 3, 4)
    assert read(npz(tmp_path / "c.npz", x=images), labeled=False).original == [None, None]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.zeros((3, 2)), "y": [0, 1]}, "X has 3 rows but y has 2"),
        ({"X": np.zeros((2, 2)), "y": np.eye(2)}, "one-hot"),
        ({"X": np.zeros(2), "y": [0, 1]}, r"shape \(2,\); expected numbers of shape \(n, d\)"),
        ({"X": np.zeros((2, 4, 4)), "y": [0, 1]}, "images must be uint8"),
        ({"X": np.zeros((2, 3, 9, 9), np.uint8), "y": [0, 1]}, r"numpy.moveaxis\(X, 1, 3\)"),
        ({"X": np.zeros((2, 2)), "y": np.array(["a", None])}, "array y holds Python objects"),
        ({"Z": np.zeros((2, 2)), "y": [0, 1]}, "called features or X or x or embeddings; it has Z"),
        ({"X": np.zeros((2, 2)), "t": [0, 1]}, "no array of labels called labels or y"),
        ({"X": np.zeros((0, 2)), "y": []}, "has no rows"),
        ({"X": np.full((2, 2), np.nan), "y": [0, 1]}, "none of its 2 rows.*not finite"),
    ],
)
def test_npz_that_cannot_be_used(tmp_path, arrays, message):
    with pytest.raises(ValueError, match=message):
        read(npz(tmp_path / "a.npz", **arrays))


def test_a_file_that_is_no_npz_is_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    with pytest.raises(ValueError, match=r"is not a readable zip"):
        read(put(tmp_path / "a.npz", pickle.dumps(Trap())))
    assert not (tmp_path / "sprung").exists()


# keys, fingerprint, duplicates


def test_keys_are_of_the_content(folder):
    found = read(folder)
    assert found.content_keys() == [hashlib.sha256(p.read_bytes()).hexdigest() for p in found.items]
    text = Dataset(folder, "csv", "text", ["0"], ["a"], ["Grüße"])
    assert text.content_keys() == [hashlib.sha256("Grüße".encode()).hexdigest()]


def test_fingerprint_sees_content_labels_and_names(folder, tmp_path):
    first = read(folder).fingerprint()
    assert first == read(folder).fingerprint()
    assert len(first) == 64
    file = folder / "dog" / "a.png"
    before, content = file.stat(), file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read(folder).fingerprint() != first, "same size and time, other content"
    file.write_bytes(content)
    file.rename(folder / "dog" / "c.png")
    assert read(folder).fingerprint() != first, "another name"
    path = tmp_path / "a.csv"
    prints = {read(put(path, f"v,label\n1,a\n1,{x}\n")).fingerprint() for x in ("b", "c")}
    assert len(prints) == 2, "another label"


def test_duplicates(folder, tmp_path):
    put(folder / "dog" / "z.png", (folder / "Käfer/deep/er/x.png").read_bytes())
    put(folder / "dog" / "e1.png", b"")
    put(folder / "dog" / "e2.png", b"")
    found = read(folder)
    groups = dict(zip(found.names, found.duplicates(), strict=True))
    assert groups.pop("Käfer/deep/er/x.png") == groups.pop("dog/z.png") == 0
    assert set(groups.values()) == {-1}, "also files without content"
    table = read(put(tmp_path / "a.csv", "v,c,label\n1,x,a\n,y,b\n1,x,b\n,y,b\n1,y,a\n"))
    assert table.duplicates() == [0, 1, 0, 1, -1]
    x = np.array([[1, 2], [1, 2], [2, 1], [np.nan, 1], [np.nan, 1]])
    vectors = read(npz(tmp_path / "a.npz", X=x, y=[0, 1, 1, 0, 0]))
    assert vectors.duplicates() == [0, 0, -1, -1, -1]


def test_a_row_is_missing_in_keys_if_its_file_is(tmp_path):
    put(tmp_path / "a.png", png(1))
    found = read(put(tmp_path / "a.csv", "image,label\na.png,x\nb.png,y\nc.png,y\na.png,y\n"))
    assert found.content_keys()[1:3] == ["", ""]
    assert found.duplicates() == [0, -1, -1, 0]


def test_arrays_of_too_many_features_or_without_pixels_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, features=np.zeros((2, 300_000), np.float32), labels=[0, 1])
    with pytest.raises(ValueError, match="300,000 features per row, but no more than 262,144"):
        read(path)
    np.savez(path, features=np.zeros((2, 0, 5), np.uint8), labels=[0, 1])
    with pytest.raises(ValueError, match="images have no pixels"):
        read(path)
