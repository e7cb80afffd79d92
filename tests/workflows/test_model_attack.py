"""A model folder from a stranger: files that would run code lie in it, and nobody opens them."""

import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from own_data import colafier, fruit, quickly

pytestmark = pytest.mark.usefixtures("quick")

KNOWN = {"config.json", "model.safetensors", "table.json"}
TRAPS = (
    "table.skops", "table.pkl", "table.pickle", "table.joblib", "model.joblib", "model.pkl",
    "model.pt", "checkpoint.pt", "pytorch_model.bin", "table.npy", "classes.npy", "input.pkl",
    "__init__.py", "config.py", "modeling.py", "sitecustomize.py", "adapter_model.bin",
)  # fmt: skip
opened: list[str] | None = None  # paths that are opened, while a test looks


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.trace),)


def note(event: str, args: tuple[Any, ...]) -> None:
    if opened is not None and event == "open":
        opened.append(os.fsdecode(args[0]) if isinstance(args[0], str | bytes) else str(args[0]))


sys.addaudithook(note)  # for good, but it does nothing outside of these tests


@pytest.fixture
def watched() -> Iterator[list[str]]:
    global opened
    opened = []
    yield opened
    opened = None


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "fruit.csv"
    fruit(120, wrong=0.1).to_csv(path, index=False)
    return path


@pytest.fixture
def model(table: Path, tmp_path: Path) -> Path:
    quickly(table, tmp_path / "out")
    return tmp_path / "out" / "model"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "code-was-run"


def set_traps(model: Path, trace: Path) -> None:
    """Files as in the attack on an earlier version, and all others that a loader could look for."""
    code = f"import os; os.mkdir({str(trace)!r})"
    for name in TRAPS:
        path = model / name
        if name.endswith(".py"):
            path.write_text(code)
        elif name.endswith((".pt", ".bin")):
            torch.save(Trap(trace), path)
        else:
            path.write_bytes(pickle.dumps(Trap(trace)))
    (model / "joblib").mkdir()
    (model / "joblib" / "output.pkl").write_bytes(pickle.dumps(Trap(trace)))


def uses(model: Path, table: Path, tmp_path: Path) -> list[tuple[str | Path, ...]]:
    return [
        ("predict", model, table, "-o", tmp_path / "predictions.csv"),
        ("check", model, table, "--fail-above", "1"),
        ("export", model, "--onnx", "--rows", table, "-o", tmp_path / "model.onnx"),
    ]


def test_files_beside_the_known_ones_are_never_opened(
    model: Path, table: Path, tmp_path: Path, trace: Path, need: Callable[[str], None],
    watched: list[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    need("onnx")
    set_traps(model, trace)
    monkeypatch.chdir(model)  # where a module of this name would be found first
    for words in uses(model, table, tmp_path):
        watched.clear()
        colafier(*words)
        inside = {Path(path).name for path in watched if Path(path).is_relative_to(model)}
        assert inside == KNOWN, words[0]
    assert not trace.exists()
    pickle.loads((model / "table.skops").read_bytes())
    assert trace.exists()  # so they were real traps


@pytest.mark.parametrize("name", ["table.skops", "table.pkl", "table.joblib", "checkpoint.pt"])
def test_a_config_that_names_such_a_file_does_not_run_it(
    model: Path, table: Path, tmp_path: Path, trace: Path, name: str
) -> None:
    set_traps(model, trace)
    config = json.loads((model / "config.json").read_text())
    config["input"]["file"] = name
    (model / "config.json").write_text(json.dumps(config))
    for words in uses(model, table, tmp_path):
        assert "error: " in colafier(*words, code=2)
    assert not trace.exists()


def _with_head(stored: dict[str, Any], trace: Path) -> None:
    stored["py/reduce"] = [{"py/function": "os.mkdir"}, {"py/tuple": [str(trace)]}]


def _with_class(stored: dict[str, Any], trace: Path) -> None:
    stored["numbers"][0] |= {"__class__": "sklearn.pipeline.Pipeline", "memory": str(trace)}


def _with_method(stored: dict[str, Any], trace: Path) -> None:
    stored["numbers"][0]["kind"] = f"os.mkdir({str(trace)!r})"


def _with_path(stored: dict[str, Any], trace: Path) -> None:
    stored["categories"] = str(trace.parent / "table.pkl")


@pytest.mark.parametrize("change", [_with_head, _with_class, _with_method, _with_path])
def test_an_encoder_that_names_classes_methods_or_paths_is_refused(
    model: Path, table: Path, tmp_path: Path, trace: Path, change: Callable[..., None]
) -> None:
    stored = json.loads((model / "table.json").read_text())
    change(stored, trace)
    (model / "table.json").write_text(json.dumps(stored))
    for words in uses(model, table, tmp_path):
        assert "table.json is damaged" in colafier(*words, code=2)
    assert not trace.exists()


def test_code_as_a_category_is_only_text(
    model: Path, table: Path, tmp_path: Path, trace: Path
) -> None:
    stored = json.loads((model / "table.json").read_text())
    stored["categories"][0]["categories"][0] = f"__import__('os').mkdir({str(trace)!r})"
    (model / "table.json").write_text(json.dumps(stored))
    colafier(*uses(model, table, tmp_path)[0])
    assert not trace.exists()
