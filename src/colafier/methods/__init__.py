"""Methods by name: one paper is one file here with one class. Listing them imports no torch."""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

from colafier.kinds import checked

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


def check(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Hyper-parameters of a method in their types; an unknown one or a wrong type is an error."""
    kinds = {key: kind for key, (_, kind) in hyper_parameters(name).items()}
    return checked(values, kinds, f"hyper-parameter of {name}")


def build(name: str, **values: Any) -> "Method":
    """A method with these hyper-parameters, which are checked."""
    return find(name)(**check(name, values))
