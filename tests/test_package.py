"""What is built and installed is complete, and quick to start."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import colafier
from colafier.training.records import PACKAGES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
INSTALLED_AS = {"sklearn": "scikit-learn", "lightning_fabric": "lightning-fabric"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def python(code: str, *, path: Path = ROOT / "src") -> str:
    """What a fresh interpreter prints, with the package from this folder."""
    start = f"import sys; sys.path.insert(0, {str(path)!r});"
    done = subprocess.run(
        [sys.executable, "-c", start + code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def declared() -> set[str]:
    """Names of what is installed along."""
    return {re.split(r"[<>=]", text)[0] for text in PROJECT["dependencies"]}


def test_wheel_has_presets_templates_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    presets = {
        f"colafier/workflows/presets/{name}.toml" for name in ("cifar10", "cifar10n", "digits")
    }
    templates = {
        f"colafier/report/templates/{path.name}"
        for path in (ROOT / "src/colafier/report/templates").iterdir()
    }
    assert len(templates) > 5
    assert presets | templates | {"colafier/py.typed", "colafier/cli/app.py"} <= names
    assert not [name for name in names if name.startswith("tests")]


def test_wheel_works_on_its_own(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "import colafier; from colafier.workflows import settings; "
        "print(colafier.__file__, *settings.preset_names())"
    )
    where, *presets = python(code, path=tmp_path).split()
    assert Path(where).is_relative_to(tmp_path)
    assert presets == ["cifar10", "cifar10n", "digits"]


@pytest.mark.parametrize(
    "code",
    [
        "import colafier",
        "from colafier.methods import available; available()",
        "import sys; sys.argv = ['colafier', '--help']\n"
        "from colafier.cli.app import app\n"
        "try:\n    app()\nexcept SystemExit as end:\n    assert not end.code",
        "import sys; sys.argv = ['colafier', 'train', '--help']\n"
        "from colafier.cli.app import app\n"
        "try:\n    app()\nexcept SystemExit as end:\n    assert not end.code",
    ],
)
def test_starts_without_torch(code: str) -> None:
    said = python(code + "\nprint('slow' if 'torch' in sys.modules else 'quick')")
    assert said.splitlines()[-1] == "quick"


@pytest.mark.parametrize("name", colafier.__all__)
def test_public_names_exist(name: str) -> None:
    assert getattr(colafier, name).__name__ == name
    assert name in dir(colafier)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = colafier.nonsense


def test_declared_dependencies_are_those_that_are_imported() -> None:
    imported = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    foreign = imported - sys.stdlib_module_names - {"colafier"}
    needed = {INSTALLED_AS.get(name, name) for name in foreign}
    assert needed - set(PROJECT["optional-dependencies"]) == declared()


def test_recorded_versions_are_of_dependencies() -> None:
    assert set(PACKAGES) <= declared()


def test_versions_have_no_upper_bounds() -> None:
    extras = PROJECT["optional-dependencies"].values()
    wanted = [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]
    assert not [text for text in wanted if "<" in text or "==" in text]


def test_version_is_the_same_everywhere() -> None:
    assert f"version: {colafier.__version__}" in (ROOT / "CITATION.cff").read_text()
