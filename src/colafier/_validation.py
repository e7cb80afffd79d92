"""Settings checked against their declared types and ranges, wherever the values come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

WORDS = {int: "a whole number", float: "a number", str: "text", NoneType: "none"}


@dataclass(frozen=True)
class Range:
    """The values that a number may take, declared as in `Annotated[float, Range(0, 1)]`.

    Args:
        low: Smallest value.
        high: Largest value.
        low_open: Whether the smallest value itself is excluded.
        high_open: Whether the largest value itself is excluded.
        infinite: Whether infinity is allowed; not-a-number never is.
    """

    low: float = -inf
    high: float = inf
    low_open: bool = False
    high_open: bool = False
    infinite: bool = False

    def __contains__(self, value: float) -> bool:
        if value != value or (abs(value) == inf and not self.infinite):
            return False
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below

    def __str__(self) -> str:
        low = f"above {self.low:g}" if self.low_open else f"{self.low:g}"
        high = f"below {self.high:g}" if self.high_open else f"{self.high:g}"
        if isfinite(self.low) and isfinite(self.high):
            text = f"{low} to {high}"
        elif isfinite(self.low):
            text = low if self.low_open else f"at least {low}"
        elif isfinite(self.high):
            text = high if self.high_open else f"at most {high}"
        else:
            text = "any number"
        return f"{text}, or inf" if self.infinite else text


FINITE = Range()  # of a number that declares no range


def checked(values: Mapping[str, Any], kinds: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The values in their declared types.

    An unknown name, a wrong type and a number outside its range are errors.

    Args:
        values: By name.
        kinds: The declared type of each name: a number, text, `Literal`, a tuple or a union. A
            number may carry a `Range`: `Annotated[int, Range(1)] | None`.
        what: What a name stands for, as in `no setting 'epoch'`.
    """
    for name in values:
        if name not in kinds:
            raise ValueError(f"no {what} {name!r}; there are {', '.join(sorted(kinds)) or 'none'}")
    return {name: _cast(name, value, kinds[name]) for name, value in values.items()}


def type_words(kind: Any) -> str:
    """A declared type in a few words, without its range: `whole number or none`."""
    words = [word for option in _options(kind) for word in _alternatives(_unwrapped(option)[0])]
    return _either([word.removeprefix("a ") for word in words])


def range_words(kind: Any) -> str:
    """The declared range in a few words; empty if there is none."""
    ranges = [_unwrapped(option)[1] for option in _options(kind)]
    return _either([str(allowed) for allowed in ranges if allowed is not FINITE])


def _cast(name: str, value: Any, kind: Any) -> Any:
    """The value if it is of this kind (a whole number may stand for a float), else an error."""
    for option in _options(kind):
        plain, allowed = _unwrapped(option)
        if plain is Any:
            return value
        if get_origin(plain) is Literal and value in get_args(plain):
            return value
        if get_origin(plain) is tuple and isinstance(value, list | tuple):
            return tuple(_cast(name, item, get_args(plain)[0]) for item in value)
        if get_origin(plain) is dict and isinstance(value, dict):
            return value
        if plain is float and type(value) in (int, float) and value in allowed:
            return float(value)
        if plain is int and type(value) is int and value in allowed:  # True is no int here
            return value
        if plain not in (int, float) and get_origin(plain) is None and type(value) is plain:
            return value
    raise ValueError(f"{name} must be {_words(kind)}, not {value!r}")


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _unwrapped(option: Any) -> tuple[Any, Range]:
    """The type itself, and the range that it carries."""
    if get_origin(option) is not Annotated:
        return option, FINITE
    plain, *notes = get_args(option)
    return plain, next((note for note in notes if isinstance(note, Range)), FINITE)


def _words(kind: Any) -> str:
    """Type and range in words: `a whole number (at least 1) or none`."""
    words = []
    for option in _options(kind):
        plain, allowed = _unwrapped(option)
        ranged = "" if allowed is FINITE else f" ({allowed})"
        first, *others = _alternatives(plain)
        listed = "one of " if get_origin(plain) is Literal and others else ""
        words += [listed + first + ranged, *others]
    return _either(words)


def _alternatives(plain: Any) -> list[str]:
    """What a value of this type may be; the values themselves if they can be listed."""
    if get_origin(plain) is Literal:
        return [str(choice) for choice in get_args(plain)]
    if plain is bool:
        return ["true", "false"]
    return ["a list" if get_origin(plain) is tuple else WORDS.get(plain, str(plain))]


def _either(words: list[str]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
