"""Benchmark data sets and arrays in memory, read with checks that they are sound."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from colafier.benchmark_data import safe_load
from colafier.ingest.labels import (
    EncodedLabels,
    check_class_numbers,
    check_two_classes,
    class_numbers,
)

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
CIFAR10N_KEYS = {
    "aggregate": "aggre_label",
    "random1": "random_label1",
    "random2": "random_label2",
    "random3": "random_label3",
    "worst": "worse_label",
}

MAX_BYTES = 2**30  # of an unpacked idx file

ArrayLike = Tensor | npt.NDArray[Any] | Sequence[Any]


@dataclass(frozen=True)
class Source:
    """Rows with the labels that came with them; label -1 means that a row has none."""

    x: Tensor  # (n, c, h, w) uint8 images, or (n, d) float32 vectors
    labels: Tensor  # (n,) int64
    classes: tuple[str, ...]
    test_x: Tensor | None
    test_labels: Tensor | None
    name: str

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.classes)


def digits() -> Source:
    """Handwritten digits of scikit-learn: 1437 training and 360 test images of 1 x 8 x 8 pixels."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)  # values 0 to 16
    x = torch.from_numpy(images * 255 / 16).round().to(torch.uint8).view(-1, 1, 8, 8)
    y = torch.from_numpy(labels).long()
    train, test = train_test_split(np.arange(len(y)), test_size=360, stratify=y, random_state=0)
    train, test = np.sort(train), np.sort(test)
    names = tuple(str(digit) for digit in range(10))
    return Source(x[train], y[train], names, x[test], y[test], "digits")


def cifar10(folder: Path | str, limit: int | None = None) -> Source:
    """CIFAR-10 from its Python pickles; `limit` keeps the first training rows only."""
    folder = Path(folder)
    if (folder / "cifar-10-batches-py").is_dir():
        folder = folder / "cifar-10-batches-py"
    parts = [_cifar_batch(folder / f"data_batch_{number}") for number in range(1, 6)]
    x, labels = torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
    test_x, test_labels = _cifar_batch(folder / "test_batch")
    return Source(x[:limit], labels[:limit], CIFAR10_CLASSES, test_x, test_labels, "cifar10")


def fashion_mnist(
    folder: Path | str, limit: int | None = None, pad_to: int | None = None
) -> Source:
    """Fashion-MNIST from its idx files, packed or not.

    Args:
        folder: Where the four files are.
        limit: Keep the first training rows only.
        pad_to: Image size after adding black pixels around the 28 x 28.
    """
    tensors = []
    for part, rows in (("train", limit), ("t10k", None)):
        images = _read_idx(_idx_path(Path(folder), f"{part}-images-idx3-ubyte"), 3)[:rows]
        stored = _read_idx(_idx_path(Path(folder), f"{part}-labels-idx1-ubyte"), 1)[:rows]
        labels = check_class_numbers(stored.numpy(), 10, f"{folder}: {part} labels")
        if len(images) != len(labels):
            raise ValueError(f"{folder}: {len(images)} {part} images but {len(labels)} labels")
        tensors += [_pad(images[:, None], pad_to), labels]
    x, labels, test_x, test_labels = tensors
    return Source(x, labels, FASHION_CLASSES, test_x, test_labels, "fashion_mnist")


def arrays(
    x: ArrayLike,
    labels: ArrayLike,
    *,
    test_x: ArrayLike | None = None,
    test_labels: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
) -> Source:
    """Rows that are in memory: images (n, c, h, w) of bytes, or vectors (n, d) of numbers.

    Args:
        x: The rows.
        labels: One per row: whole numbers or texts; with `classes`, positions in it, -1 for none.
        test_x: Rows to score on.
        test_labels: Their labels, of the same kind.
        classes: Names of the classes; by default the sorted different labels.
        name: What records call this data.
    """
    rows = _rows(x, "x")
    values = _label_values(labels, len(rows), "labels")
    if classes is None:
        found = EncodedLabels.of(values)
        kinds, observed = found.classes, found.numbers
        names = tuple(str(kind) for kind in kinds)
    else:
        names = tuple(classes)
        if len(set(names)) < len(names):
            raise ValueError(f"classes has a name twice: {', '.join(names)}")
        observed = check_class_numbers(values, len(names), "labels", lowest=-1)
        kinds = np.arange(len(names))
        check_two_classes([names[number] for number in {*observed.tolist()} - {-1}], "labels")
    if test_x is None or test_labels is None:
        if test_x is not test_labels:
            raise ValueError("give both test_x and test_labels, or neither")
        return Source(rows, observed, names, None, None, name)
    test_rows = _rows(test_x, "test_x")
    if test_rows.shape[1:] != rows.shape[1:] or test_rows.dtype != rows.dtype:
        shapes = f"{tuple(test_rows.shape[1:])} and {tuple(rows.shape[1:])}"
        raise ValueError(f"rows of test_x and x have shapes {shapes}; make them the same")
    test_values = _label_values(test_labels, len(test_rows), "test_labels")
    test_observed = class_numbers(test_values.tolist(), kinds.tolist())
    unknown = test_values[(test_observed < 0).numpy()]
    if len(unknown):
        raise ValueError(f"test_labels has {unknown[0].item()!r}, which is none of the classes")
    return Source(rows, observed, names, test_rows, test_observed, name)


def cifar10n(path: Path | str, key: str, images_labels: Tensor) -> Tensor:
    """Labels (n,) of CIFAR-10N for the images with these clean labels, the first n of the file.

    Args:
        path: The file `CIFAR-10_human.pt`.
        key: aggregate, random1, random2, random3 or worst.
        images_labels: Clean labels of the images in memory; each is compared with the file's.
    """
    if key not in CIFAR10N_KEYS:
        raise ValueError(f"CIFAR-10N has no labels {key!r}; there are {', '.join(CIFAR10N_KEYS)}")
    path = Path(path)
    _require(path, "download CIFAR-10_human.pt from the CIFAR-N project and give its path")
    content = safe_load.load_torch(path)
    n = len(images_labels)
    clean, noisy = (
        _label_entry(path, content, name)[:n] for name in ("clean_label", CIFAR10N_KEYS[key])
    )
    if len(clean) != n or len(noisy) != n:
        raise ValueError(f"{path} has labels of {len(clean)} images, but there are {n} images")
    different = (clean != images_labels).nonzero()[:, 0]
    if len(different):
        raise ValueError(
            f"{path} belongs to images in another order: {len(different)} of {n} clean labels "
            f"differ, first at row {different[0]}; load CIFAR-10 from its Python pickles"
        )
    return noisy


def _require(path: Path, advice: str) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: {advice}")


def _label_entry(path: Path, content: Any, name: str) -> Tensor:
    """Labels (n,) of an entry of a CIFAR-10N file."""
    if not isinstance(content, dict) or name not in content:
        raise ValueError(f"{path} has no {name}: it is not a CIFAR-10N label file")
    return check_class_numbers(np.asarray(content[name]), 10, f"{path}: {name}")


def _cifar_batch(path: Path) -> tuple[Tensor, Tensor]:
    """Images (n, 3, 32, 32) and labels (n,) of one CIFAR-10 pickle."""
    _require(path, "unpack cifar-10-python.tar.gz and give its folder cifar-10-batches-py")
    content = safe_load.load_pickle(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a CIFAR-10 batch: it holds no dictionary")
    fields = {k.decode() if isinstance(k, bytes) else k: v for k, v in content.items()}
    if not {"data", "labels"}.issubset(fields):
        raise ValueError(f"{path} is not a CIFAR-10 batch: it needs the entries data and labels")
    data = np.asarray(fields["data"])
    labels = check_class_numbers(np.asarray(fields["labels"]), 10, f"{path}: labels")
    if data.dtype != np.uint8 or data.shape != (len(labels), 3072):
        raise ValueError(
            f"{path}: data is {data.dtype} of shape {data.shape}, not uint8 of (n, 3072)"
        )
    return torch.from_numpy(data.copy()).view(-1, 3, 32, 32), labels


def _idx_path(folder: Path, name: str) -> Path:
    """The packed or unpacked file of this name."""
    packed = folder / f"{name}.gz"
    if packed.is_file():
        return packed
    _require(
        folder / name,
        "give the folder with the four idx files of Fashion-MNIST (or .gz); Debian's package "
        "dataset-fashion-mnist puts them into /usr/share/datasets/fashion-mnist",
    )
    return folder / name


def _read_idx(path: Path, dims: int) -> Tensor:
    """Bytes of an idx file, which begins with 0, 0, 8 for bytes, the number of sizes, and these."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * dims)
            if len(header) < 4 + 4 * dims or header[:4] != bytes([0, 0, 8, dims]):
                raise ValueError(f"{path} is not an idx file of bytes with {dims} dimension(s)")
            shape = struct.unpack(f">{dims}I", header[4:])
            # no more than expected, as a small packed file can unpack to any size
            content = file.read(min(prod(shape), MAX_BYTES) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error}); get it again") from error
    if len(content) != prod(shape):
        raise ValueError(f"{path} is cut or too long for the shape {shape} that it claims")
    return torch.from_numpy(np.frombuffer(content, np.uint8).reshape(shape).copy())


def _pad(images: Tensor, size: int | None) -> Tensor:
    """Images padded to this size with black pixels on all sides."""
    if size is None:
        return images
    height, width = images.shape[2:]
    if size < max(height, width):
        raise ValueError(f"pad_to={size} is less than the image size {height} x {width}")
    top, left = (size - height) // 2, (size - width) // 2
    return F.pad(images, (left, size - width - left, top, size - height - top))


def _rows(x: ArrayLike, what: str) -> Tensor:
    """Checked images of bytes or vectors of float32."""
    if not isinstance(x, Tensor):
        array = np.asarray(x)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{what} must hold numbers, not {array.dtype}")
        x = torch.tensor(array.astype(array.dtype.newbyteorder("="), order="C"))
    values: Tensor = x.detach().cpu()
    if values.ndim not in (2, 4) or values.is_complex():
        raise ValueError(
            f"{what} has shape {tuple(values.shape)}; give vectors (n, d) or images (n, c, h, w)"
        )
    if values.numel() == 0:
        raise ValueError(f"{what} is empty: its shape is {tuple(values.shape)}")
    if values.ndim == 4:
        if values.dtype != torch.uint8:
            raise ValueError(
                f"images in {what} must be bytes (uint8, 0 to 255), not {values.dtype}"
            )
        if values.shape[1] > 4 and values.shape[3] <= 4:
            raise ValueError(
                f"{what} has channels last; give (n, c, h, w): x.transpose(0, 3, 1, 2)"
            )
        return values
    vectors = values.float()
    bad = (~vectors.isfinite()).any(1).nonzero()[:, 0]
    if len(bad):
        raise ValueError(f"{what} has NaN or infinite values in {len(bad)} rows, first {bad[0]}")
    return vectors


def _label_values(labels: ArrayLike, n: int, what: str) -> npt.NDArray[Any]:
    """Checked labels (n,) as whole numbers or texts."""
    values = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if values.shape != (n,):
        raise ValueError(f"{what} has shape {values.shape} for {n} rows; give one label per row")
    if values.dtype.kind == "O" and all(isinstance(v, str) for v in values):
        return values.astype(str)
    if values.dtype.kind == "f" and np.isfinite(values).all() and (values == values.round()).all():
        return values.astype(np.int64)
    if values.dtype.kind not in "iubU":
        raise ValueError(
            f"{what} must be whole numbers or texts without gaps; for rows without a label give "
            "`classes`, and positions in it with -1 for none"
        )
    return values
