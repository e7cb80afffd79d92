"""A file appears whole or not at all."""

from pathlib import Path

import pytest

from colafier._io import whole


def test_a_file_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "labels.csv"
    with whole(path) as partial:
        partial.write_text("a")
        assert not path.exists()
    assert path.read_text() == "a"
    assert [p.name for p in path.parent.iterdir()] == ["labels.csv"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("before")

    def fail() -> None:
        with whole(path) as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["labels.csv"]
