from math import inf, nan
from typing import Annotated, Any, Literal

import pytest

from colafier._validation import Range, checked, range_words, type_words


@pytest.mark.parametrize(
    ("allowed", "text", "inside", "outside"),
    [
        (Range(0, 1), "0 to 1", [0, 0.5, 1], [-0.1, 1.1]),
        (Range(0, 1, high_open=True), "0 to below 1", [0, 0.99], [1]),
        (Range(0, 1, low_open=True), "above 0 to 1", [1e-9, 1], [0]),
        (Range(0, low_open=True), "above 0", [1e-9, 1e9], [0, -1]),
        (Range(1), "at least 1", [1, 10**18], [0, 10**400]),
        (Range(high=3), "at most 3", [3, -1e9], [3.1]),
        (Range(high=3, high_open=True), "below 3", [2.9], [3]),
        (Range(), "any number", [-1e9, 0, 1e9], []),
        (Range(0, infinite=True), "at least 0, or inf", [0, 5, inf], [-1, -inf]),
    ],
)
def test_a_range_and_its_words(
    allowed: Range, text: str, inside: list[float], outside: list[float]
) -> None:
    assert str(allowed) == text
    assert all(value in allowed for value in inside)
    assert not any(value in allowed for value in [*outside, nan])
    assert allowed.infinite or not (inf in allowed or -inf in allowed)


KINDS: dict[str, Any] = {
    "share": Annotated[float, Range(0, 1)],
    "warmup": Annotated[int, Range(1)] | None,
    "mode": Literal["a", "b"] | None,
    "widths": tuple[Annotated[int, Range(1)], ...],
    "soft": bool,
    "rate": float,
    "anything": Any,
}


@pytest.mark.parametrize(
    "values",
    [
        {"share": 0.5, "warmup": 3, "mode": "b", "soft": True},
        {"share": 1.0, "warmup": None, "mode": None, "rate": -3.5},
        {"widths": (2, 3), "anything": [nan]},
    ],
)
def test_values_that_fit_are_kept(values: dict[str, Any]) -> None:
    assert checked(values, KINDS, "setting") == values


def test_values_take_their_declared_type() -> None:
    found = checked({"share": 1, "widths": [4, 5]}, KINDS, "setting")
    assert found == {"share": 1.0, "widths": (4, 5)}
    assert type(found["share"]) is float


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("share", 1.5, r"share must be a number \(0 to 1\), not 1.5"),
        ("share", 2, r"share must be a number \(0 to 1\), not 2"),
        ("share", "0.5", r"share must be a number"),
        ("share", True, r"share must be a number"),
        ("share", nan, r"share must be a number"),
        ("warmup", 0, r"warmup must be a whole number \(at least 1\) or none, not 0"),
        ("warmup", 1.0, r"warmup must be a whole number"),
        ("warmup", True, r"warmup must be a whole number"),
        ("mode", "c", r"mode must be one of a, b or none, not 'c'"),
        ("widths", [1, 0], r"widths must be a whole number \(at least 1\), not 0"),
        ("widths", 3, r"widths must be a list, not 3"),
        ("soft", 1, r"soft must be true or false, not 1"),
        ("rate", inf, r"rate must be a number, not inf"),
        ("rate", None, r"rate must be a number, not None"),
        ("ratio", 1, r"no setting 'ratio'; there are anything, mode, rate"),
    ],
)
def test_values_that_do_not_fit_are_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked({name: value}, KINDS, "setting")


def test_a_type_in_words() -> None:
    assert type_words(KINDS["warmup"]) == "whole number or none"
    assert range_words(KINDS["warmup"]) == "at least 1"
    assert type_words(KINDS["mode"]) == "a, b or none"
    assert range_words(KINDS["mode"]) == range_words(KINDS["rate"]) == ""
