import subprocess
import sys
from typing import Any, Literal

import pytest

from colafier import methods
from colafier.methods.base import Method
from colafier.methods.ce import CrossEntropy


def test_names_are_files() -> None:
    assert {"ce", "colafier"} <= set(methods.available())
    assert "base" not in methods.available()
    assert methods.find("ce") is CrossEntropy
    assert isinstance(methods.build("ce"), CrossEntropy)


def test_listing_imports_no_torch() -> None:
    code = "import sys, colafier.methods as m; m.available(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"no method 'colafer'; there are .*did you mean colafier"):
        methods.find("colafer")


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
