import errno
import json
import os

import numpy as np
import pytest
from test_read import npz, png, put

from colafier.ingest import write_tables
from colafier.ingest.read import read
from colafier.ingest.write_back import write_back


def tree(folder):
    """Content of all files below a folder by relative path."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def write(source, labels, out, form, *, keep=None, link=True, **options):
    found = read(source, **options)
    return write_back(found, labels, keep or [True] * len(found), out, form, link)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "set"
    for shade, name in enumerate(("cat/a.png", "cat/sub/é.png", "dog/a.png", "dog/b.png")):
        put(root / name, png(shade))
    return root


# class folders


@pytest.mark.parametrize("link", [True, False])
def test_class_folders_with_new_labels(folder, tmp_path, link):
    before = tree(folder)
    out = tmp_path / "deep" / "out"
    done = write(folder, ["cat", "dog", "cat", "Vögel"], out, "folder", keep=[True] * 4, link=link)
    assert done.path == out
    assert tree(out) == {
        "cat/a.png": before["cat/a.png"],
        "dog/sub/é.png": before["cat/sub/é.png"],
        "cat/a_2.png": before["dog/a.png"],
        "Vögel/b.png": before["dog/b.png"],
    }
    assert (done.rows, done.linked, done.copied) == (4, 4 * link, 4 * (not link))
    assert os.path.samefile(out / "cat/a.png", folder / "cat/a.png") == link
    assert tree(folder) == before
    assert not list(out.parent.glob("*.partial"))


def test_excluded_rows_and_rows_without_label_or_file_are_counted(folder, tmp_path):
    found = read(folder)
    (folder / "cat" / "a.png").unlink()
    out = tmp_path / "out"
    done = write_back(
        found, ["cat", None, "dog", "dog"], [True, True, False, True], out, "folder", True
    )
    assert list(tree(out)) == ["dog/b.png"]
    assert (done.rows, done.excluded, done.without_label, done.without_file) == (1, 1, 1, 1)


def test_images_that_changed_since_they_were_read_are_left_out_and_counted(folder, tmp_path):
    found = read(folder)
    found.fingerprint()  # their content is known from now on
    (folder / "cat" / "a.png").unlink()
    (folder / "dog" / "a.png").write_bytes(png(9))
    done = write_back(found, ["a", "a", "b", "b"], [True] * 4, tmp_path / "out", "folder", True)
    assert sorted(tree(tmp_path / "out")) == ["a/sub/é.png", "b/b.png"]
    assert (done.rows, done.changed, done.without_file) == (2, 2, 0)


@pytest.mark.parametrize("changed", ["features", "labels"])
def test_an_npz_file_that_changed_since_it_was_read_is_refused(tmp_path, changed):
    arrays = {"features": np.eye(3, dtype=np.float32), "labels": np.array([0, 1, 0])}
    np.savez(tmp_path / "set.npz", **arrays)
    found = read(tmp_path / "set.npz")
    found.fingerprint()
    np.savez(tmp_path / "set.npz", **{**arrays, changed: arrays[changed][::-1] * 2})
    with pytest.raises(write_tables.SourceChangedError, match="was changed since it was read"):
        write_back(found, ["0", "1", "1"], [True] * 3, tmp_path / "out", "npz", True)
    assert not (tmp_path / "out.npz").exists()


def test_copies_where_links_are_refused(folder, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refuse)
    done = write(folder, ["a", "b", "a", "b"], tmp_path / "out", "folder")
    assert (done.linked, done.copied) == (0, 4)
    assert len(tree(tmp_path / "out")) == 4


def test_a_full_disk_leaves_nothing_behind(folder, tmp_path, monkeypatch):
    links = []

    def fill(*names):
        links.append(names)
        if len(links) == 3:
            raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "link", fill)
    with pytest.raises(OSError, match="no space left"):
        write(folder, ["a", "b", "a", "b"], tmp_path / "out", "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_what_a_killed_run_left_is_not_mixed_in(folder, tmp_path):
    put(tmp_path / "out.partial" / "old" / "x.png", png(9))
    write(folder, ["a", "b", "a", "b"], tmp_path / "out", "folder")
    assert not any(name.startswith("old") for name in tree(tmp_path / "out"))


def test_symbolic_links_are_resolved(folder, tmp_path):
    (folder / "dog" / "link.png").symlink_to("b.png")
    write(folder, ["a", "b", "a", "b", "b"], tmp_path / "out", "folder")
    assert (tmp_path / "out" / "b" / "link.png").read_bytes() == png(3)


HOSTILE = ["../x", "a/b", "..", "/etc/passwd", "a\\b", ".hidden", "nul\0", "ü" * 300, "a_b"]


def test_hostile_labels_stay_inside(tmp_path):
    rows = [f"{i}.png,{i % 2}" for i in range(len(HOSTILE))]
    for i in range(len(HOSTILE)):
        put(tmp_path / "in" / f"{i}.png", png(i))
    source = put(tmp_path / "in" / "a.csv", "image,label\n" + "\n".join(rows))
    before = tree(tmp_path)
    done = write(source, HOSTILE, tmp_path / "out", "folder")
    inside = tree(tmp_path / "out")
    outside = {k: v for k, v in tree(tmp_path).items() if not k.startswith("out/")}
    assert outside == before
    assert sorted(inside.values()) == sorted(png(i) for i in range(len(HOSTILE)))
    folders = {name.split("/")[0] for name in inside}
    assert len(folders) == len(HOSTILE), "no two classes are merged"
    assert not any(name.startswith(".") for name in folders), "hidden folders are not read again"
    assert done.renamed["../x"] == "_._x"
    assert done.renamed["a/b"] == "a_b"
    assert done.renamed["a_b"] == "a_b_3"


@pytest.mark.parametrize("label", ["", "  "])
def test_empty_labels_are_refused(folder, tmp_path, label):
    with pytest.raises(ValueError, match="a label is empty"):
        write(folder, ["a", "b", "a", label], tmp_path / "out", "folder")
    assert not (tmp_path / "out").exists()


def test_the_source_and_what_exists_are_safe(folder, tmp_path):
    labels = ["a", "b", "a", "b"]
    with pytest.raises(ValueError, match="inside of the source"):
        write(folder, labels, folder / "out", "folder")
    with pytest.raises(ValueError, match="inside of the source"):
        write(folder, labels, folder / "cat" / "out", "csv")
    put(tmp_path / "out.csv", "mine")
    with pytest.raises(FileExistsError, match="exists already"):
        write(folder, labels, tmp_path / "out", "csv")
    assert (tmp_path / "out.csv").read_text() == "mine"
    with pytest.raises(FileExistsError, match="exists already"):
        write(folder, labels, folder, "folder")


def test_wrong_calls_are_refused(folder, tmp_path):
    with pytest.raises(ValueError, match="4 rows, but 1 labels and 4"):
        write(folder, ["a"], tmp_path / "out", "folder")
    with pytest.raises(ValueError, match="no form 'zip'; there are folder, csv"):
        write(folder, ["a"] * 4, tmp_path / "out", "zip")
    with pytest.raises(ValueError, match="layout folder is not written as npz"):
        write(folder, ["a"] * 4, tmp_path / "out", "npz")
    texts = put(tmp_path / "a.csv", "text,label\nu,a\nv,b\n")
    with pytest.raises(ValueError, match="text rows are not written as folder: use csv"):
        write(texts, ["a", "b"], tmp_path / "out", "folder")
    unlabelled = read(texts, text="label", labeled=False)
    assert unlabelled.label_column is None
    with pytest.raises(ValueError, match="was read without labels"):
        write_back(unlabelled, ["a", "b"], [True, True], tmp_path / "out", "csv", True)


def test_class_folders_as_csv_can_be_read_again(folder, tmp_path):
    done = write(folder, ["cat", None, "cat", "dog"], tmp_path / "o", "csv", keep=[1, 1, 1, 0])
    assert done.path == tmp_path / "o.csv"
    again = read(done.path, labeled=False)
    assert again.kind == "image"
    assert again.original == ["cat", None, "cat"]
    assert again.items == [folder / "cat/a.png", folder / "cat/sub/é.png", folder / "dog/a.png"]
    assert again.frame["original_label"].tolist() == ["cat", "cat", "dog"]


# folders with metadata


def test_imagefolder_keeps_names_metadata_and_stays_inside(tmp_path):
    source = tmp_path / "in" / "set"
    for name in ("img/a.png", "b.png", "../secret.png"):
        put(source / name, png(len(name)))
    rows = ["img/a.png,x,1.50", "b.png,y,NA", "../secret.png,x,", "gone.png,y,0", "b.png,y,9"]
    put(source / "metadata.csv", "file_name,label,n\n" + "\n".join(rows) + "\n")
    before = tree(tmp_path)
    done = write(source, ["y", "x", None, "x", "y"], tmp_path / "out", "folder")
    assert tree(tmp_path / "in") == {k[3:]: v for k, v in before.items()}
    out = tree(tmp_path / "out")
    assert out.pop("metadata.csv").decode() == (
        "file_name,label,n,original_label\n"
        "img/a.png,y,1.50,x\nb.png,x,NA,y\nsecret.png,,,x\nb.png,y,9,y\n"
    )
    assert out == {"img/a.png": png(9), "b.png": png(5), "secret.png": png(13)}
    assert (done.rows, done.without_file, done.linked) == (4, 1, 3)


def test_no_image_takes_the_place_of_the_metadata(tmp_path):
    source = tmp_path / "set"
    put(source / "a.png", png(1))
    rows = [{"file_name": "a.png", "label": 1}, {"file_name": "metadata.jsonl", "label": 0}]
    put(source / "metadata.jsonl", "\n".join(map(json.dumps, rows)))
    done = write(source, ["0", "2"], tmp_path / "out", "folder")
    lines = (done.path / "metadata.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"file_name": "a.png", "label": 0, "original_label": 1},
        {"file_name": "metadata_2.jsonl", "label": 2, "original_label": 0},
    ]


# tables


@pytest.mark.parametrize(("separator", "suffix"), [(",", ".csv"), (";", ".csv"), ("\t", ".tsv")])
def test_csv_is_changed_in_its_labels_alone(tmp_path, separator, suffix):
    rows = [
        ["", "label", "text", "n"],
        ["0", "007", '"Größe ""x""\r\nzwei"', "1.50"],
        ["1", "?", "你好", "NA"],
        ["2", "1", "gone", ""],
        ["3", "007", "c", "1e3"],
    ]
    end = "\r\n"
    text = "\ufeff" + "".join(separator.join(row) + end for row in rows)
    source = put(tmp_path / f"a{suffix}", text)
    labels = ["1", None, "1", "007"]
    keep = [True, True, False, True]
    done = write(source, labels, tmp_path / "out", "csv", keep=keep, missing=["?"])
    assert done.path == tmp_path / f"out{suffix}"
    assert (done.rows, done.excluded) == (3, 1)
    rows[0] = [*rows[0], "original_label"]
    rows[1] = ["0", "1", rows[1][2], "1.50", "007"]
    rows[2] = [*rows[2], "?"]
    rows[4] = [*rows[4], "007"]
    del rows[3]
    expected = "\ufeff" + "".join(separator.join(row) + end for row in rows)
    assert done.path.read_bytes().decode() == expected
    assert source.read_bytes().decode() == text


def test_image_paths_of_a_csv_stay_valid(tmp_path):
    put(tmp_path / "in" / "a.png", png(1))
    far = put(tmp_path / "far.png", png(2))
    source = put(tmp_path / "in" / "a.csv", f"image,label\na.png,x\n{far},y\n,x\n")
    done = write(source, ["y", "y", "x"], tmp_path / "other" / "b", "csv")
    again = read(done.path, labeled=False)
    assert again.items == [tmp_path / "in" / "a.png", far, None]


def test_a_second_run_keeps_the_first_original_labels(tmp_path):
    source = put(tmp_path / "a.csv", "v,label\n1,x\n2,y\n")
    first = write(source, ["y", "y"], tmp_path / "b", "csv").path
    second = write(first, ["y", "x"], tmp_path / "c", "csv", features=["v"], label="original_label")
    assert second.path.read_text().splitlines() == [
        "v,label,original_label,original_label_2",
        "1,y,y,x",
        "2,y,x,y",
    ]


def test_an_error_while_writing_a_table_leaves_nothing(tmp_path, monkeypatch):
    source = put(tmp_path / "a.csv", "v,label\n1,x\n2,y\n")

    def fail(_, __, path):
        path.write_text("half")
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(write_tables, "save_csv", fail)
    with pytest.raises(OSError, match="no space left"):
        write(source, ["y", "y"], tmp_path / "b", "csv")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


# npz


def test_npz_keeps_types_and_other_arrays(tmp_path):
    x = np.array([[0.1], [0.2], [0.3]])
    source = npz(tmp_path / "a.npz", X=x, y=np.array([3, -1, 4], np.int16), rows=[7, 8, 9], v=1)
    done = write(
        source, ["4", None, "4"], tmp_path / "b", "npz", keep=[True, True, False], missing=["-1"]
    )
    with np.load(done.path) as found:
        assert found["y"].tolist() == [4, -1]
        assert found["y"].dtype == found["original_label"].dtype == np.int16
        assert found["original_label"].tolist() == [3, -1]
        assert np.array_equal(found["X"], x[:2]), "in double precision, as it was"
        assert found["rows"].tolist() == [7, 8]
        assert found["v"] == 1


def test_npz_texts_may_grow(tmp_path):
    source = npz(tmp_path / "a.npz", X=np.eye(2), y=["a", "b"])
    done = write(source, ["b", "läng"], tmp_path / "b.npz", "npz")
    with np.load(done.path) as found:
        assert found["y"].tolist() == ["b", "läng"]
    with pytest.raises(ValueError, match="layout npz is not written as csv: npz"):
        write(source, ["a", "b"], tmp_path / "c", "csv")
