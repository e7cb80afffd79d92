import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colafier.readers import archives, arrays


def header(shape: str, kind: str = "<f8") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize("compress", [np.savez, np.savez_compressed])
@pytest.mark.parametrize(
    "array",
    [np.arange(6.0).reshape(2, 3), np.array(["a", "bc"]), np.array(3), np.zeros((0, 4), np.uint8),
     np.asfortranarray(np.arange(6).reshape(2, 3)), np.zeros((4000, 300))],
)  # fmt: skip
def test_what_numpy_saved_is_read(tmp_path: Path, compress: Any, array: Any) -> None:
    compress(tmp_path / "a.npz", first=array, second=array)
    with arrays.opened(tmp_path / "a.npz") as archive:
        assert archive.names == ["first", "second"]
        found = archive.read("second")
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(arrays.read(tmp_path / "a.npy"), array)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cannot be read"),
        (header("(10000000000,)"), "claims 10,000,000,000 values"),
        (header(f"({10**15},)"), "claims"),
        (header("(-1, -8)"), "its shape is"),
        (header(f"(0, {10**15})"), "without any values"),
        (header("(3,)", "|O"), "could run code"),
        (header("(3,)", "|V8"), "could run code"),
        (header("(3,)") + bytes(23), "claims 3 values"),
        (header("(3,)", "nonsense"), "cannot be read"),
        (header("(" * 900), "cannot be read"),
        (b"\x80\x04K\x01.", "cannot be read"),
    ],
)
def test_false_claims_are_refused_before_anything_is_allocated(
    tmp_path: Path, content: bytes, says: str
) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ValueError, match=says):
        arrays.read(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content)
    with (
        pytest.raises(ValueError, match=f"array x .*{says}"),
        arrays.opened(tmp_path / "a.npz") as found,
    ):
        found.read("x")


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(1000))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[1000] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="Bad CRC"), arrays.opened(tmp_path / "a.npz") as found:
        found.read("x")


@pytest.mark.parametrize("name", ["/etc/passwd", "../a", "a/../../b", "C:\\a", "\\\\host\\a"])
def test_paths_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, b"x")
    with (
        pytest.raises(ValueError, match=r"absolute path|outside of the archive"),
        archives.opened(tmp_path / "a.zip"),
    ):
        pass


def test_a_size_that_an_archive_cannot_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a", bytes(50_000_000))
    with pytest.raises(ValueError, match="which the archive cannot hold"), archives.opened(path):
        pass
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", bytes(100))
    with archives.opened(path) as archive, pytest.raises(ValueError, match="larger than 99 bytes"):
        archives.read_entry(archive, archive.infolist()[0], 99)
