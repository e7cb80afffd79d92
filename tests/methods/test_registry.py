import os
import subprocess
import sys
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from rich.console import Console
from typer.testing import CliRunner

from colafier import methods
from colafier._validation import Range, range_words, type_words
from colafier.cli.app import app
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


def test_your_own_file_is_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
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

    def output(*words: str) -> str:
        command = [sys.executable, "-m", "colafier", *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=environment
        ).stdout

    assert "new_method" in output("methods")
    words = ["--preset", "digits", "--method", "new_method", "--epochs", "1"]
    assert "test accuracy" in output("train", *words, "--out", str(tmp_path / "run"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
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
    name: str, text: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(methods.OWN_FILES, name)
    with pytest.raises(ValueError, match=message):
        methods.find(name.removesuffix(".py"))


def test_two_files_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / "a" / "mine.py", tmp_path / "b" / "mine.py"]
    for path in paths:
        path.parent.mkdir()
        path.write_text("")
    monkeypatch.setenv(methods.OWN_FILES, os.pathsep.join(map(str, paths)))
    with pytest.raises(ValueError, match=r"already a method .*rename"):
        methods.available()


class Picky(Method):
    """A method with hyper-parameters of many kinds."""

    def __init__(
        self,
        *,
        rate: Annotated[float, Range(0, 1)] = 0.5,
        warmup: Annotated[int, Range(1)] | None = None,
        mode: Literal["a", "b"] = "a",
        soft: bool = False,
    ) -> None:
        super().__init__()
        self.chosen = (rate, warmup, mode, soft)


@pytest.fixture
def _picky(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "find", lambda _: Picky)


@pytest.mark.usefixtures("_picky")
def test_hyper_parameters_are_taken() -> None:
    method = methods.build("picky", rate=1, warmup=3, mode="b", soft=True)
    assert isinstance(method, Picky)
    assert method.chosen == (1, 3, "b", True)
    assert methods.build("picky", warmup=None)
    declared = methods.hyper_parameters("picky")["rate"]
    assert declared == (0.5, Annotated[float, Range(0, 1)])


@pytest.mark.usefixtures("_picky")
@pytest.mark.parametrize(
    "wrong", [{"rate": "1"}, {"rate": 1.1}, {"warmup": 1.5}, {"warmup": 0}, {"mode": "c"}]
)
def test_wrong_types_and_ranges_are_errors(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(ValueError, match=rf"{name} must be "):
        methods.build("picky", **wrong)


@pytest.mark.usefixtures("_picky")
def test_unknown_names_are_errors() -> None:
    with pytest.raises(ValueError, match=r"no hyper-parameter of picky 'ratio'; there are .*rate"):
        methods.build("picky", ratio=1)


WITHOUT_MEANING: dict[str, list[tuple[str, Any]]] = {
    "cal": [("proxy_epochs", 0), ("warmup", -1), ("ramp", 0), ("peer_weight", -1.0)],
    "co_learning": [("mix_alpha", 0.0), ("temperature", 0.0), ("width", 0)],
    "co_teaching": [("noise_rate", 1.2), ("ramp", 0)],
    "co_teaching_plus": [("warmup", -1)],
    "cores2": [("peer_weight", -1.0), ("warmup", -1), ("ramp", 0), ("sieve", -1)],
    "decoupling": [("warmup", -1), ("min_share", 1.5)],
    "disc": [("warmup", -1), ("momentum", 1.5), ("margin", -0.1), ("hard_q", 0.0), ("alpha", 0.0)],
    "dividemix": [("warmup", -1), ("threshold", 1.2), ("temperature", 0.0), ("batch_size", 0)],
    "elr": [("momentum", 1.1), ("weight", -1.0)],
    "elr_plus": [("momentum", 1.1), ("decay", 2.0), ("decay_ramp", 0), ("alpha", 0.0)],
    "forward_t": [("warmup", 0), ("quantile", 1.5), ("holdout", 0.9)],
    "gce": [("power", 0.0), ("power", 1.1), ("threshold", -0.1), ("interval", 0)],
    "gjs": [("label_weight", 0.0), ("label_weight", 1.0), ("num_views", 0)],
    "jocor": [("agreement", 1.5)],
    "joint_optim": [("prior_weight", -1.0), ("label_start", 0), ("window", 0)],
    "l_dmi": [("warmup", 0), ("rate", -1.0), ("rows_per_class", 0)],
    "mixup": [("alpha", 0.0)],
    "peer_loss": [("schedule", "dense"), ("max_weight", -1.0)],
    "pencil": [("observed_weight", -1.0), ("label_rate", -0.1), ("label_steps", 0)],
    "reweight_r": [("warmup", 0), ("revision", -1), ("revision_rate", -1.0), ("quantile", 2.0)],
}


@pytest.mark.parametrize("name", WITHOUT_MEANING)
def test_values_without_meaning_are_refused(name: str) -> None:
    for key, value in WITHOUT_MEANING[name]:
        with pytest.raises(ValueError, match=rf"{key} must be .*, not {value!r}"):
            methods.build(name, **{key: value})


def test_the_range_of_the_loss_weight_may_include_infinity() -> None:
    assert methods.build("peer_loss", max_weight=inf)


@pytest.mark.parametrize("name", methods.available())
def test_every_number_declares_a_range_that_holds_its_default(name: str) -> None:
    for key, (default, kind) in methods.hyper_parameters(name).items():
        if "number" in type_words(kind):
            assert range_words(kind), key
        if default is not methods.REQUIRED:
            assert methods.check(name, {key: default}) == {key: default}


def test_the_command_line_lists_default_type_and_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colafier.cli.app.console", Console(width=200))
    text = CliRunner().invoke(app, ["methods", "gce"]).output
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines()]
    assert [row for row in cells if row] == [
        ["power", "0.7", "number", "1e-06 to 1"],
        ["truncated", "false", "true or false", ""],
        ["threshold", "0.5", "number", "0 to 1"],
        ["first_pruning", "none", "whole number or none", "at least 0"],
        ["interval", "none", "whole number or none", "at least 1"],
    ]
