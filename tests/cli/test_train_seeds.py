"""`colafier train --seeds`: a folder for each seed, and a table with mean and deviation."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colafier.cli.app import app

TINY = "--preset digits --method ce --limit 60 --net linear --epochs 1"


def train(words: str, code: int = 0) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["train", *words.split()])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def series(quick: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:  # noqa: ARG001
    out = tmp_path_factory.mktemp("runs") / "ce"
    return out, train(f"{TINY} --seeds 1 2 --out {out}")


def record(folder: Path) -> dict[str, object]:
    return json.loads((folder / "record.json").read_text())


def test_each_seed_has_its_folder_and_a_column(series: tuple[Path, str]) -> None:
    out, said = series
    assert sorted(path.name for path in out.iterdir()) == ["seed1", "seed2"]
    assert [record(out / name)["seed"] for name in ("seed1", "seed2")] == [1, 2]
    assert "seed 1" in said
    first, second = (float(record(out / name)["test_accuracy"]) for name in ("seed1", "seed2"))
    deviation = 100 * abs(first - second) / 2**0.5
    assert f"{50 * (first + second):.1f} % ± {deviation:.1f} %" in said


def test_resume_skips_the_finished_and_starts_the_missing_seeds(
    series: tuple[Path, str], tmp_path: Path
) -> None:
    out = tmp_path / "copy"
    shutil.copytree(series[0], out)
    before = record(out / "seed2")
    for name in ("summary.json", "record.json"):  # as if it had been stopped after training
        (out / "seed2" / name).unlink()
    said = train(f"--resume --seeds 1 2 3 --out {out}")
    assert "Seed 1 is finished." in said
    assert "Continuing with seed 2" in said
    assert "Training with seed 3" in said
    assert record(out / "seed2")["test_accuracy"] == before["test_accuracy"]
    assert record(out / "seed3")["config"] == {**record(out / "seed1")["config"], "seed": 3}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--seed 1 --seeds 1 2", "give --seed for one run, or --seeds for several"),
        ("--seeds 1 2 1", "seed 1 is given twice"),
        ("--seeds 4 5 --resume", "there is no run to resume"),
        ("--seeds 3 2", "use --resume"),
        ("--seeds 1 2 --resume --epochs 3", "a resumed run keeps its settings"),
        ("--seeds 3 --noise instance:2", "rate"),
    ],
)
def test_mistakes_are_explained_before_anything_starts(
    series: tuple[Path, str], words: str, reason: str
) -> None:
    assert reason in train(f"{TINY} {words} --out {series[0]}", code=2)
    assert sorted(path.name for path in series[0].iterdir()) == ["seed1", "seed2"]


def test_the_folder_of_a_single_run_is_refused(series: tuple[Path, str]) -> None:
    single = series[0] / "seed1"
    assert "single run" in train(f"{TINY} --seeds 1 2 --out {single}", code=2)
