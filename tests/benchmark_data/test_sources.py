import gzip
import pickle
import struct

import numpy as np
import pytest
import torch
from test_safe_load import python2_batch

from colafier.benchmark_data.sources import (
    arrays,
    cifar10,
    cifar10n,
    digits,
    fashion_mnist,
)


def test_digits_are_the_same_at_each_call():
    first, second = digits(), digits()
    assert first.x.shape == (1437, 1, 8, 8)
    assert first.test_x.shape == (360, 1, 8, 8)
    assert first.x.dtype == torch.uint8
    assert first.labels.dtype == torch.int64
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.labels, second.labels)
    assert first.classes == tuple("0123456789")
    assert first.num_classes == 10


def test_digits_use_all_gray_levels_and_all_classes():
    source = digits()
    assert source.x.unique().tolist() == [round(level * 255 / 16) for level in range(17)]
    assert source.test_labels.bincount().min() >= 34, "stratified"
    rows = torch.cat([source.x, source.test_x]).flatten(1)
    assert len(rows.unique(dim=0)) == 1797, "no row is in both parts"


def cifar_content(n, seed):
    rng = np.random.default_rng(seed)
    data = rng.integers(256, size=(n, 3072)).astype(np.uint8)
    return data, rng.integers(10, size=n).tolist()


NAMES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
WRITERS = {
    "python2": python2_batch,
    "python3": lambda x, y: pickle.dumps({"data": x, "labels": y}),
    "bytes_keys": lambda x, y: pickle.dumps({b"data": x, b"labels": y}, protocol=2),
}


@pytest.fixture
def cifar_folder(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for seed, name in enumerate(NAMES):
        (folder / name).write_bytes(WRITERS["python3"](*cifar_content(7, seed)))
    return folder


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_cifar10_of_each_writer(tmp_path, write):
    parts = [cifar_content(7, seed) for seed in range(6)]
    for name, part in zip(NAMES, parts, strict=True):
        (tmp_path / name).write_bytes(write(*part))
    source = cifar10(tmp_path)
    assert source.x.shape == (35, 3, 32, 32)
    assert source.labels.tolist() == [y for part in parts[:5] for y in part[1]]
    assert source.test_labels.tolist() == parts[5][1]
    row = parts[2][0][3]
    assert source.x[17, 1, 5, 9] == row[1024 + 5 * 32 + 9]
    assert source.classes[3] == "cat"


def test_cifar10_folder_above_and_limit(cifar_folder):
    source = cifar10(cifar_folder.parent, limit=10)
    assert len(source.x) == len(source.labels) == 10
    assert len(source.test_x) == 7


def test_cifar10_missing_file_is_named(cifar_folder):
    (cifar_folder / "data_batch_3").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_3 is missing: unpack cifar-10-python"):
        cifar10(cifar_folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "no dictionary"),
        ({"data": np.zeros((2, 3072), np.uint8)}, "data and labels"),
        ({"data": np.zeros((2, 100), np.uint8), "labels": [0, 1]}, r"shape \(2, 100\)"),
        ({"data": np.zeros((2, 3072), np.float32), "labels": [0, 1]}, "float32"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1, 2]}, r"shape \(2, 3072\)"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 10]}, "0 to 9"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": ["a", "b"]}, "must be whole numbers"),
        ({"data": np.zeros((2, 3072), np.uint8), "labels": 3}, "must be whole numbers"),
    ],
)
def test_cifar10_with_other_content(cifar_folder, content, message):
    (cifar_folder / "test_batch").write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=message):
        cifar10(cifar_folder)


def idx(values):
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype(np.uint8).tobytes()


HUGE = bytes([0, 0, 8, 3]) + b"\xff" * 12 + bytes(100)  # claims 2**96 values


@pytest.fixture(params=["plain", "gz"])
def fashion_folder(tmp_path, request):
    rng = np.random.default_rng(0)
    for part, n in (("train", 12), ("t10k", 5)):
        images = rng.integers(1, 256, size=(n, 28, 28))
        for name, values in (("images-idx3", images), ("labels-idx1", np.arange(n) % 10)):
            path = tmp_path / f"{part}-{name}-ubyte"
            if request.param == "gz":
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(idx(values)))
            else:
                path.write_bytes(idx(values))
    return tmp_path


def test_fashion_mnist(fashion_folder):
    source = fashion_mnist(fashion_folder, limit=8, pad_to=32)
    assert source.x.shape == (8, 1, 32, 32)
    assert source.test_x.shape == (5, 1, 32, 32)
    assert source.labels.tolist() == list(range(8))
    border = source.x.clone()
    border[:, :, 2:30, 2:30] = 0
    assert border.sum() == 0
    assert (source.x[:, :, 2:30, 2:30] > 0).all()
    whole = fashion_mnist(fashion_folder)
    assert whole.x.shape == (12, 1, 28, 28)
    assert torch.equal(whole.x[:8], source.x[:, :, 2:30, 2:30])


def test_fashion_mnist_cannot_be_padded_to_less(fashion_folder):
    with pytest.raises(ValueError, match="pad_to=20 is less"):
        fashion_mnist(fashion_folder, pad_to=20)


def test_fashion_mnist_missing_file_is_named(tmp_path):
    message = r"train-images-idx3-ubyte is missing.*dataset-fashion-mnist"
    with pytest.raises(FileNotFoundError, match=message):
        fashion_mnist(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte.gz", b"\x1f\x8b\x08\x00broken", "is damaged"),
        (
            "train-images-idx3-ubyte.gz",
            gzip.compress(idx(np.zeros((9, 28, 28))))[:30],
            "is damaged",
        ),
        ("train-images-idx3-ubyte.gz", gzip.compress(b"<html>"), "not an idx file"),
        ("train-images-idx3-ubyte.gz", gzip.compress(idx(np.zeros(9))), "with 3 dimension"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(idx(np.zeros(9))[:-1]), "cut or too long"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(idx(np.zeros(9)) + b"1"), "cut or too long"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(idx(np.zeros(9))), "12 train images but 9"),
        ("train-images-idx3-ubyte.gz", gzip.compress(HUGE), "cut or too long"),
        ("train-labels-idx1-ubyte.gz", gzip.compress(idx(np.full(12, 11))), "0 to 9"),
    ],
    # gzip stamps the time, and all workers must see the same names
    ids=["magic", "cut", "page", "dimensions", "short", "long", "count", "huge", "range"],
)
def test_fashion_mnist_with_damaged_files(fashion_folder, name, content, message):
    (fashion_folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        fashion_mnist(fashion_folder)


@pytest.fixture
def human_file(tmp_path):
    clean = np.arange(40) % 10
    worse = np.where(np.arange(40) % 3 == 0, (clean + 1) % 10, clean)
    path = tmp_path / "CIFAR-10_human.pt"
    torch.save({"clean_label": clean, "worse_label": worse, "aggre_label": clean + 5}, path)
    return path


def test_cifar10n(human_file):
    clean = torch.arange(40) % 10
    noisy = cifar10n(human_file, "worst", clean)
    assert noisy.dtype == torch.int64
    assert (noisy != clean).nonzero()[:, 0].tolist() == list(range(0, 40, 3))
    assert torch.equal(cifar10n(human_file, "worst", clean[:15]), noisy[:15])


def test_cifar10n_compares_each_label(human_file):
    swapped = torch.arange(40) % 10
    swapped[[7, 8]] = swapped[[8, 7]]  # the same labels, the same sum, another order
    with pytest.raises(ValueError, match="2 of 40 clean labels differ, first at row 7"):
        cifar10n(human_file, "worst", swapped)


@pytest.mark.parametrize(
    ("key", "n", "message"),
    [
        ("best", 40, "'best'; there are aggregate"),
        ("random1", 40, "no random_label1"),
        ("worst", 41, "labels of 40 images, but there are 41"),
        ("aggregate", 40, "0 to 9"),
    ],
)
def test_cifar10n_errors(human_file, key, n, message):
    with pytest.raises(ValueError, match=message):
        cifar10n(human_file, key, torch.arange(n) % 10)


@pytest.mark.parametrize(
    "content", [3, [1, 2], torch.zeros(3), {"clean_label": "text", "worse_label": [1]}]
)
def test_cifar10n_with_other_content(tmp_path, content):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(ValueError, match=r"x\.pt.*clean_label"):
        cifar10n(tmp_path / "x.pt", "worst", torch.arange(3))


def test_cifar10n_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"human\.pt is missing: download"):
        cifar10n(tmp_path / "CIFAR-10_human.pt", "worst", torch.zeros(3))


def test_arrays_of_vectors_and_texts():
    source = arrays([[1, 2], [3, 4], [5, 6]], ["dog", "cat", "dog"])
    assert source.x.dtype == torch.float32
    assert source.labels.tolist() == [1, 0, 1]
    assert source.classes == ("cat", "dog")
    assert source.test_x is None


def test_arrays_of_images_and_test_rows():
    x = np.zeros((4, 3, 8, 8), np.uint8)
    x.setflags(write=False)
    source = arrays(x, [5, 7, 7, 9], test_x=x[:2], test_labels=[9, 5], name="mine")
    assert source.x.dtype == torch.uint8
    assert source.classes == ("5", "7", "9")
    assert source.test_labels.tolist() == [2, 0]
    assert source.name == "mine"


def test_arrays_with_class_names_and_rows_without_label():
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    source = arrays(x, [1, -1, 2, 1], classes=["a", "b", "c"])
    assert source.labels.tolist() == [1, -1, 2, 1]
    assert source.num_classes == 3
    assert arrays(x, [True, False, True, True], classes=["a", "b"]).labels.tolist() == [1, 0, 1, 1]


def test_arrays_of_any_layout():
    x, labels = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
    expected = arrays(x, labels)
    for other, observed in (
        (x.astype(">f8"), labels.astype(">i8")),
        (np.asfortranarray(x), labels),
        (x[::-1][::-1], labels[::-1][::-1]),
        (torch.tensor(x, requires_grad=True), torch.tensor(labels)),
    ):
        source = arrays(other, observed)
        assert torch.equal(source.x, expected.x)
        assert not source.x.requires_grad
        assert torch.equal(source.labels, expected.labels)


def test_arrays_take_whole_floats_and_objects():
    assert arrays([[1.0], [2.0]], np.array([3.0, 4.0])).classes == ("3", "4")
    assert arrays([[1.0], [2.0]], np.array(["b", "a"], dtype=object)).labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("x", "labels", "more", "message"),
    [
        (np.zeros((3, 2)), [0, 1], {}, r"shape \(2,\) for 3 rows"),
        (np.zeros((3, 2)), [[0], [1], [0]], {}, r"shape \(3, 1\) for 3 rows"),
        (np.zeros((0, 2)), [], {}, "x is empty"),
        (np.zeros((2, 0)), [0, 1], {}, "x is empty"),
        (np.zeros((2, 1, 0, 8), np.uint8), [0, 1], {}, "x is empty"),
        (3.0, [0, 1], {}, "give vectors"),
        (np.zeros(3), [0, 1, 1], {}, r"shape \(3,\); give vectors"),
        (np.zeros((3, 8, 8)), [0, 1, 1], {}, r"shape \(3, 8, 8\); give vectors"),
        ([[1, np.nan], [0, 0], [np.inf, 0]], [0, 1, 1], {}, "in 2 rows, first 0"),
        ([["a"], ["b"]], [0, 1], {}, "must hold numbers"),
        (np.zeros((2, 3, 8, 8)), [0, 1], {}, "must be bytes"),
        (np.zeros((2, 8, 8, 3), np.uint8), [0, 1], {}, "channels last"),
        (np.zeros((3, 2)), [1, 1, 1], {}, r"one class \(1\)"),
        (np.zeros((3, 2)), [1, -1, 1], {"classes": ["a", "b"]}, r"one class \(b\)"),
        (np.zeros((3, 2)), [-1, -1, -1], {"classes": ["a", "b"]}, "no class"),
        (np.zeros((3, 2)), [0, 1, 2], {"classes": ["a", "b", "a"]}, "a name twice: a, b, a"),
        (
            np.zeros((3, 2)),
            [0, 1, 1],
            {"classes": ["a", "b"], "test_x": np.zeros((1, 2)), "test_labels": [-1]},
            "test_labels has -1, which is none",
        ),
        (
            np.zeros((3, 2)),
            [0, 1, 2],
            {"classes": ["a", "b"]},
            "from -1 to 1, one per row, but 2 is",
        ),
        (
            np.zeros((3, 2)),
            [0, 1, -2],
            {"classes": ["a", "b"]},
            "from -1 to 1, one per row, but -2 is",
        ),
        (np.zeros((3, 2)), ["a", "b", "b"], {"classes": ["a", "b"]}, "must be whole numbers"),
        (np.zeros((3, 2)), [0.5, 1, 1], {}, "whole numbers or texts"),
        (np.zeros((3, 2)), [np.nan, 1, 1], {}, "whole numbers or texts"),
        (np.zeros((3, 2)), ["a", None, "b"], {}, "whole numbers or texts"),
        (np.zeros((3, 2)), [0, 1, 1], {"test_x": np.zeros((1, 2))}, "both test_x and test_labels"),
        (
            np.zeros((3, 2)),
            [0, 1, 1],
            {"test_x": np.zeros((1, 4)), "test_labels": [0]},
            r"shapes \(4,\) and \(2,\)",
        ),
        (
            np.zeros((3, 2)),
            [0, 1, 1],
            {"test_x": np.zeros((1, 2)), "test_labels": [2]},
            "test_labels has 2, which is none",
        ),
    ],
)
def test_arrays_that_are_not_sound(x, labels, more, message):
    with pytest.raises(ValueError, match=message):
        arrays(x, labels, **more)
