"""Methods by name: one paper is one file here, with one class. Listing them imports no torch.

A file of your own joins them through the environment: `COLAFIER_METHODS=path/to/my_method.py`.
"""

import difflib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from colafier._validation import checked

if TYPE_CHECKING:
    from colafier.methods.contract import Method

NOT_METHODS = {"contract", "row_table"}  # modules here that methods are written with
OWN_FILES = "COLAFIER_METHODS"  # environment variable: paths, separated as in PATH
REQUIRED = inspect.Parameter.empty  # the default of a hyper-parameter that has none


def available() -> list[str]:
    """The names of all methods."""
    return sorted(_built_in() | _own_files().keys())


def find(name: str) -> "type[Method]":
    """The class of a method."""
    if name not in available():
        near = difflib.get_close_matches(name, available(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"no method {name!r}; there are {', '.join(available())}{hint}")
    from colafier.methods.contract import Method

    module = _module(name)
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Method)
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise ValueError(f"{module.__file__} must define one Method, but defines {len(classes)}")
    return classes[0]


class HyperParameter(NamedTuple):
    """What a method's constructor declares about one of its arguments."""

    default: Any  # REQUIRED if there is none
    kind: Any  # its type, which may carry a `Range`


def hyper_parameters(name: str) -> dict[str, HyperParameter]:
    """Default, type and range of each hyper-parameter of a method."""
    kinds = get_type_hints(find(name).__init__, include_extras=True)
    parameters = inspect.signature(find(name)).parameters.values()
    named = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return {p.name: HyperParameter(p.default, kinds.get(p.name, Any)) for p in named}


def check(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Hyper-parameters of a method in their declared types.

    An unknown name, a wrong type and a number outside its range are errors.
    """
    kinds = {key: parameter.kind for key, parameter in hyper_parameters(name).items()}
    return checked(values, kinds, f"hyper-parameter of {name}")


def build(name: str, **values: Any) -> "Method":
    """A method with these hyper-parameters, which are checked here and nowhere else."""
    return find(name)(**check(name, values))


def _built_in() -> set[str]:
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return {name for name in found if name not in NOT_METHODS and not name.startswith("_")}


def _own_files() -> dict[str, Path]:
    """The user's own files, by the name of their method."""
    files: dict[str, Path] = {}
    for text in filter(None, os.environ.get(OWN_FILES, "").split(os.pathsep)):
        path = Path(text).resolve()
        name = path.stem
        if not path.is_file():
            raise ValueError(f"{OWN_FILES} names {text}, but there is no file")
        if name in _built_in() or files.get(name, path) != path:
            raise ValueError(f"there is already a method with the name of {path}: rename the file")
        if name in NOT_METHODS or name.startswith("_") or not name.isidentifier():
            raise ValueError(f"{name!r} cannot be the name of a method: rename {path}")
        files[name] = path
    return files


def _module(name: str) -> ModuleType:
    """The module of a method; a user's own file is loaded as if it were in this folder."""
    whole = f"{__name__}.{name}"
    path = _own_files().get(name)
    try:
        if path is None or whole in sys.modules:
            return importlib.import_module(whole)
        return _load(whole, path)
    except Exception as error:
        place = _place(path or Path(__file__).parent / f"{name}.py", error)
        raise ValueError(f"{place}: {type(error).__name__}: {error}") from error


def _load(whole: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(whole, path)
    if spec is None or spec.loader is None:
        raise ValueError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[whole] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[whole]
        raise
    return module


def _place(path: Path, error: Exception) -> str:
    """The file, and its last line in the traceback of the error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return f"{path}, line {lines[-1]}" if lines else str(path)
