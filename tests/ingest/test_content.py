import os
from pathlib import Path

import numpy as np
import pytest

from colafier.ingest import image_files
from colafier.ingest.content import KeyedFile, content_key, duplicate_groups, keyed


def test_content_keys_are_of_content(tmp_path: Path) -> None:
    one, two, other = (tmp_path / name for name in ("one", "two", "other"))
    for path, content in [(one, b"same"), (two, b"same"), (other, b"else")]:
        path.write_bytes(content)
    assert content_key(one) == content_key(two) == content_key(b"same")
    assert content_key(one) != content_key(other)
    flat = np.arange(6, dtype=np.uint8)
    assert content_key(flat) == content_key(flat.copy())
    assert content_key(flat.reshape(2, 3)) != content_key(flat.reshape(3, 2))
    assert content_key(flat) != content_key(flat.view(np.int8))
    pixels = flat.reshape(2, 3)
    assert content_key(pixels.T) == content_key(np.ascontiguousarray(pixels.T))
    assert content_key("\ud800")  # a lone surrogate from a broken file


def test_what_cannot_be_read_has_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")  # would wait for a writer for ever
    (tmp_path / "large").write_bytes(bytes(1 + (1 << 20)))
    monkeypatch.setattr(image_files, "MAX_MIB", 1)
    for name in ("pipe", "large", "gone", "nul\0"):
        assert content_key(tmp_path / name) == "", name
    assert content_key(None) == ""


def test_a_file_is_only_read_as_what_its_key_stands_for(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    file, none, text = keyed([path, None, "text"], [content_key(path), "", "key"])
    assert isinstance(file, KeyedFile)
    assert (none, text) == (None, "text")
    assert file.read() == b"old"
    path.write_bytes(b"new")
    with pytest.raises(ValueError, match="changed while the data set was read"):
        file.read()


def test_groups_are_numbered_as_they_occur() -> None:
    assert duplicate_groups(["a", "b", "", "c", "b", "a", ""]) == [0, 1, -1, -1, 1, 0, -1]
