"""Values checked against declared types and ranges, as settings come from anywhere."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    NoneType: "none",
}


def checked(values: Mapping[str, Any], kinds: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The values in their declared types; an unknown name or a wrong type is an error.

    Args:
        values: By name.
        kinds: The declared type of each name: numbers, texts, `Literal`, tuples, and unions.
        what: What a name stands for, as in `no setting 'epoch'`.
    """
    for name in values:
        if name not in kinds:
            raise ValueError(f"no {what} {name!r}; there are {', '.join(sorted(kinds)) or 'none'}")
    return {name: _cast(name, value, kinds[name]) for name, value in values.items()}


def _cast(name: str, value: Any, kind: Any) -> Any:
    """The value if it is of this kind (a whole number may stand for a float), else an error."""
    for option in _options(kind):
        if option is Any:
            return value
        if option is float and type(value) is int:
            return float(value)
        if get_origin(option) is Literal and value in get_args(option):
            return value
        if get_origin(option) is tuple and isinstance(value, list | tuple):
            return tuple(_cast(name, item, get_args(option)[0]) for item in value)
        if get_origin(option) is None and type(value) is option:  # True is no int here
            return value
    raise ValueError(f"{name} must be {_say(kind)}, not {value!r}")


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _say(kind: Any) -> str:
    said = []
    for option in _options(kind):
        if get_origin(option) is Literal:
            said.append("one of " + ", ".join(map(str, get_args(option))))
        elif get_origin(option) is tuple:
            said.append("a list")
        else:
            said.append(WORDS.get(option, str(option)))
    return " or ".join(said)


def within(value: float | None, low: float, high: float, name: str) -> None:
    """An error if a hyper-parameter is outside its range; None leaves it open."""
    if value is not None and not low <= value <= high:
        raise ValueError(f"{name} must be from {low} to {high}, not {value}")
