import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from colafier import methods
from colafier.methods.ce import CrossEntropy
from colafier.methods.contract import Method


def test_names_are_files() -> None:
    assert {"ce", "colafier"} <= set(methods.available())
    assert "contract" not in methods.available()
    assert methods.find("ce") is CrossEntropy
    assert isinstance(methods.build("ce"), CrossEntropy)


def test_listing_imports_no_torch() -> None:
    code = "import sys, colafier.methods as m; m.available(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"no method 'colafer'; there are .*did you mean colafier"):
        methods.find("colafer")


EXAMPLE = Path(__file__).parents[2] / "examples" / "new_method.py"


def test_a_file_of_ones_own_is_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(methods.OWN_FILES, raising=False)
    assert "new_method" not in methods.available()
    monkeypatch.setenv(methods.OWN_FILES, str(EXAMPLE))
    assert "new_method" in methods.available()
    method = methods.build("new_method", share=0.3)
    assert type(method) is methods.find("new_method")
    assert (type(method).__name__, method.share) == ("LabelSmoothing", 0.3)
    monkeypatch.delenv(methods.OWN_FILES)
    with pytest.raises(ValueError, match="no method 'new_method'"):
        methods.find("new_method")


def test_the_example_shows_up_in_the_command_line_and_trains(tmp_path: Path) -> None:
    environment = {**os.environ, methods.OWN_FILES: str(EXAMPLE), "COLUMNS": "200"}

    def say(*words: str) -> str:
        command = [sys.executable, "-m", "colafier", *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment
        ).stdout

    assert "new_method" in say("methods")
    words = ["--preset", "digits", "--method", "new_method", "--epochs", "1"]
    told = say("train", *words, "--out", str(tmp_path / "run"))
    assert "test accuracy" in told


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("absent.py", None, "no file"),
        ("ce.py", "", "rename"),
        ("contract.py", "", "rename"),
        ("_pair.py", "", "rename"),
        ("my method.py", "", "rename"),
        ("empty.py", "", "one Method"),
        ("broken.py", "import math\nmath.nothing\n", "broken.py, line 2: AttributeError"),
        ("unfinished.py", "class Mine(\n", r"unfinished.py: SyntaxError.*line 1"),
    ],
)
def test_a_file_that_is_no_method(
    name: str, text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(methods.OWN_FILES, name)
    with pytest.raises(ValueError, match=said):
        methods.find(name.removesuffix(".py"))


def test_two_files_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / "a" / "mine.py", tmp_path / "b" / "mine.py"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("")
    monkeypatch.setenv(methods.OWN_FILES, os.pathsep.join(map(str, paths)))
    with pytest.raises(ValueError, match="there already: rename"):
        methods.available()


class Picky(Method):
    """A method with hyper-parameters of many kinds."""

    def __init__(
        self,
        *,
        rate: float = 0.5,
        warmup: int | None = None,
        mode: Literal["a", "b"] = "a",
        widths: tuple[int, ...] = (1,),
        soft: bool = False,
    ) -> None:
        super().__init__()
        self.chosen = (rate, warmup, mode, widths, soft)


@pytest.fixture
def _picky(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "find", lambda _: Picky)


@pytest.mark.usefixtures("_picky")
def test_hyper_parameters_are_taken() -> None:
    method = methods.build("picky", rate=1, warmup=3, mode="b", widths=(2, 3), soft=True)
    assert isinstance(method, Picky)
    assert method.chosen == (1, 3, "b", (2, 3), True)
    assert methods.build("picky", warmup=None)
    assert methods.hyper_parameters("picky")["rate"] == (0.5, float)


@pytest.mark.usefixtures("_picky")
@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": "1"},
        {"rate": True},
        {"warmup": 1.5},
        {"mode": "c"},
        {"widths": (1, "2")},
        {"soft": 1},
    ],
)
def test_wrong_types_are_errors(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=rf"{name} must be "):
        methods.build("picky", **wrong)


@pytest.mark.usefixtures("_picky")
def test_unknown_names_are_errors() -> None:
    with pytest.raises(ValueError, match=r"no hyper-parameter of picky 'ratio'; there are .*rate"):
        methods.build("picky", ratio=1)
