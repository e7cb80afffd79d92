"""Who may import whom: from lines above, or names to the left in its own line."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "colafier"

LAYERS = (
    ("files", "kinds", "flow", "rows", "seeds", "inference"),
    ("history", "lid", "functional", "mixing", "selection", "schedules", "transition", "ema"),
    ("nets", "subnets", "weights", "losses", "relabel", "gate", "variants"),
    ("methods", "data", "embed"),
    ("train",),
    ("audit", "plots", "model_store", "exchange"),
    (
        "presets",
        "settings",
        "runs",
        "relearn",
        "fitting",
        "numbers",
        "run_folder",
        "labelled",
        "outputs",
        "purify",
        "serving",
        "applying",
        "exchanging",
        "inputs",
        "find_issues",
        "estimator",
        "bench",
    ),
    ("terminal", "summary", "demo", "cli_data", "cli_apply", "cli_report", "cli", "__main__"),
)
NEVER = {
    "data": {"methods"},
    "embed": {"methods"},
}
# no concrete method, no concrete data set
TRAIN_MAY = ("files", "flow", "rows", "seeds", "inference", "schedules", "methods.base")
FILES = sorted(set(PACKAGE.rglob("*.py")) - {PACKAGE / "__init__.py"})  # names what is public


def part_of(path: Path) -> str:
    """The name of a file's line in the table: `nets/resnet.py` is part of `nets`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(source: str) -> set[str]:
    """Modules of the package that a source imports anywhere, as `methods.base`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            # `from colafier import lid` names the module in the alias
            whole = node.module == "colafier"
            found |= {f"colafier.{a.name}" for a in node.names} if whole else {node.module or ""}
    return {name.removeprefix("colafier.") for name in found if name.startswith("colafier.")}


def forbidden(part: str, module: str) -> bool:
    """Whether a part of the package may not import a module of it."""
    target = module.partition(".")[0]
    if target == part or module == "__version__":
        return False
    if part == "train":
        return module not in TRAIN_MAY
    order = [name for layer in LAYERS for name in layer]
    return order.index(target) > order.index(part) or target in NEVER.get(part, set())


def test_every_file_has_a_place() -> None:
    assert {part_of(path) for path in FILES} <= {name for layer in LAYERS for name in layer}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_from_above(path: Path) -> None:
    part = part_of(path)
    wrong = {module for module in imports_of(path.read_text()) if forbidden(part, module)}
    assert not wrong, f"{part} may not import {wrong}"


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("lid", "from colafier.methods.base import Method"),
        ("methods", "import colafier.train.metrics"),
        ("methods", "def f():\n    from colafier.data.sources import digits"),
        ("data", "from colafier import methods"),
        ("train", "from colafier.methods.colafier import CoLafier"),
        ("rows", "from colafier.lid import lid"),
    ],
)
def test_the_check_sees_a_breach(part: str, source: str) -> None:
    assert any(forbidden(part, module) for module in imports_of(source))
