"""The study of section 3.2: counts of LID by epoch, and the figure."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from colafier.bench import lid_figure, lid_study
from colafier.bench.lid_study import BIN_WIDTH, MAX_BIN, NOISES, StudyRun
from colafier.cli.bench_figure import figure_app
from colafier.methods.lid_dis import STUDIED

root = typer.Typer()
root.add_typer(figure_app, name="figure")
TINY = "--limit 100 --net linear --epochs 2"


def figure(words: str, code: int = 0) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(root, ["figure", "lid", *words.split()])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def study(need: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("plots")
    out = tmp_path_factory.mktemp("study") / "lid"
    assert "AUROC" in figure(f"{TINY} --seeds 1 2 --out {out}")
    return out


def test_each_epoch_has_counts_and_auroc(study: Path) -> None:
    numbers = json.loads((study / "lid.json").read_text())
    found = [(run["noise"], run["seed"]) for run in numbers["runs"]]
    assert found == [(noise, seed) for noise in NOISES for seed in (1, 2)]
    for run in numbers["runs"]:
        assert len(run["epochs"]) == 2
        for epoch in run["epochs"]:
            for name in STUDIED:
                right, wrong = (sum(epoch[name][kind].values()) for kind in ("right", "wrong"))
                assert right + wrong == 100
                assert wrong / 100 == pytest.approx(run["true_rate"])
                assert 0 <= epoch[name]["auroc"] <= 1


def test_the_figure_is_vector_and_pixels(study: Path) -> None:
    text = (study / "lid.svg").read_text()
    for words in ("k = 20", "neighbors=0", "40 % instance noise", "AUROC of LID"):
        assert words in text
    assert (study / "lid.png").read_bytes().startswith(b"\x89PNG")


def test_a_study_continues_from_what_is_there(study: Path) -> None:
    before = (study / "lid.svg").read_bytes()
    record = study / "instance-0.4-seed2" / "record.json"
    kept = record.read_bytes()
    record.unlink()  # as if it had been stopped
    said = figure(f"{TINY} --seeds 1 2 --out {study}")
    assert "instance:0.4, seed 2" in said
    assert "seed 1" not in said
    assert json.loads(record.read_bytes())["epochs"] == json.loads(kept)["epochs"]
    assert (study / "lid.svg").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (f"{TINY} --epochs 3", "epochs was 2, is 3"),
        ("--source nonsense", "no source 'nonsense'"),
        ("--source cifar10", "--data"),
        ("--seeds 1 2 1", "seed 1 is given twice"),
    ],
)
def test_mistakes_are_explained(study: Path, tmp_path: Path, words: str, reason: str) -> None:
    out = study if "epochs" in words else tmp_path / "new"
    assert reason in figure(f"{words} --out {out}", code=2)
    assert not (tmp_path / "new").exists()


def test_another_folder_is_left_alone(study: Path, tmp_path: Path) -> None:  # noqa: ARG001
    (tmp_path / "mine.txt").write_text("")
    assert "holds something else" in figure(f"{TINY} --out {tmp_path}", code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_bins_have_equal_width_and_the_last_holds_the_rest() -> None:
    lid = np.array([0.0, 0.24, 0.25, 1.1, 1e6])
    assert lid_study.counts(lid) == {"0": 2, "1": 1, "4": 1, str(MAX_BIN): 1}


def test_counts_are_pooled_over_epochs_and_runs() -> None:
    first = {"right": {"2": 300, "3": 100}, "wrong": {"3": 50, "5": 49}}
    second = {"right": {"2": 0}, "wrong": {"300": 1}}  # one label far away
    epochs = [{name: values for name in STUDIED} for values in (first, second)]
    run = StudyRun("instance:0.4", 0.2, 1, epochs, {})
    edges, right, wrong = lid_figure.shares([run, run], "lid_k20")
    assert edges.tolist() == [BIN_WIDTH * place for place in (2, 3, 4, 5, 6)]
    assert right.tolist() == [600, 200, 0, 0]
    assert wrong.tolist() == [0, 100, 0, 100]  # with those that are higher


def test_many_bins_are_joined() -> None:
    spread = {"right": {str(place): 10 for place in range(100)}, "wrong": {"0": 1}}
    run = StudyRun("instance:0.4", 0.2, 1, [{name: spread for name in STUDIED}], {})
    edges, right, _ = lid_figure.shares([run], "lid_k20")
    assert len(right) <= lid_figure.MAX_BINS
    assert len(set(np.diff(edges).round(6))) == 1
    assert right.sum() == 1000
