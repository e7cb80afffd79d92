from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from colafier._validation import Range
from colafier.readers import json_files


class Inner(TypedDict):
    kind: Literal["a", "b"]
    pair: tuple[int, str]


class Open(TypedDict):
    rows: Annotated[int, Range(0)]
    inner: NotRequired[Inner]


@dataclass(frozen=True)
class Closed:
    name: str
    parts: list[Open]
    share: Annotated[float, Range(0, 1)] = 0.5


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "file.json"
    path.write_text(text)
    return path


def test_values_come_in_their_types(tmp_path: Path) -> None:
    path = write(tmp_path, '{"name": "x", "parts": [{"rows": 3, "more": [1]}], "share": 1}')
    found = json_files.read(path, Closed)
    assert found == Closed("x", [{"rows": 3, "more": [1]}], 1.0)  # type: ignore[typeddict-unknown-key]
    assert type(found.share) is float
    path = write(tmp_path, '{"rows": 0, "inner": {"kind": "a", "pair": [1, "x"]}}')
    assert json_files.read(path, Open)["inner"]["pair"] == (1, "x")


@pytest.mark.parametrize(
    ("text", "schema", "says"),
    [
        ("", Open, "it is not JSON"),
        ("[]", Open, "it must be an object, not []"),
        ("{}", Open, "rows is missing"),
        ('{"rows": "x"}', Open, "rows must be a whole number (at least 0), not 'x'"),
        ('{"rows": true}', Open, "rows must be a whole number"),
        ('{"rows": -1}', Open, "rows must be a whole number (at least 0), not -1"),
        ('{"rows": 1e3}', Open, "rows must be a whole number"),
        ('{"rows": 99999999999999999999}', Open, "rows must be a whole number"),
        (f'{{"rows": {"9" * 400}}}', Open, "a number of 400 digits"),
        ('{"rows": 1, "rows": 2}', Open, "the key 'rows' appears twice"),
        ('{"rows": 1, "inner": {"kind": "c", "pair": []}}', Open, "inner.kind must be one of a"),
        ('{"rows": 1, "inner": {"kind": "a", "pair": [1]}}', Open, "pair must have 2 values"),
        ('{"name": "x", "parts": [], "__class__": 1}', Closed, "__class__ is no key; there are"),
        ('{"name": "x", "parts": [{"rows": null}]}', Closed, "parts.0.rows must be"),
        ('{"name": "x", "parts": [], "share": NaN}', Closed, "share must be a number (0 to 1)"),
        ("[" * 60 + "]" * 60, Any, "nested more than 50 levels deep"),
        ("[" * 99_999, Any, "nested more than 50 levels deep"),
    ],
)
def test_damage_is_named_with_what_to_do(tmp_path: Path, text: str, schema: Any, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ValueError, match="is damaged") as caught:
        json_files.read(path, schema)
    assert str(caught.value).startswith(f"{path} is damaged: ")
    assert says in str(caught.value)
    assert str(caught.value).endswith("; put it back, or run again")


def test_lines(tmp_path: Path) -> None:
    path = write(tmp_path, '{"a": 1}\n{"a": "x"}\n')
    with pytest.raises(ValueError, match="line 2: a must be a whole number"):
        json_files.read_lines(path, dict[str, int])
    assert json_files.read_lines(tmp_path / "none", dict[str, int]) == []
    assert json_files.read_if_there(tmp_path / "none", Open) == {}
