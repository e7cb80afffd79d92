"""Learn from noisy labels and purify them: the public names of the package.

Each name is imported at its first use, so that `import colafier` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colafier.benchmark_data.sources import Source, arrays
    from colafier.estimator import ColafierClassifier, NoisyLabelClassifier
    from colafier.find_issues import find_label_issues
    from colafier.methods.colafier import CoLafier
    from colafier.methods.contract import Batch, Method, Pass, Purified
    from colafier.methods.row_table import RowTable
    from colafier.workflows.experiment import Result, run
    from colafier.workflows.settings import Settings, resolve

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "CoLafier",
    "ColafierClassifier",
    "Method",
    "NoisyLabelClassifier",
    "Pass",
    "Purified",
    "Result",
    "RowTable",
    "Settings",
    "Source",
    "arrays",
    "find_label_issues",
    "resolve",
    "run",
]

_HOMES = {
    "Batch": "methods.contract",
    "CoLafier": "methods.colafier",
    "ColafierClassifier": "estimator",
    "Method": "methods.contract",
    "NoisyLabelClassifier": "estimator",
    "Pass": "methods.contract",
    "Purified": "methods.contract",
    "Result": "workflows.experiment",
    "RowTable": "methods.row_table",
    "Settings": "workflows.settings",
    "Source": "benchmark_data.sources",
    "arrays": "benchmark_data.sources",
    "find_label_issues": "find_issues",
    "resolve": "workflows.settings",
    "run": "workflows.experiment",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
