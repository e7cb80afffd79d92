"""The command line as people use it, on a tiny set; in a process of its own where that matters."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from colafier.audit.label_table import COLUMNS
from colafier.cli.app import app
from colafier.methods import available

TINY = ("--preset", "digits", "--limit", "120", "--net", "linear", "--epochs", "2")

# Python ignores Ctrl-C where its parent does (a job in the background), so the handler is set here.
STOPPABLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from colafier.cli.app import app; app()"
)

PATIENCE = 300  # seconds; for machines with other work


def colafier(*words: str, code: int = 0) -> str:
    """What the command prints on both channels; it must end with this code."""
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, words)
    assert done.exit_code == code, done.output
    return done.output


def process(*words: str) -> "subprocess.Popen[str]":
    """The command in a fresh interpreter."""
    return subprocess.Popen(
        [sys.executable, "-c", STOPPABLE, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "tiny"
    started = process("train", *TINY, "--set", "warmup=1", "--out", str(folder))
    said, mistakes = started.communicate(timeout=PATIENCE)
    assert started.returncode == 0, mistakes
    assert "labels right after" in said
    return folder


def _wait_for(path: Path, started: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists() and started.poll() is None:
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.01)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_train_writes_its_files(run: Path) -> None:
    names = {path.name for path in run.iterdir()}
    assert names == {
        "config.json", "noise.json", "metrics.jsonl", "labels.csv", "record.json", "checkpoint.pt",
        "evidence.json", "report.html", "summary.json", "model",
    }  # fmt: skip
    assert [line["epoch"] for line in lines(run / "metrics.jsonl")] == [0, 1]


def test_config_is_what_was_asked_for(run: Path) -> None:
    (config,) = lines(run / "config.json")
    asked = config["asked"]
    assert config["kind"] == "train"
    assert (asked["limit"], asked["net"], asked["flip"]) == (120, "linear", False)
    assert asked["hyper"]["warmup"] == 1
    (record,) = lines(run / "record.json")
    settled = {"init": "torch", "input_statistics": "fitted", "lr_floor": 0.02}  # left open
    assert record["config"] == config["train"] == asked | settled
    (noise,) = lines(run / "noise.json")
    assert record["noise"] == noise
    assert noise["requested_rate"] == 0.4


def test_label_table_fits_the_record(run: Path) -> None:
    table = pd.read_csv(run / "labels.csv")
    (record,) = lines(run / "record.json")
    assert tuple(table.columns) == ("row", "name", *COLUMNS)
    assert list(table["row"]) == list(range(120))
    assert table["label_quality"].between(0, 1).all()
    changed = table["label"] != table["original_label"]
    assert changed.tolist() == table["action"].eq("relabel").tolist()
    assert changed.sum() == record["audit"]["labels_changed"]
    by_the_method = table["method_label"] != table["original_label"]
    assert by_the_method.sum() == record["labels_changed"]


def test_existing_folder_is_refused_and_replaced_only_if_asked(run: Path) -> None:
    before = (run / "record.json").read_text()
    said = colafier("train", *TINY, "--out", str(run), code=2)
    assert "--resume" in said
    assert "--overwrite" in said
    for typo in (("--set", "warm=1"), ("--net", "resnet9"), ("--lr", "nan")):
        colafier("train", *TINY, "--out", str(run), "--overwrite", *typo, code=2)
    assert (run / "record.json").read_text() == before  # a typo costs no older run


def test_resume_refuses_other_settings(run: Path) -> None:
    other = ("--seed", "5", "--set", "warmup=2")
    for words in (other, (*TINY, *other)):
        said = colafier("train", *words, "--resume", "--out", str(run), code=2)
        assert said.strip().endswith("keeps its settings; seed was 1, is 5; warmup was 1, is 2")
    said = colafier("train", "--method", "ce", "--resume", "--out", str(run), code=2)
    assert said.strip().endswith("keeps its settings; method was colafier, is ce")


def test_overwrite_leaves_other_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    said = colafier("train", *TINY, "--out", str(tmp_path), "--overwrite", code=2)
    assert "not the folder of a run" in said
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_ctrl_c_says_how_to_resume_and_resume_finishes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("train", *TINY[:-2], "--epochs", "40", "--method", "ce", "--out", str(out))
    with process(*words) as started:
        try:
            _wait_for(out / "checkpoint.pt", started)
            started.send_signal(signal.SIGINT)
            _, said = started.communicate(timeout=PATIENCE)
        finally:
            started.kill()  # only if something above failed
    assert started.returncode == 130, said
    assert f"colafier train --resume --out {out}" in said
    done = len(lines(out / "metrics.jsonl"))
    assert done < 40
    colafier("train", "--resume", "--out", str(out))
    assert [line["epoch"] for line in lines(out / "metrics.jsonl")] == list(range(40))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--set", "warm=1"), "no hyper-parameter of colafier 'warm'; there are"),
        (("--set", "warmup=many"), "warmup must be a whole number"),
        (("--noise", "instance:forty"), "instance:0.4"),
        (("--noise", "gaussian:0.4"), "cifar10n:KEY:PATH"),
        (("--method", "colafer"), "did you mean colafier"),
        (("--source", "cifar10"), "--data FOLDER"),
        (("--source", "cifar10", "--data", "nowhere"), "nowhere"),
        (("--preset", "cifar100"), "cifar10, cifar10n, digits"),
        (("--log", "paper"), "tensorboard, wandb, mlflow"),
        (("--resume",), "there is no run in"),
        (("--resume", "--overwrite"), "not both"),
        (("--net", "resnet9"), "no net 'resnet9'; there are resnet8"),
        (("--dtype", "fp16"), "auto, float32, bf16"),
        (("--lr", "-1"), "lr must be a number (at least 0), not -1"),
        (("--batch-size", "3", "--devices", "2"), "batch_size of at least 4"),
    ],
)
def test_mistakes_are_explained_in_one_line(
    words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    said = colafier("train", *TINY, *words, "--out", str(out), code=2)
    assert says in said
    assert said.startswith("error: ")
    assert not out.exists()


def test_noise_writes_labels_that_train_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("--source", "digits", "--noise", "pair:0.3", "--seed", "3")
    colafier("noise", *words, "--out", "noisy.npy")
    labels = np.load(tmp_path / "noisy.npy")
    (manifest,) = lines(tmp_path / "noisy.json")
    assert len(labels) == manifest["n"] == 1437
    assert manifest["true_rate"] == pytest.approx(0.3, abs=0.05)
    assert "overwrite" in colafier("noise", *words, "--out", "noisy.npy", code=2)
    train = ("--preset", "digits", "--net", "linear", "--epochs", "1", "--method", "ce")
    colafier("train", *train, "--noise", "file:noisy.npy", "--out", "run")
    (record,) = lines(tmp_path / "run" / "record.json")
    assert record["noise"]["true_rate"] == manifest["true_rate"]
    assert record["noise"]["sha256"] == manifest["sha256"]


def test_a_file_in_the_way_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a file" in colafier("train", *TINY, "--out", str(tmp_path / "file"), code=2)
    said = colafier("train", *TINY, "--out", str(tmp_path / "file" / "run"), code=2)
    assert said.startswith("error: ")


def unfinished(run: Path, out: Path) -> Path:
    """A copy of a run, as if it had been stopped before its results were written."""
    shutil.copytree(run, out)
    (out / "summary.json").unlink()
    return out


def test_a_damaged_checkpoint_is_explained(run: Path, tmp_path: Path) -> None:
    out = unfinished(run, tmp_path / "run")
    (out / "checkpoint.pt").write_bytes(b"half")
    said = colafier("train", "--resume", "--out", str(out), code=2)
    assert "checkpoint.pt is damaged" in said


def test_a_finished_run_is_not_resumed(run: Path) -> None:
    before = (run / "record.json").read_text()
    said = colafier("train", "--resume", "--out", str(run), code=2)
    assert said == f"error: the run in {run} is finished: there is nothing to resume\n"
    assert (run / "record.json").read_text() == before


def test_data_that_was_changed_is_not_resumed(run: Path, tmp_path: Path) -> None:
    out = unfinished(run, tmp_path / "run")
    (config,) = lines(out / "config.json")
    (out / "config.json").write_text(json.dumps(config | {"fingerprint": "1234"}))
    said = colafier("train", "--resume", "--out", str(out), code=2)
    assert said.startswith(f"error: the data was changed after the run in {out} was started")
    assert "--overwrite" in said


def test_a_run_of_purify_is_not_resumed_by_train(run: Path, tmp_path: Path) -> None:
    out = unfinished(run, tmp_path / "run")
    said = colafier("purify", "--resume", str(out), code=2)
    assert "was made by colafier train, not by purify" in said


def test_a_method_is_explained() -> None:
    said = colafier("methods", "colafier")
    assert "variant" in said
    assert "adaptive" in said
    assert "did you mean colafier" in colafier("methods", "colafer", code=2)


def test_methods_are_listed() -> None:
    said = colafier("methods")
    assert all(word in said for word in ("colafier", "ce", "2024", "SDM", "needs the noise rate"))


def test_a_broken_file_hides_no_other_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import math\nmath.nothing\n")
    monkeypatch.setenv("COLAFIER_METHODS", str(path))
    monkeypatch.setattr("colafier.cli.app.console", Console(width=500))  # a row is one line
    said = colafier("methods", code=2)
    rows = {
        cells[1].strip(): cells[-2]
        for line in said.splitlines()
        if len(cells := line.split("│")) > 2
    }
    assert set(rows) == set(available())
    assert f"does not work: {path.resolve()}, line 2: AttributeError" in rows["broken"]
    assert "extremely noisy labels" in rows["co_teaching"]
    assert "extremely noisy labels" in colafier("methods", "co_teaching")


def test_demo_shows_both_methods(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    said = colafier("demo", "--epochs", "1", "--out", str(out))
    for words in ("labels right before", "labels right after", "test accuracy", "colafier", "ce"):
        assert words in said
    assert str(out / "colafier/labels.csv") in said
    assert len(pd.read_csv(out / "colafier/labels.csv")) == 1437
    colafier("demo", "--epochs", "1", "--out", str(out))  # again, over the older one


@pytest.mark.parametrize(
    "command",
    ["demo", "train", "methods", "noise", "purify", "predict", "check", "export", "compare"],
)
def test_help_teaches_with_examples(command: str) -> None:
    assert f"• colafier {command}" in colafier(command, "--help")
