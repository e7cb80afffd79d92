import os
from pathlib import Path

import pytest

from colafier.ingest.read import read
from colafier.readers.files import read_bytes, size_of


def sparse(path: Path) -> Path:
    with path.open("wb") as file:
        file.truncate(2**40)
    return path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.npz"])
def test_pipes_devices_and_sparse_files_are_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(OSError, match=r"not a regular file|no file or folder"):
        read(tmp_path / name)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    with pytest.raises(OSError, match=r"not a regular file|no file or folder"):
        read(tmp_path / name)
    (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=r"NUL|not a readable|no more than"):
        read(sparse(tmp_path / name))


def test_size_and_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"four")
    assert size_of(tmp_path / "a") == 4
    assert read_bytes(tmp_path / "a", 4) == b"four"
    with pytest.raises(ValueError, match="has 4 bytes, but no more than 3 are read"):
        read_bytes(tmp_path / "a", 3)
    with pytest.raises(FileNotFoundError, match="b does not exist"):
        size_of(tmp_path / "b")
    with pytest.raises(OSError, match="not a regular file"):
        size_of(tmp_path)


def test_too_many_columns_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(["label", *(f"c{i}" for i in range(1_000_000))]) + "\n" + "1," * 9)
    with pytest.raises(ValueError, match=r"1,000,001 columns, but no more than 10,000.*\.npz"):
        read(path)
