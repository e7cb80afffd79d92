"""The documentation is true: its code runs, and its commands, options, tables and links exist."""

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

from colafier import arrays, methods, resolve, run
from colafier.benchmark_data.noise import GENERATORS, Noise
from colafier.benchmark_data.sources import Source
from colafier.cli.app import app
from colafier.core import holdout_check
from colafier.core.config import VARIANTS, CoLafierConfig
from colafier.nets import net_factory
from colafier.training.trainer import fit
from colafier.training.training_set import TrainingSet
from colafier.workflows.experiment import FILES
from colafier.workflows.settings import Settings, read_pairs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return [code for name, code in FENCE.findall(page.read_text()) if name == language]


def commands(program: str) -> list[list[str]]:
    """The words of each command in the fenced shell blocks that begins with this program."""
    lines = [
        shlex.split(line, comments=True)
        for page in PAGES
        for block in blocks(page, "sh")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [words for words in lines if words and words[0] == program]


def anchors(page: Path) -> set[str]:
    """What links to the headings of a page are called."""
    text = FENCE.sub("", page.read_text())
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


EXAMPLE, SECOND, *_ = blocks(DOCS / "add-a-method.md", "python")
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
    assert len(commands("colafier")) >= 20
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
    assert after >= before  # equal if the gate was closed
    assert float(said["wrong among the suspicious"]) > 0.9


def test_example_method_works(clouds: Source) -> None:
    observed = {"net": "linear", "epochs": 5, "noise": "pair:0.25", "lr": 0.01, "batch_size": 32}
    settings = resolve(overrides={**observed, "method": "bootstrap"}, hyper={"observed_weight": 0.7})
    result = run(settings, clouds, progress=False)
    assert result.record["config"]["hyper"] == {"observed_weight": 0.7}
    assert result.record["labels_right_after"] > 0.95 > result.record["labels_right_before"]
    assert result.history.epochs[-1]["loss_auroc"] > 0.95
    assert {"observed", "prediction", "label_accuracy"} <= result.history.epochs[-1].keys()


def test_example_of_passes_works(clouds: Source) -> None:
    names = dict(vars(importlib.import_module("colafier.methods.bootstrap")))
    exec(compile(SECOND, "add-a-method.md", "exec"), names)
    method = names["SmallLossHalf"]()
    rows = TrainingSet(clouds.x, clouds.labels, 2, view_names=method.views, batch_size=32)
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


@pytest.mark.parametrize("words", commands("colafier"), ids=" ".join)
def test_colafier_commands_are_understood(words: list[str]) -> None:
    """All but the data: command, options, preset, method, hyper-parameters, noise."""
    if words[-1] in ("--help", "--version"):
        assert CliRunner().invoke(app, words[1:]).exit_code == 0
        return
    _, name, *options = words
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    chosen = {k: v for k, v in command.make_context(name, options).params.items() if v is not None}
    if chosen.get("resume") or name in ("purify", "predict", "check", "export"):
        return
    if name == "noise":
        chosen["noise"] = chosen["spec"]
    known = {field.name for field in fields(Settings)}
    observed = {key: value for key, value in chosen.items() if key in known}
    settings = resolve(chosen.get("preset"), observed, read_pairs(chosen.get("set_", [])))
    Noise.parse(settings.noise)
    methods.build(settings.method, **settings.hyper)


@pytest.mark.parametrize("words", commands("make"), ids=" ".join)
def test_make_targets_exist(words: list[str]) -> None:
    assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("words", commands("python"), ids=" ".join)
def test_scripts_and_their_options_exist(words: list[str]) -> None:
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


def test_constants_of_the_gate_are_those_of_the_code() -> None:
    text = (DOCS / "how-it-works.md").read_text()
    table = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d.]+) \|", text, re.MULTILINE))
    assert list(table) == ["TO_MOVE", "TO_STAY", "MIN_ROWS"]
    assert {name: str(getattr(holdout_check, name)) for name in table} == table


def test_all_that_can_be_set_is_explained() -> None:
    variants, quickstart = ((DOCS / f"{n}.md").read_text() for n in ("variants", "quickstart"))
    own = [name for name in methods.hyper_parameters("colafier") if name != "variant"]
    assert [name for name in own if f"`{name}" not in variants] == []
    assert [name for name in FILES if f"| `{name}` |" not in quickstart] == []
    assert [kind for kind in GENERATORS if f"| `{kind}:0.4` |" not in quickstart] == []
