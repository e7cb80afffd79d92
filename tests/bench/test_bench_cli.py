"""The commands of the benchmark."""

from pathlib import Path

import pytest
from small_suite import TEXT, small_suite
from typer.testing import CliRunner

from colafier.cli.app import app
from colafier.cli.bench import duration

pytestmark = pytest.mark.usefixtures("quick")


def bench(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["bench", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.output


def test_run_then_table(tmp_path: Path) -> None:
    small_suite(tmp_path)
    path, out = tmp_path / "small.toml", tmp_path / "out"
    some = ("--methods", "ce", "gce", "--noises", "pair:0.2", "--seeds", "1", "2")
    shown = bench("run", path, "--out", out, *some, "--jobs", 1)
    assert "4 runs, 0 of them have a record; 1 at a time" in shown
    assert "1/4 ce, pair:0.2, seed 1: test " in shown
    assert "4 runs done, 0 had a record before" in shown
    assert "0 runs done, 4 had a record before" in bench("run", path, "--out", out, *some)
    shown = bench("table", path, "--out", out)
    assert "4 runs of the suite are missing" in shown
    assert {p.name for p in out.iterdir()} == {
        "small.jsonl", "small.md", "small.tex", "small.png", "small-labels.png",
    }  # fmt: skip
    assert (out / "small.md").read_text(encoding="utf-8").strip() in shown


def test_a_long_suite_is_not_begun_without_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_suite(tmp_path, TEXT.replace("seeds", "long = true\nseeds", 1))
    monkeypatch.setattr("colafier.bench.cost.DAY", 0.0)
    shown = bench("run", tmp_path / "small.toml", "--out", tmp_path, "--methods", "ce", code=2)
    assert "runs take about" in shown
    assert "give --yes to begin" in shown


def test_mistakes_are_explained(tmp_path: Path) -> None:
    assert "no suite 'digit'" in bench("run", "digit", code=2)
    assert "no entry 'nothing'" in bench("run", "digits", "--methods", "nothing", code=2)
    assert "colafier bench run digits" in bench("table", "digits", "--out", tmp_path, code=2)
    assert "the paper has no table" in bench("compare", "digits", code=2)
    assert "cifar-10-batches-py" in bench(
        "run", "features", "--out", tmp_path, "--data", tmp_path, code=2
    )


@pytest.mark.parametrize(
    ("seconds", "words"), [(5, "5 s"), (100, "2 min"), (3 * 3600 + 300, "3 h 05 min")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
