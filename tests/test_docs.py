"""The documentation is true: its code runs, and its commands, options, tables and links exist."""

import importlib
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from typer.main import get_command

from colafier import arrays, methods, resolve, run
from colafier.audit.label_table import COLUMNS
from colafier.bench.suite import load_suite
from colafier.benchmark_data.noise import GENERATORS, Noise
from colafier.benchmark_data.sources import Source
from colafier.cli.app import app
from colafier.core import holdout_check
from colafier.core.config import VARIANTS, CoLafierConfig
from colafier.evidence.labels import Labels
from colafier.nets import net_factory
from colafier.training.trainer import fit
from colafier.training.training_set import TrainingSet
from colafier.workflows import exchange, run_dir
from colafier.workflows.purify import Options
from colafier.workflows.settings import Settings, read_pairs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )*(?:colafier\b|make\s|python\s\w+/\w+\.py)[^`]*)`")
WRONG_COMMAND = typer.BadParameter.__base__  # the UsageError of the click that typer uses
LINK = re.compile(r"\]\(([^)\s]+)\)")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return [code for name, code in FENCE.findall(page.read_text()) if name == language]


def commands(text: str) -> list[str]:
    """Command lines in the fenced shell blocks of a text, and those inside its sentences."""
    blocks = [code for language, code in FENCE.findall(text) if language == "sh"]
    lines = [line for code in blocks for line in code.replace("\\\n", " ").splitlines()]
    return [*lines, *(" ".join(code.split()) for code in INLINE.findall(FENCE.sub("", text)))]


def commands_of(program: str) -> list[str]:
    """The commands with this program in all pages; for `colafier`, in its help as well."""
    texts = [page.read_text() for page in PAGES]
    if program == "colafier":
        texts += [command.help or "" for command in leaves(get_command(app)).values()]
    lines = {line: None for text in texts for line in commands(text)}
    return [line for line in lines if line and split(line)[1][:1] == [program]]


def split(line: str) -> tuple[dict[str, str], list[str]]:
    """The variables that a command line sets, and its words."""
    words = shlex.split(line, comments=True)
    count = next((i for i, word in enumerate(words) if "=" not in word), len(words))
    return dict(word.split("=", 1) for word in words[:count]), words[count:]


def leaves(command: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """All commands that do something, by the words that call them."""
    if not hasattr(command, "commands"):
        return {path: command}
    inside = (leaves(child, (*path, name)) for name, child in command.commands.items())
    return {where: leaf for found in inside for where, leaf in found.items()}


def parse(words: list[str]) -> tuple[tuple[str, ...], dict[str, Any]] | int:
    """Read a command line as `colafier` does, but run nothing.

    Returns:
        The command and its parameters, or the exit code of `--help` and `--version`.

    Raises:
        WRONG_COMMAND: The command, an option or a value is wrong, or something is missing.
    """
    root = get_command(app)
    for where, leaf in leaves(root).items():
        leaf.callback = lambda where=where, **params: (where, params)
    return root.main(words, prog_name="colafier", standalone_mode=False)


def anchors(page: Path) -> set[str]:
    """What links to the headings of a page are called."""
    text = FENCE.sub("", page.read_text())
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


EXAMPLE, SECOND = (
    next(code for code in blocks(DOCS / "add-a-method.md", "python") if f"class {name}(" in code)
    for name in ("Bootstrap", "SmallLossHalf")
)
PYTHON = [
    pytest.param(code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(blocks(page, "python"))
]


@pytest.fixture(scope="module", autouse=True)
def _bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example of add-a-method.md, as if its file lay in the package."""
    folder = tmp_path_factory.mktemp("methods")
    (folder / "bootstrap.py").write_text(EXAMPLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods, "__path__", [*methods.__path__, str(folder)])
        yield
    sys.modules.pop("colafier.methods.bootstrap", None)
    vars(methods).pop("bootstrap", None)


@pytest.fixture
def clouds() -> Source:
    """Two clouds of 100 rows each, far from each other."""
    x = torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    x[100:] += 6
    return arrays(x, np.repeat([0, 1], 100))


def test_blocks_are_found() -> None:
    """The other tests would pass without any."""
    assert len(PYTHON) >= 5
    assert len(commands_of("colafier")) >= 60
    assert len(commands_of("python")) >= 10
    assert {page.stem for page in PAGES} >= {"quickstart", "how-it-works", "variants"}


@pytest.mark.parametrize("code", PYTHON)
def test_python_compiles(code: str) -> None:
    compile(code, "a fenced block", "exec")


def test_quickstart_snippet_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(DOCS / "quickstart.md", "python")
    exec(compile(code, "quickstart.md", "exec"), {"__name__": "quickstart"})
    said = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    before, after = (float(said[f"labels right {when}"]) for when in ("before", "after"))
    assert 0.6 < before < 0.8
    assert after > before + 0.15
    assert float(said["wrong among the suspicious"]) > 0.9


def test_example_method_works(clouds: Source) -> None:
    observed = {"net": "linear", "epochs": 5, "noise": "pair:0.25", "lr": 0.01, "batch_size": 32}
    settings = resolve(
        overrides={**observed, "method": "bootstrap"}, hyper={"observed_weight": 0.7}
    )
    result = run(settings, clouds, progress=False)
    assert result.record["config"]["hyper"] == {"observed_weight": 0.7}
    assert result.record["labels_right_after"] > 0.95 > result.record["labels_right_before"]
    assert result.history.epochs[-1]["loss_auroc"] > 0.95
    assert {"observed", "predicted", "label_accuracy"} <= result.history.epochs[-1].keys()


def test_example_of_passes_works(clouds: Source) -> None:
    names = dict(vars(importlib.import_module("colafier.methods.bootstrap")))
    exec(compile(SECOND, "add-a-method.md", "exec"), names)
    method = names["SmallLossHalf"]()
    rows = TrainingSet(clouds.x, Labels(clouds.labels), 2, view_names=method.views, batch_size=32)
    make_net = net_factory("linear", rows.row_shape, 2)
    assert len(fit(method, rows, make_net, epochs=4, progress=False).epochs) == 4
    first, later = (next(method.passes(epoch, rows)).rows for epoch in (1, 2))
    assert len(first) == 200
    assert len(later) == 100


@pytest.mark.parametrize("rule", ["check", "format --check"])
def test_example_method_keeps_the_rules_of_the_house(rule: str) -> None:
    place = ROOT / "src" / "colafier" / "methods" / "bootstrap.py"
    command = ["ruff", *rule.split(), "--no-cache", "--stdin-filename", str(place), "-"]
    done = subprocess.run(
        [sys.executable, "-m", *command], input=EXAMPLE, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("line", commands_of("colafier"))
def test_colafier_commands_are_understood(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the data: command, options, and values as far as they can be checked without it."""
    variables, words = split(line)
    if tuple(words[1:]) in leaves(get_command(app)) or words[1:] in ([], ["exchange"], ["bench"]):
        return  # a sentence that names a command
    for name, value in variables.items():
        monkeypatch.setenv(name, os.fspath(ROOT / value))
    found = parse(words[1:])
    if isinstance(found, int):
        assert found == 0
        assert words[-1] in ("--help", "--version")
        return
    (name, *_), params = found
    chosen = {key: value for key, value in params.items() if value is not None}
    check = {"train": _check_run, "noise": _check_run, "demo": _check_run, "purify": _check_purify}
    check["bench"] = _check_bench
    if name in check:
        check[name](chosen)
    elif name == "methods":
        assert chosen["name"].isupper() or methods.find(chosen["name"])
    elif name == "exchange":
        assert chosen["form"] in exchange.FORMS
    elif name == "apply":
        assert chosen.get("files") or chosen["go_on"] or chosen["reset"]
    elif name == "export":
        assert chosen["onnx"]
    else:
        assert name in ("report", "predict", "check", "compare", "bench")


def _check_run(chosen: dict[str, Any]) -> None:
    """Preset, method, hyper-parameters and noise of a research run exist."""
    if chosen.get("preset") == "mine.toml":
        return  # the reader's own file
    if "spec" in chosen:
        chosen = {**chosen, "noise": chosen["spec"]}
    known = {field.name for field in fields(Settings)}
    overrides = {key: value for key, value in chosen.items() if key in known}
    settings = resolve(chosen.get("preset"), overrides, read_pairs(list(chosen.get("set_", ()))))
    Noise.parse(settings.noise)
    methods.build(settings.method, **settings.hyper)


def _check_bench(chosen: dict[str, Any]) -> None:
    """Suite, entries and noises exist; a figure has no suite."""
    if chosen.get("suite", "SUITE") in ("SUITE", "mine.toml"):
        return
    suite = load_suite(chosen["suite"])
    for one in suite.runs("", chosen.get("methods", ()), chosen.get("noises", ())):
        Noise.parse(one.settings.noise)


def _check_purify(chosen: dict[str, Any]) -> None:
    """There is something to purify, or a run to resume; mode, method and format exist."""
    if "resume" in chosen:
        assert "source" not in chosen
        return
    assert "out" in chosen
    Options(chosen["source"], mode=chosen["mode"], min_confidence=chosen["min_confidence"])
    methods.find(chosen["method"])
    assert chosen.get("write", "csv") in ("folder", "csv", "parquet", "npz")


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "report out --nonsense",
        "report",
        "apply out decisions.json --again",
        "exchange out label-studio out -o tasks.json --nonsense",
        "exchange out label-studio out",
        "exchange out label-studio out -o tasks.json --limit none",
        "exchange sideways label-studio out -o tasks.json",
        "check out/model new.csv --fail-above 2",
        "train --preset digits",
        "train --out runs/x --epochs many",
    ],
)
def test_wrong_commands_would_be_found(line: str) -> None:
    """The test above can fail: options, values and arguments are all looked at."""
    with pytest.raises(WRONG_COMMAND):
        parse(shlex.split(line))


@pytest.mark.parametrize("line", commands_of("make"))
def test_make_targets_exist(line: str) -> None:
    _, words = split(line)
    assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("line", commands_of("python"))
def test_scripts_and_their_options_exist(line: str) -> None:
    _, words = split(line)
    script = (ROOT / words[1]).read_text()
    assert all(f'"{word}"' in script for word in words if word.startswith("--"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target), link


def test_every_promise_has_a_test() -> None:
    text = (DOCS / "safety.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 30
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
    promises = [row for row in text.splitlines() if row.startswith("| ") and "promise" not in row]
    assert all("::test_" in row for row in promises)


def test_table_of_variants_is_that_of_the_code() -> None:
    text = (DOCS / "variants.md").read_text()
    assert re.search(r"\| keyword \| `paper` \| `authors` \| `adaptive` \|", text)
    configs = [VARIANTS[name] for name in ("paper", "authors", "adaptive")]
    values = {f.name: [getattr(c, f.name) for c in configs] for f in fields(CoLafierConfig)}
    differ = {name: [*map(_written, row)] for name, row in values.items() if len({*row}) > 1}
    table = {
        words[1]: words[2:5]
        for line in text.splitlines()
        if (words := [word.strip(" `") for word in line.split("|")])[1:2] and words[1] in differ
    }
    assert table == differ


def _written(value: object) -> str:
    """A value as it is written after `--set`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_constants_of_the_holdout_check_are_those_of_the_code() -> None:
    text = (DOCS / "how-it-works.md").read_text()
    table = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d.]+) \|", text, re.MULTILINE))
    assert list(table) == ["SHARED_ERRORS", "MIN_DEVIATIONS", "IN_A_ROW", "LAST_LOOK"]
    assert {name: str(getattr(holdout_check, name)) for name in table} == table


def test_every_file_of_a_run_is_explained() -> None:
    text = (DOCS / "run-folder.md").read_text()
    names = {*run_dir.FILES, run_dir.CONFIG, f"{run_dir.MODEL}/", "record.json", "noise.json"}
    assert sorted(name for name in names if f"| `{name}` |" not in text) == []


def test_every_column_of_the_label_table_is_explained() -> None:
    text = (DOCS / "run-folder.md").read_text()
    names = ("row", "name", *COLUMNS, "method_label", "reviewed_at", "reviewed_why")
    assert [name for name in names if f"`{name}`" not in text] == []


def test_module_map_is_up_to_date() -> None:
    found = runpy.run_path(str(DOCS / "make_module_map.py"))
    text = (DOCS / "module_map.md").read_text()
    assert text == found["module_map"](), "run: python docs/make_module_map.py"


def test_all_that_can_be_set_is_explained() -> None:
    variants, quickstart = ((DOCS / f"{n}.md").read_text() for n in ("variants", "quickstart"))
    own = [name for name in methods.hyper_parameters("colafier") if name != "variant"]
    assert [name for name in own if f"`{name}" not in variants] == []
    assert [kind for kind in GENERATORS if f"| `{kind}:0.4` |" not in quickstart] == []
