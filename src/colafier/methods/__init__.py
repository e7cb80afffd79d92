"""Methods by name: one paper is one file here with one class. Listing them imports no torch."""

import difflib
import importlib
import inspect
import pkgutil
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from colafier.methods.base import Method

CONTRACT = "base"
REQUIRED = inspect.Parameter.empty  # the default of a hyper-parameter that has none


def available() -> list[str]:
    """The names of all methods."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if name != CONTRACT and not name.startswith("_"))


def find(name: str) -> "type[Method]":
    """The class of a method."""
    if name not in available():
        near = difflib.get_close_matches(name, available(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"no method {name!r}; there are {', '.join(available())}{hint}")
    from colafier.methods.base import Method

    module = importlib.import_module(f"{__name__}.{name}")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Method)
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise TypeError(f"{module.__name__} must define one Method, it has {len(classes)}")
    return classes[0]


def hyper_parameters(name: str) -> dict[str, tuple[Any, Any]]:
    """Default and type of each hyper-parameter of a method."""
    kinds = get_type_hints(find(name).__init__)
    parameters = inspect.signature(find(name)).parameters.values()
    named = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return {p.name: (p.default, kinds.get(p.name, Any)) for p in named}


def build(name: str, **settings: Any) -> "Method":
    """A method with these hyper-parameters; an unknown one or a wrong type is an error."""
    known = hyper_parameters(name)
    there = ", ".join(f"{key}={default!r}" for key, (default, _) in known.items()) or "none"
    for key, value in settings.items():
        if key not in known:
            raise ValueError(f"{name} has no hyper-parameter {key!r}; there are {there}")
        if not _fits(value, kind := known[key][1]):
            said = getattr(kind, "__name__", str(kind)) if get_origin(kind) is None else str(kind)
            raise ValueError(f"{key} of {name} must be {said}, not {value!r}; there are {there}")
    return find(name)(**settings)


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a type; whole numbers are also floats, True and False only bools."""
    origin, options = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in options)
    if origin is Literal:
        return value in options
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, options[0]) for item in value)
    if kind is None or kind is NoneType:
        return value is None
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else origin or kind)
