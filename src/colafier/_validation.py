"""Settings checked against their declared types and ranges, wherever the values come from."""

import reprlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from math import inf, isfinite
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

WORDS = {
    int: "a whole number", float: "a number", str: "text", NoneType: "none", dict: "an object",
}  # fmt: skip
LARGEST = 2**63 - 1  # whole number that torch, NumPy and files can hold


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
        if type(value) is int and abs(value) > LARGEST:
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
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = 80


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
    return {name: as_declared(name, value, kinds[name]) for name, value in values.items()}


def type_words(kind: Any) -> str:
    """A declared type in a few words, without its range: `whole number or none`."""
    words = [word for option in _options(kind) for word in _alternatives(_unwrapped(option)[0])]
    return _either([word.removeprefix("a ") for word in words])


def range_words(kind: Any) -> str:
    """The declared range in a few words; empty if there is none."""
    ranges = [_unwrapped(option)[1] for option in _options(kind)]
    return _either([str(allowed) for allowed in ranges if allowed is not FINITE])


def as_declared(name: str, value: Any, kind: Any) -> Any:
    """The value if it is of this kind (a whole number may stand for a float), else an error.

    An object becomes a dataclass, which lists all of its keys, or stays a dictionary with the keys
    of a TypedDict, which may have others beside them.

    Args:
        name: What to call the value in an error message; empty for the content of a file.
        value: As it came.
        kind: The declared type, as for `checked`; or a dataclass or TypedDict.
    """
    for option in _options(kind):
        plain, allowed = _unwrapped(option)
        if plain is Any or (get_origin(plain) is Literal and value in get_args(plain)):
            return value
        if _is_list(plain) and isinstance(value, list | tuple):
            return _list(name, value, plain)
        if _is_object(plain) and isinstance(value, dict):
            return _object(name, value, plain)
        if plain in (int, float):
            if _is_number(value, plain) and value in allowed:
                return plain(value)
        elif type(value) is plain:
            return value
    limit = " of at most 64 bits" if type(value) is int and abs(value) > LARGEST else ""
    raise ValueError(f"{name or 'it'} must be {_words(kind)}{limit}, not {_shown(value)}")


def _is_number(value: Any, kind: Any) -> bool:
    return type(value) is int or type(value) is kind  # True is no int here


def _object(name: str, value: Mapping[str, Any], kind: Any) -> Any:
    """An object as a dataclass, TypedDict or dictionary."""
    if get_origin(kind) is dict:
        of = get_args(kind)[1]
        return {key: as_declared(_inside(name, key), item, of) for key, item in value.items()}
    hints, required = _keys(kind)
    if not is_typeddict(kind) and (unknown := [key for key in value if key not in hints]):
        raise ValueError(f"{_inside(name, unknown[0])} is no key; there are {', '.join(hints)}")
    if missing := [key for key in hints if key in required and key not in value]:
        raise ValueError(f"{_inside(name, missing[0])} is missing")
    known = {key: of for key, of in hints.items() if key in value}
    found = {key: as_declared(_inside(name, key), value[key], of) for key, of in known.items()}
    return {**value, **found} if is_typeddict(kind) else kind(**found)


@cache
def _keys(kind: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The declared type of each key, and the keys that are required."""
    hints = get_type_hints(kind, include_extras=True)
    if is_typeddict(kind):
        for key, of in hints.items():
            hints[key] = get_args(of)[0] if get_origin(of) is NotRequired else of
        return hints, kind.__required_keys__
    return hints, frozenset(field.name for field in fields(kind) if field.default is MISSING)


def _list(name: str, value: list[Any] | tuple[Any, ...], kind: Any) -> Any:
    """A list or tuple: of values of one kind, or with a kind for each place."""
    made: Any = get_origin(kind)
    kinds = get_args(kind)
    if made is list or kinds[1:] == (...,):
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        raise ValueError(f"{name} must have {len(kinds)} values, not {len(value)}")
    found = []
    for place, (item, of) in enumerate(zip(value, kinds, strict=True)):
        plain = _unwrapped(of)[0]
        where = _inside(name, place) if _is_list(plain) or _is_object(plain) else name
        found.append(as_declared(where, item, of))
    return made(found)


def _is_list(plain: Any) -> bool:
    return get_origin(plain) in (tuple, list)


def _is_object(plain: Any) -> bool:
    return get_origin(plain) is dict or is_dataclass(plain) or is_typeddict(plain)


def _inside(name: str, key: object) -> str:
    """The name of a value in a value: `input.kind`."""
    return f"{name}.{_short(key)}" if name else _short(key)


def _short(key: object) -> str:
    return str(key)[:80]


def _shown(value: object) -> str:
    """A value in an error message, cut if it is long."""
    return _REPR.repr(value)


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
    if _is_list(plain):
        return ["a list"]
    if _is_object(plain):
        return [WORDS[dict]]
    return [WORDS.get(plain, str(plain))]


def _either(words: list[str]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
