"""Files from outside: arrays of all ages are read, code is never run."""

import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from colafier.benchmark_data.safe_load import (
    ADMITTED,
    KINDS,
    UnsafeFileError,
    load_npy,
    load_pickle,
    load_torch,
)


class Hostile:
    """Creates a file when it is unpickled by an ordinary loader."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


class Evaluated:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return eval, (f"__import__('os').mkdir({str(self.marker)!r})",)


def python2_batch(data, labels):
    """The bytes that Python 2 with NumPy 1 writes for {"data": uint8 array, "labels": list}."""

    def size(n):
        return b"J" + n.to_bytes(4, "little")

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85U\x01b\x87Rq\x05"
        b"(K\x01" + size(data.shape[0]) + size(data.shape[1]) + b"\x86"
        b"cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T" + data.nbytes.to_bytes(4, "little") + data.tobytes() + b"tb"
    )
    listed = b"]q\x08(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}q\x01(U\x04dataq\x02" + array + b"U\x06labelsq\x09" + listed + b"u."


def write(path, content):
    path.write_bytes(content)
    return path


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert np.array_equal(found[key], value)


# From protocol 4 on names carry their length, so these cannot be made old by replacing text.
@pytest.mark.parametrize(
    ("protocol", "old"), [(p, False) for p in range(6)] + [(p, True) for p in range(4)]
)
def test_arrays_of_every_protocol(tmp_path, protocol, old):
    content = {
        "data": np.arange(600, dtype=np.uint8).reshape(20, 30),
        "labels": [1, 2, 3],
        b"bytes": b"\x00\xff",
        "scalar": np.int64(7),
        "nested": ({"a": None}, [1.5, True]),
        "floats": np.linspace(0, 1, 5),
    }
    raw = pickle.dumps(content, protocol=protocol)
    if old:
        raw = raw.replace(b"numpy._core", b"numpy.core")
    found = load_pickle(write(tmp_path / "batch", raw))
    assert found.pop("nested") == content.pop("nested")
    assert_same(found, content)


def test_python2_pickle(tmp_path):
    data = np.random.default_rng(0).integers(256, size=(5, 3072)).astype(np.uint8)
    path = write(tmp_path / "batch", python2_batch(data, [6, 9, 9, 4, 1]))
    assert_same(load_pickle(path), {"data": data, "labels": [6, 9, 9, 4, 1]})


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("kind", [Hostile, Evaluated])
def test_hostile_pickle_is_refused_and_does_not_run(tmp_path, kind, protocol):
    marker = tmp_path / "ran"
    content = {"labels": [1], "data": kind(marker)}
    path = write(tmp_path / "data_batch_1", pickle.dumps(content, protocol=protocol))
    with pytest.raises(UnsafeFileError, match=r"data_batch_1: it asks for .*could run code"):
        load_pickle(path)
    assert not marker.exists()
    pickle.loads(path.read_bytes())
    assert marker.exists(), "the file is really hostile"


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.",  # a way through an admitted name
        b"cnumpy\nload\n.",
        b"cbuiltins\ngetattr\n.",
        b"cnumpy.core.multiarray\nfromfile\n.",
        pickle.dumps(OrderedDict(a=1)),
        pickle.dumps(Path("x")),
    ],
)
def test_names_beyond_arrays_are_refused(tmp_path, raw):
    with pytest.raises(UnsafeFileError, match="it asks for"):
        load_pickle(write(tmp_path / "x", raw))


def test_object_arrays_are_refused(tmp_path):
    raw = pickle.dumps(np.array([1, "a", None], dtype=object))
    with pytest.raises(UnsafeFileError, match="Python objects"):
        load_pickle(write(tmp_path / "x", raw))


class Forged:
    """An array whose data type claims to hold pointers: NumPy would follow them."""

    def __reduce__(self):
        fields = (3, "|", None, ("a",), {"a": (np.dtype("i8"), 0)}, 8, 1, 0x3F)
        return np.ndarray, (0,), (1, (1,), ForgedType(fields), False, [(12345,)])


class ForgedType:
    def __init__(self, state):
        self.state = state

    def __reduce__(self):
        return np.dtype, ("V8", False, True), self.state


def test_forged_pointers_are_refused(tmp_path):
    raw = pickle.dumps(Forged(), protocol=2)
    with pytest.raises(UnsafeFileError, match="records"):
        load_pickle(write(tmp_path / "x", raw))
    torch.save({"clean_label": Forged()}, tmp_path / "x.pt")
    with pytest.raises(UnsafeFileError, match=r"x\.pt was not opened"):
        load_torch(tmp_path / "x.pt")


@pytest.mark.parametrize("flags", [0, 0x3F])
def test_flags_of_data_types_are_not_taken(tmp_path, flags):
    """Texts are copied data types in NumPy, so that flags of the file would stick to them."""
    plain = pickle.dumps(np.array(["ab", "c"]), protocol=2)
    state = b"K\x08K\x04K\x08t"  # size, alignment and flags
    assert plain.count(state) == 1
    raw = plain.replace(state, state[:-2] + bytes([flags]) + b"t")
    found = load_pickle(write(tmp_path / "x", raw))
    assert not found.dtype.hasobject
    assert found.tolist() == ["ab", "c"]


def test_big_endian_arrays(tmp_path):
    numbers = np.arange(5, dtype=">i4")
    path = write(tmp_path / "x", pickle.dumps({"a": numbers, "b": numbers[2]}))
    found = load_pickle(path)
    assert found["a"].tolist() == [0, 1, 2, 3, 4]
    assert found["b"] == 2


def test_arrays_in_column_order(tmp_path):
    array = np.asfortranarray(np.arange(6).reshape(2, 3))
    for protocol in (2, 5):
        found = load_pickle(write(tmp_path / "x", pickle.dumps(array, protocol=protocol)))
        assert np.array_equal(found, array)


def test_other_codecs_are_refused(tmp_path):
    raw = b"c_codecs\nencode\n(Vabc\nVrot13\ntR."
    with pytest.raises(UnsafeFileError, match="rot13"):
        load_pickle(write(tmp_path / "x", raw))


@pytest.mark.parametrize(
    "raw", [b"", b"\x80\x02}q", b"<html>not found</html>", b"\x1f\x8b\x08junk"]
)
def test_damaged_pickle(tmp_path, raw):
    with pytest.raises(ValueError, match="not a readable pickle"):
        load_pickle(write(tmp_path / "x", raw))


def numpy1_copy(path):
    """The same `.pt` file as written with NumPy 1."""
    old = path.with_name("old.pt")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(old, "w") as target:
        for item in source.infolist():
            raw = source.read(item)
            if item.filename.endswith("data.pkl"):
                assert b"numpy._core" in raw
                raw = raw.replace(b"numpy._core", b"numpy.core")
            target.writestr(item.filename, raw)
    return old


@pytest.mark.parametrize("old", [False, True], ids=["numpy2", "numpy1"])
def test_torch_file_of_arrays(tmp_path, old):
    content = {
        "clean_label": np.arange(10),
        "small": np.arange(3, dtype=np.int32),
        "bytes": np.arange(3, dtype=np.uint8),
        "rates": np.linspace(0, 1, 4),
        "list": [1, 2, 3],
        "number": np.int64(3),
        "tensor": torch.arange(4),
    }
    path = tmp_path / "labels.pt"
    torch.save(content, path)
    assert_same(load_torch(numpy1_copy(path) if old else path), content)


@pytest.mark.parametrize("archive", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("kind", [Hostile, Evaluated])
def test_hostile_torch_file_is_refused_and_does_not_run(tmp_path, kind, archive):
    marker = tmp_path / "ran"
    path = tmp_path / "CIFAR-10_human.pt"
    content = {"clean_label": kind(marker)}
    torch.save(content, path, _use_new_zipfile_serialization=archive)
    with pytest.raises(UnsafeFileError, match=r"human\.pt was not opened.*could run code"):
        load_torch(path)
    assert not marker.exists()
    torch.load(path, weights_only=False)
    assert marker.exists(), "the file is really hostile"


def test_plain_hostile_pickle_named_pt(tmp_path):
    marker = tmp_path / "ran"
    path = write(tmp_path / "x.pt", pickle.dumps(Hostile(marker), protocol=2))
    with pytest.raises(ValueError, match=r"x\.pt"):
        load_torch(path)
    assert not marker.exists()


def test_loader_leaves_the_rules_of_torch_as_they_were(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(np.arange(3), path)
    before = set(torch.serialization.get_safe_globals())  # torch lists a set, in any order
    load_torch(path)
    assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04junk", b"<html></html>"])
def test_damaged_torch_file(tmp_path, raw):
    with pytest.raises(ValueError, match=r"x\.pt"):
        load_torch(write(tmp_path / "x.pt", raw))


def test_npy(tmp_path):
    path = tmp_path / "labels.npy"
    np.save(path, np.arange(5))
    assert load_npy(path).tolist() == [0, 1, 2, 3, 4]


def test_hostile_npy_is_refused_and_does_not_run(tmp_path):
    marker, path = tmp_path / "ran", tmp_path / "labels.npy"
    np.save(path, np.array([Hostile(marker)], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="holds Python objects"):
        load_npy(path)
    assert not marker.exists()


def test_npz_is_no_npy(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.arange(3))
    with pytest.raises(ValueError, match="several arrays"):
        load_npy(tmp_path / "x.npz")


def test_what_a_file_may_call_is_all_our_own():
    assert {made.__module__ for made in ADMITTED.values()} == {"colafier.benchmark_data.safe_load"}
    assert not any(char in KINDS for char in "OVmM")  # no Python objects, no records
