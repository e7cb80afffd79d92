"""Each equation of the paper has one home, and docs/paper_map.md names it with its test."""

import ast
import importlib
import inspect
import re
from collections import defaultdict
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from colafier.core.config import AUTHORS, PAPER, CoLafierConfig

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "colafier"
THIS_PAPER = ("colafier", "lid_dis")  # methods
EQUATIONS = [f"3.{number}" for number in range(1, 41)]

ITEM = r"3\.\d+(?:-3\.\d+)?"  # 3.1, or 3.3-3.4
CITATION = re.compile(rf"Eq\. ({ITEM}(?:, {ITEM})*)(?!\d|-|, 3\.)")  # Eq. 3.9-3.11, 3.32-3.35
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def equations_in(text: str) -> list[str]:
    """The equations that items such as `3.1, 3.3-3.4` stand for, each once."""
    found = []
    for item in text.split(", "):
        first, _, last = item.partition("-")
        begin, end = int(first[2:]), int((last or first)[2:])
        found += [f"3.{number}" for number in range(begin, end + 1)]
    return found


def equations_named(first_line: str) -> list[str]:
    """The equations that a docstring's first line claims; an unclear claim is an error."""
    plain = re.sub(r"\(supplement [^)]*\)", "", first_line)
    claims = [equations_in(match) for match in CITATION.findall(plain)]
    rest = CITATION.sub("", plain)
    if re.search(r"\b(Eqs?\b|Equation)|\b3\.\d", rest) or not all(claims):
        raise ValueError(f"write equations as 'Eq. 3.9-3.11, 3.32-3.35': {first_line}")
    return [equation for claim in claims for equation in claim]


def documented(body: list[ast.stmt], prefix: str) -> list[tuple[str, str]]:
    """Name and docstring's first line of every class and function, also inside of others."""
    found = []
    for node in body:
        if isinstance(node, Documented):
            name = f"{prefix}.{node.name}"
            lines = (ast.get_docstring(node) or "").splitlines()
            found.append((name, lines[0] if lines else ""))
            found += documented(node.body, name)
    return found


@cache
def homes_in_code() -> dict[str, list[str]]:
    """Equation -> names of those that claim it, such as `subnets.LidDis.judge`."""
    homes = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        if relative.parts[0] == "methods" and relative.stem not in THIS_PAPER:
            continue  # the equations there are those of other papers
        module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
        for name, line in documented(ast.parse(path.read_text()).body, module):
            for equation in equations_named(line):
                homes[equation].append(name)
    return dict(homes)


def rows_in_docs() -> list[tuple[list[str], str, str]]:
    """The rows of the map: equations, home, test."""
    rows = []
    for line in (ROOT / "docs" / "paper_map.md").read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if re.fullmatch(ITEM, cells[0]):
            rows.append((equations_in(cells[0]), cells[2], cells[3]))
    return rows


def notes_in_docs() -> dict[str, str]:
    """Keyword -> function, from the table of differences between paper and code."""
    text = (ROOT / "docs" / "paper_map.md").read_text()
    return dict(re.findall(r"^\| `(\w+)` \| `(core\.[\w.]+)` \|$", text, re.MULTILINE))


def named_tests() -> list[str]:
    """Every test that the map names."""
    return re.findall(r"`(tests/[^`]+::[^`]+)`", (ROOT / "docs" / "paper_map.md").read_text())


@pytest.mark.parametrize("equation", EQUATIONS)
def test_an_equation_has_one_home(equation: str) -> None:
    homes = homes_in_code().get(equation, [])
    assert len(homes) == 1, f"Eq. {equation} has the homes {homes}"


def test_no_equation_is_made_up() -> None:
    assert set(homes_in_code()) <= set(EQUATIONS)


def test_the_map_lists_each_equation_once_and_in_order() -> None:
    assert [equation for equations, _, _ in rows_in_docs() for equation in equations] == EQUATIONS


@pytest.mark.parametrize(("equations", "home"), [row[:2] for row in rows_in_docs()], ids=str)
def test_the_map_agrees_with_the_docstrings(equations: list[str], home: str) -> None:
    homes = homes_in_code()
    assert {tuple(homes.get(equation, ())) for equation in equations} == {(home,)}


@pytest.mark.parametrize("test", sorted(set(named_tests())))
def test_the_map_names_tests_that_exist(test: str) -> None:
    path, _, function = test.partition("::")
    names = [name for name, _ in documented(ast.parse((ROOT / path).read_text()).body, "test")]
    assert f"test.{function}" in names


def test_each_difference_between_paper_and_code_is_in_the_map() -> None:
    names = (field.name for field in fields(CoLafierConfig))
    differ = {name for name in names if getattr(PAPER, name) != getattr(AUTHORS, name)}
    assert set(notes_in_docs()) == differ


@pytest.mark.parametrize(("keyword", "home"), notes_in_docs().items())
def test_a_note_tells_what_paper_and_code_do(keyword: str, home: str) -> None:
    module, _, name = f"colafier.{home}".rpartition(".")
    text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
    notes = text.partition("Note:")[2]
    for part in (f"`{keyword}`", "paper", "authors' code"):
        assert part in notes, f"the Note of {home} has no {part}"


def test_every_row_of_the_map_names_a_test() -> None:
    assert all(test in named_tests() for _, _, test in rows_in_docs())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Nothing of the paper.", []),
        ("Eq. 3.1: the representation.", ["3.1"]),
        ("LID, Eq. 3.2 (supplement 1.4, 1.5).", ["3.2"]),
        ("Scores, Eq. 3.3-3.4.", ["3.3", "3.4"]),
        ("One of Eq. 3.19-3.20; more words.", ["3.19", "3.20"]),
        ("Place, Eq. 3.9-3.11, 3.34-3.35.", ["3.9", "3.10", "3.11", "3.34", "3.35"]),
        ("A number, 0.5, and version 13.2 are no equations.", []),
    ],
)
def test_the_parser_reads_a_claim(line: str, expected: list[str]) -> None:
    assert equations_named(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "Eqs. 3.1 and 3.2.",
        "Equation 3.1.",
        "Eq. 3.1 and 3.2.",
        "Eq. 3.1-4.",
        "Eq. 3.4-3.3.",
        "Eq. 3.1; 3.2.",
        "eq. 3.1",
        "Eq. 5.",
    ],
)
def test_the_parser_refuses_an_unclear_claim(line: str) -> None:
    with pytest.raises(ValueError, match="write equations as"):
        equations_named(line)
