"""The folder of a run: what is there is not lost, and a killed run goes on as if it never was."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from own_data import colafier, digest, fruit, quickly, write_npz

from colafier.embed import encode
from colafier.workflows.experiment import prepare, train
from colafier.workflows.purify import Options, options_of
from colafier.workflows.run_dir import RunConfig, is_run, write_config
from colafier.workflows.settings import resolve

pytestmark = pytest.mark.usefixtures("quick")

# Ends like a power cut, while the checkpoint of the third epoch is being written.
KILLED = """
import os, signal, torch
from colafier.cli.app import app
save, files = torch.save, []

def half(state, file):
    files.append(file)
    if len(files) == 3:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    save(state, file)

torch.save = half
app()
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_npz(tmp_path_factory.mktemp("source") / "clouds.npz", n=80, wrong=0.2)


@pytest.fixture(scope="module")
def finished(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do not change it."""
    out = tmp_path_factory.mktemp("finished") / "out"
    quickly(source, out, method="colafier", epochs=5, seed=3)
    return out


@pytest.fixture
def older(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for half of labels.csv."""

    def to_csv(_: Any, path: Path, **__: Any) -> None:
        path.write_text("row,name\n0,")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(pd.DataFrame, "to_csv", to_csv)


def test_killed_run_continues_to_the_same_end(source: Path, finished: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--method", "colafier", "--epochs", "5", "--seed", "3")
    command = [sys.executable, "-c", KILLED, "purify", str(source), "-o", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (out / "checkpoint.pt.partial").read_bytes() == b"half"
    assert not (out / "labels.csv").exists()
    assert not (out / "summary.json").exists()
    said = colafier("purify", "--resume", out)
    assert "wrong labels, estimated" in said
    assert digest(out / "labels.csv").popitem()[1] == digest(finished / "labels.csv").popitem()[1]
    assert {path.name for path in out.iterdir()} == {path.name for path in finished.iterdir()}
    weights = Path("model") / "model.safetensors"
    assert (out / weights).read_bytes() == (finished / weights).read_bytes()
    metrics = (out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in metrics] == [0, 1, 2, 3, 4]


def test_run_that_was_stopped_before_training_can_be_resumed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(encode, "encode", stop)
        words = ("--method", "ce", "--epochs", "1")
        said = colafier("purify", source, "-o", out, *words, code=130)
    assert f"colafier purify --resume {out}" in said
    colafier("purify", "--resume", out)
    assert (out / "summary.json").exists()


def test_a_run_that_was_killed_before_it_had_a_config_can_be_started_anew(
    source: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "config.json.partial").write_text('{"kind":')
    quickly(source, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.partial"))


def test_resume_from_another_place(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source.parent)
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        full_disk(patch)
        words = ("--method", "ce", "--epochs", "1", "-o", out)
        colafier("purify", source.name, *words, code=2)
    monkeypatch.chdir(tmp_path)
    colafier("purify", "--resume", "out")


def test_full_disk_leaves_no_half_file_and_can_be_resumed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        full_disk(patch)
        words = ("--method", "ce", "--epochs", "2")
        said = colafier("purify", source, "-o", out, *words, code=2)
    assert "No space left on device" in said
    assert f"colafier purify --resume {out}" in said
    assert {path.name for path in out.iterdir()} == {
        "config.json", "metrics.jsonl", "checkpoint.pt",
    }  # fmt: skip
    colafier("purify", "--resume", out)
    assert (out / "summary.json").exists()


def test_existing_folder_is_refused_and_left_as_it_is(source: Path, older: Path) -> None:
    before = digest(older)
    said = colafier("purify", source, "-o", older, code=2)
    assert "--resume" in said
    assert "--overwrite" in said
    assert digest(older) == before


@pytest.mark.parametrize(
    "typo",
    [
        ("--method", "cee"),
        ("--net", "resnet9"),
        ("--write", "folder"),
        ("--mode", "end-to-end"),
        ("--label", "labl"),
        ("--min-confidence", "2"),
    ],
)
def test_a_typo_costs_no_older_run(source: Path, older: Path, typo: tuple[str, str]) -> None:
    before = digest(older)
    colafier("purify", source, "-o", older, "--overwrite", *typo, code=2)
    assert digest(older) == before


def test_overwrite_starts_over(source: Path, older: Path) -> None:
    (older / "purified.csv").touch()
    (older / "model.partial").mkdir()
    before = digest(older)
    colafier("purify", source, "-o", older, "--overwrite", "--method", "ce", "--epochs", "1")
    names = {path.name for path in older.iterdir()}
    assert names == {
        "labels.csv", "config.json", "summary.json", "metrics.jsonl", "model", "evidence.json",
        "report.html", "checkpoint.pt",
    }  # fmt: skip
    assert digest(older).keys() < before.keys()
    assert digest(older)[str(older / "labels.csv")] != before[str(older / "labels.csv")]
    assert options_of(older).method == "ce"


@pytest.mark.parametrize("config", [None, "{}", '{"architectures": ["Bert"]}', "[1]", "no JSON"])
def test_overwrite_leaves_other_folders_alone(
    source: Path, tmp_path: Path, config: str | None
) -> None:
    out = tmp_path / "thesis"
    (out / "model").mkdir(parents=True)
    (out / "model" / "weights").write_text("years of work")
    if config is not None:
        (out / "config.json").write_text(config)
    before = digest(out)
    said = colafier("purify", source, "-o", out, "--overwrite", code=2)
    assert "not the folder of a run, and is left alone" in said
    assert digest(out) == before


def test_out_inside_of_the_source_is_refused(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        (tmp_path / "photos" / name / "1.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    for out in (tmp_path / "photos", tmp_path / "photos" / "out"):
        said = colafier("purify", tmp_path / "photos", "-o", out, code=2)
        assert "inside the source, which is never changed" in said
    assert not (tmp_path / "photos" / "out").exists()


def test_source_inside_of_out_is_refused(older: Path) -> None:
    """Else --overwrite would remove what it is to read."""
    fruit(30).to_csv(older / "purified.csv", index=False)
    said = colafier("purify", older / "purified.csv", "-o", older, "--overwrite", code=2)
    assert "the source is in" in said
    assert (older / "purified.csv").exists()
    frame = pd.DataFrame({"image": [str(older / f"purified/{n}.png") for n in "ab"]})
    table = older.parent / "photos.csv"
    frame.assign(label=["a", "b"]).to_csv(table, index=False)
    (older / "purified").mkdir()
    for name in "ab":
        (older / "purified" / f"{name}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    said = colafier("purify", table, "-o", older, "--overwrite", code=2)
    assert "the source is in" in said
    assert len(list((older / "purified").iterdir())) == 2


def test_a_file_in_the_way_is_explained(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file" in colafier("purify", source, "-o", tmp_path / "file", code=2)
    said = colafier("purify", source, "-o", tmp_path / "file" / "out", code=2)
    assert "error: " in said
    assert (tmp_path / "file").read_text() == "mine"


def test_read_only_out_is_explained(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated: the tests may run as root, who may write everywhere."""
    out = tmp_path / "out"
    make = Path.mkdir

    def refuse(path: Path, *words: Any, **options: Any) -> None:
        if path == out:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        make(path, *words, **options)

    monkeypatch.setattr(Path, "mkdir", refuse)
    said = colafier("purify", source, "-o", out, code=2)
    assert f"{out} cannot be written to; choose another folder" in said


def test_nothing_to_resume(source: Path, older: Path, tmp_path: Path) -> None:
    said = colafier("purify", "--resume", tmp_path / "nothing", code=2)
    assert "there is no run in" in said
    before = digest(older)
    assert "is finished" in colafier("purify", "--resume", older, code=2)
    assert digest(older) == before
    with pytest.raises(FileNotFoundError, match="there is no run in"):
        quickly(source, tmp_path / "new", resume=True)


@pytest.mark.parametrize("more", [("--seed", "4"), ("--overwrite",), ("-o", "x"), ("a.npz",)])
def test_resume_goes_alone(older: Path, more: tuple[str, ...]) -> None:
    said = colafier("purify", "--resume", older, *more, code=2)
    assert "--resume OUT goes alone" in said


def unfinished(older: Path, source: Path, tmp_path: Path) -> Path:
    """A run on a source of its own, of which only the folder and the options are there."""
    own = Path(shutil.copy(source, tmp_path / "own.npz"))
    quickly(own, older, overwrite=True)
    (older / "summary.json").unlink()
    return own


def test_resume_refuses_a_source_that_was_changed(
    older: Path, source: Path, tmp_path: Path
) -> None:
    own = unfinished(older, source, tmp_path)
    write_npz(own, n=80, wrong=0.1)
    said = colafier("purify", "--resume", older, code=2)
    assert "the data was changed after the run" in said
    assert "--overwrite" in said


def envelope(**entries: Any) -> str:
    """The content of a config.json."""
    config = asdict(RunConfig("purify", {"source": "a.csv"}, "1234"))
    return json.dumps(config | entries)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{", "config.json is damaged"),
        ("[]", "config.json is damaged: it must be an object"),
        ("{}", "kind is missing"),
        ('{"options": {"source": "a"}}', "options is no key"),
        (envelope(format="colafier-run-1"), "format must be colafier-run-2"),
        (envelope(kind="bake"), "config.json is damaged: kind must be"),
        (envelope(asked=[1]), "config.json is damaged: asked must be"),
        (envelope(surprise=1), "surprise is no key"),
        (envelope(kind="train"), "made by colafier train, not by purify"),
        (envelope(asked={}), "does not hold the options of a run"),
        (envelope(asked={"source": "a", "colour": 1}), "no option 'colour'"),
        (envelope(asked={"source": "a", "epochs": "two"}), "epochs must be a whole number"),
        (envelope(asked={"source": "a", "epochs": 0}), "epochs must be a whole number"),
        (envelope(asked={"source": "a", "features": "b"}), "features must be a list or none"),
    ],
)
def test_damaged_options_are_explained(tmp_path: Path, config: str, says: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert says in colafier("purify", "--resume", tmp_path, code=2)


def test_all_options_come_back(tmp_path: Path) -> None:
    options = Options(
        "a.csv", text=None, features=("x", "y z"), label="ü", missing=("", "?"), size=32, seed=4,
        net="linear", epochs=3, min_confidence=1, write="csv", cache=False, embedder="auto",
    )  # fmt: skip
    write_config(tmp_path, RunConfig("purify", asdict(options), "1234"))
    assert options_of(tmp_path) == options
    assert is_run(tmp_path)


def test_both_kinds_of_run_have_the_same_envelope(finished: Path, tmp_path: Path) -> None:
    settings = resolve("digits", {"limit": 60, "net": "linear", "epochs": 1, "method": "ce"})
    train(settings, prepare(settings), tmp_path / "run", progress=False)
    purified, trained = (
        json.loads((out / "config.json").read_text()) for out in (finished, tmp_path / "run")
    )
    assert list(purified) == list(trained)
    assert (purified["kind"], trained["kind"]) == ("purify", "train")
    assert purified["audit"].keys() == trained["audit"].keys()
    assert purified["train"].keys() <= trained["train"].keys()  # and the settings of its source
    assert purified["format"] == trained["format"]
    assert purified["classes"] == ["0", "1", "2"]
    assert trained["classes"] == [str(digit) for digit in range(10)]
    for out, config in ((finished, purified), (tmp_path / "run", trained)):
        summary = json.loads((out / "summary.json").read_text())
        assert config["fingerprint"] == summary["fingerprint"]
        assert config["decided"] is None
    settled = {"init": "torch", "input_statistics": "fitted", "lr_floor": 0.02}  # asked for: auto
    assert trained["asked"] | settled == trained["train"]
    assert settled.items() <= purified["train"].items()
