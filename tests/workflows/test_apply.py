"""Decisions into OUT, and training on with them: no row is lost, and decided rows never change."""

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from own_data import (
    CLASSES,
    colafier,
    digest,
    fruit,
    quickly,
    read_labels,
    write_decisions,
    write_npz,
)

from colafier.audit.label_table import COLUMNS
from colafier.workflows import apply, model_store

pytestmark = pytest.mark.usefixtures("quick")

HEAD = ("row", "name", *COLUMNS)
KEPT = ("row", "name", "original_label")
REVIEW = ("reviewed_at", "reviewed_from", "reviewed_to", "reviewed_why")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a missing label, an infinite number and the only row of a class."""
    frame = fruit(60, wrong=0.1).astype(object)
    frame.loc[5, "width"] = "inf"
    frame.loc[6, "label"] = ""
    frame.loc[10, "label"] = "Äpfel, grün"
    frame.insert(0, "id", range(100, 160))
    path = tmp_path_factory.mktemp("source") / "fruit.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def finished(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do not change it."""
    out = tmp_path_factory.mktemp("finished") / "out"
    quickly(source, out, write="csv", epochs=2, method="colafier")
    return out


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "out"))


def some(out: Path, path: Path) -> Path:
    """One of each choice; row 10 is the only one of its class, row 5 cannot be used."""
    observed = read_labels(out)["original_label"]
    other = next(name for name in CLASSES if name != observed[0])
    choices = (
        (0, "other", other),
        (1, "keep", observed[1]),
        (2, "exclude", None),
        (5, "keep", observed[5]),
        (6, "suggestion", "plum"),
        (10, "other", "apple"),
    )
    return write_decisions(out, path, *choices)


def test_labels_are_written_again_with_a_trail(out: Path, tmp_path: Path) -> None:
    before = read_labels(out)
    untouched = (out / "labels.csv").read_bytes()
    done = apply.apply(out, [some(out, tmp_path / "d.json")])
    assert (done.now, done.decided, done.changed, done.excluded) == (6, 6, 3, 1)
    after = read_labels(out)
    assert tuple(after.columns) == (*HEAD, *REVIEW)
    pd.testing.assert_frame_equal(after[list(KEPT)], before[list(KEPT)])
    rows = [0, 1, 2, 5, 6, 10]
    decided = ["relabel", "keep", "exclude", "keep", "relabel", "relabel"]
    assert after.loc[rows, "action"].tolist() == decided
    assert after.loc[[6, 10], "label"].tolist() == ["plum", "apple"]
    assert after.loc[[2, 10], "reviewed_to"].tolist() == ["", "apple"]
    assert after.loc[10, "reviewed_from"] == before.loc[10, "label"]
    assert after.loc[5, "reviewed_why"] == "keep: unusable: not finite"
    rest = after.index.difference(rows)
    pd.testing.assert_frame_equal(after.loc[rest, list(HEAD)], before.loc[rest])
    assert (after.loc[rest, "reviewed_at"] == "").all()
    assert (out / "labels.before-review.csv").read_bytes() == untouched
    assert not list(out.glob("*.partial"))
    summary = json.loads((out / "summary.json").read_text())
    assert summary["reviewed"] == 6
    assert summary["actions"] == after["action"].value_counts().to_dict()


def test_the_data_set_is_written_back_again(out: Path, tmp_path: Path) -> None:
    apply.apply(out, [some(out, tmp_path / "d.json")])
    after = read_labels(out)
    kept = after[after["action"] != "exclude"]
    written = pd.read_csv(out / "purified.csv", dtype=str, keep_default_na=False)
    assert written["id"].tolist() == [str(100 + int(row)) for row in kept["row"]]
    assert written["label"].tolist() == kept["label"].tolist()


def test_applied_twice_is_applied_once(out: Path, tmp_path: Path) -> None:
    file = some(out, tmp_path / "d.json")
    apply.apply(out, [file])
    once = digest(out)
    apply.apply(out, [file])
    assert digest(out) == once


def test_decisions_of_several_people_and_a_reset(out: Path, tmp_path: Path) -> None:
    first = read_labels(out)
    anna = write_decisions(out, tmp_path / "anna.json", (0, "exclude", None))
    ben = write_decisions(out, tmp_path / "ben.json", (1, "exclude", None))
    assert apply.apply(out, [anna]).decided == 1
    assert apply.apply(out, [ben]).decided == 2
    assert apply.apply(out, [ben], reset=True).decided == 1
    assert apply.apply(out, [anna, ben], reset=True).decided == 2
    assert apply.apply(out, [], reset=True).decided == 0
    pd.testing.assert_frame_equal(read_labels(out), first)


def test_nothing_is_written_if_one_file_does_not_fit(out: Path, tmp_path: Path) -> None:
    good = some(out, tmp_path / "good.json")
    bad = write_decisions(out, tmp_path / "bad.json", (0, "other", "eel"))
    before = digest(out)
    with pytest.raises(ValueError, match=r"bad\.json: row 0: there is no class 'eel'"):
        apply.apply(out, [good, bad])
    assert digest(out) == before


def test_another_data_set_is_refused(out: Path, tmp_path: Path) -> None:
    file = write_decisions(out, tmp_path / "d.json", (0, "exclude", None), fingerprint="1234")
    before = digest(out)
    said = colafier("apply", out, file, code=2)
    own = json.loads((out / "summary.json").read_text())["fingerprint"]
    assert "'1234'" in said
    assert own in said
    assert digest(out) == before


def test_a_changed_source_is_refused_where_it_is_written_back(source: Path, tmp_path: Path) -> None:
    own = Path(shutil.copy(source, tmp_path / "own.csv"))
    quickly(own, tmp_path / "out", write="csv")
    file = some(tmp_path / "out", tmp_path / "d.json")
    own.write_text(own.read_text().replace("plum", "pear", 1))
    before = digest(tmp_path / "out")
    with pytest.raises(ValueError, match="was changed since the run"):
        apply.apply(tmp_path / "out", [file])
    with pytest.raises(ValueError, match=r"nothing in .* is decided"):
        apply.continue_training(tmp_path / "out")
    assert digest(tmp_path / "out") == before
    (tmp_path / "out" / "purified.csv").unlink()
    apply.apply(tmp_path / "out", [file])  # the source is not needed
    with pytest.raises(ValueError, match="was changed since the"):
        apply.continue_training(tmp_path / "out", progress=False)


@pytest.mark.parametrize("damage", ["order", "column", "summary", "folder"])
def test_a_damaged_run_is_refused(out: Path, tmp_path: Path, damage: str) -> None:
    file = some(out, tmp_path / "d.json")
    lines = read_labels(out)
    if damage == "order":
        lines[::-1].to_csv(out / "labels.csv", index=False)
    elif damage == "column":
        lines.drop(columns="reason").to_csv(out / "labels.csv", index=False)
    elif damage == "summary":
        (out / "summary.json").write_text("{}")
    else:
        (out / "summary.json").unlink()
    says = {
        "order": "in their order", "column": "no column 'reason'",
        "summary": "summary.json is damaged", "folder": "not the folder of a finished run",
    }  # fmt: skip
    with pytest.raises((ValueError, FileNotFoundError), match=says[damage]):
        apply.apply(out, [file])


def test_the_commands_say_what_they_did(out: Path, tmp_path: Path) -> None:
    assert "give decisions" in colafier("apply", out, code=2)
    assert "nothing in" in colafier("apply", out, "--continue", code=2)
    said = colafier("apply", out, some(out, tmp_path / "d.json"))
    assert "6 decisions applied; 6 rows are decided in all: 3 with another label" in said
    said = colafier("apply", out, "--continue")
    assert "Trained with 6 decided rows" in said
    assert "Of the other labels about" in said


def test_training_on_pins_what_was_decided(out: Path, tmp_path: Path) -> None:
    file = some(out, tmp_path / "d.json")
    apply.apply(out, [file])
    applied = read_labels(out)
    first = (out / "labels.before-review.csv").read_bytes()
    outcome = apply.continue_training(out, progress=False)
    after = read_labels(out)
    assert tuple(after.columns) == (*HEAD, *REVIEW)
    pd.testing.assert_frame_equal(after[list(KEPT)], applied[list(KEPT)])
    rows, pinned = [0, 1, 2, 5, 6, 10], ["label", "action", "reason", *REVIEW]
    pd.testing.assert_frame_equal(after.loc[rows, pinned], applied.loc[rows, pinned])
    assert after.loc[rows, "label_quality"].tolist() == ["0", "1", "", "1", "", "0"]
    assert after.loc[rows, "lid"].ne("").tolist() == [False, True, False, False, False, False]
    shown = {entry["row"] for entry in json.loads((out / "evidence.json").read_text())["rows"]}
    assert shown
    assert not shown & set(rows)
    assert outcome.summary["reviewed"] == 6
    assert outcome.summary == json.loads((out / "summary.json").read_text())
    assert "Äpfel, grün" not in model_store.load(out / "model").classes  # its only row was moved
    assert (out / "labels.before-review.csv").read_bytes() == first
    names = {path.name for path in out.iterdir()}
    assert "continued" not in names
    written = pd.read_csv(out / "purified.csv", dtype=str, keep_default_na=False)
    assert written["label"].tolist() == after["label"][after["action"] != "exclude"].tolist()
    apply.apply(out, [file])  # once more changes nothing
    pd.testing.assert_frame_equal(read_labels(out), after)


def test_all_rows_decided(tmp_path: Path) -> None:
    quickly(write_npz(tmp_path / "a.npz", n=40, wrong=0.2), tmp_path / "out")
    observed = read_labels(tmp_path / "out")["original_label"]
    choices = [(row, "keep", label) for row, label in enumerate(observed)]
    apply.apply(
        tmp_path / "out", [write_decisions(tmp_path / "out", tmp_path / "d.json", *choices)]
    )
    summary = apply.continue_training(tmp_path / "out", progress=False).summary
    assert summary["actions"] == {"keep": 40}
    assert (summary["estimated_noise_rate"], summary["estimated_wrong_labels"]) == (0, 0)


def test_a_stopped_training_continues_to_the_same_end(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply.apply(out, [some(out, tmp_path / "d.json")])
    twin = Path(shutil.copytree(out, tmp_path / "twin"))
    applied = digest(out)

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("colafier.audit.pipeline.posterior", stop)  # after training
        assert f"continue with: colafier apply {out} --continue" in colafier(
            "apply", out, "--continue", code=130
        )
    results = {name: value for name, value in digest(out).items() if "continued" not in name}
    assert results == applied  # what was there is as it was
    assert (out / "continued" / "checkpoint.pt").exists()
    assert "colafier apply" in colafier("purify", "--resume", out / "continued", code=2)
    apply.continue_training(out, progress=False)
    apply.continue_training(twin, progress=False)
    pd.testing.assert_frame_equal(read_labels(out), read_labels(twin))


@pytest.mark.parametrize("last", ["config.json", "summary.json"])
def test_a_kill_while_results_are_taken_over(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    apply.apply(out, [some(out, tmp_path / "d.json")])
    replace = apply.os.replace

    def dies(source: Path, target: Path) -> None:
        replace(source, target)
        if Path(source).parent != Path(target).parent and Path(source).name == last:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(apply.os, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            apply.continue_training(out, progress=False)
    for words in (("report", out), ("apply", out, tmp_path / "d.json")):
        said = colafier(*words, code=2)  # else it would show old results beside new ones
        assert f"old and new results; finish with: colafier apply {out} --continue" in said
    monkeypatch.setattr(apply, "purify", None)  # it must not train once more
    summary = apply.continue_training(out, progress=False).summary
    assert not list(out.glob("continued*"))
    assert summary["reviewed"] == 6
    assert len(read_labels(out)) == 60


def test_other_decisions_start_over(out: Path, tmp_path: Path) -> None:
    (out / "continued").mkdir()
    config = json.loads((out / "config.json").read_text()) | {"decided": "others"}
    (out / "continued" / "config.json").write_text(json.dumps(config))
    (out / "continued" / "checkpoint.pt").write_bytes(b"of another run")
    apply.apply(out, [some(out, tmp_path / "d.json")])
    assert apply.continue_training(out, progress=False).summary["reviewed"] == 6


def test_overwriting_a_run_forgets_its_review(source: Path, out: Path, tmp_path: Path) -> None:
    apply.apply(out, [some(out, tmp_path / "d.json")])
    quickly(source, out, overwrite=True)
    assert not (out / "labels.before-review.csv").exists()
    assert "reviewed_at" not in read_labels(out)


def test_training_continues_from_the_checkpoint(out: Path, tmp_path: Path) -> None:
    apply.apply(out, [write_decisions(out, tmp_path / "d.json", (1, "keep", "pear"))])
    before = (out / "metrics.jsonl").read_text().splitlines()
    said: list[str] = []
    apply.continue_training(out, progress=False, say=said.append)
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert lines[:2] == before
    assert [json.loads(line)["epoch"] for line in lines] == [0, 1, 2]
    assert not any("starts over" in line for line in said)
    assert "soft_gen" in json.loads(lines[2])  # the epochs that are added are on soft labels
    assert (read_labels(out).loc[[0, 1, 3], "lid"] != "").all()  # from before
    apply.continue_training(out, progress=False)
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 4


def test_training_starts_over_where_it_must(out: Path, tmp_path: Path) -> None:
    apply.apply(out, [some(out, tmp_path / "d.json")])  # one class has no row after that
    said: list[str] = []
    apply.continue_training(out, progress=False, say=said.append)
    assert "the classes are not those of before: training starts over" in said
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 2
    said.clear()
    apply.continue_training(out, progress=False, say=said.append)  # now it knows just these classes
    assert not any("starts over" in line for line in said)
    (out / "checkpoint.pt").unlink()
    apply.continue_training(out, progress=False, say=said.append)
    assert f"{out / 'checkpoint.pt'} is gone: training starts over" in said


def test_a_reset_forgets_what_was_learned_from_decisions(out: Path, tmp_path: Path) -> None:
    first = write_decisions(out, tmp_path / "d.json", (1, "keep", "pear"))
    apply.apply(out, [first], reset=True)
    assert (out / "checkpoint.pt").exists()  # it knows nothing of them
    apply.continue_training(out, progress=False)
    apply.apply(out, [write_decisions(out, tmp_path / "e.json", (20, "exclude", None))], reset=True)
    assert not (out / "checkpoint.pt").exists()


def test_a_checkpoint_that_is_deleted_in_between_is_not_missed(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply.apply(out, [write_decisions(out, tmp_path / "d.json", (1, "keep", "pear"))])

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("colafier.audit.pipeline.posterior", stop)  # after training
        with pytest.raises(KeyboardInterrupt):
            apply.continue_training(out, progress=False)
    (out / "checkpoint.pt").unlink()
    apply.continue_training(out, progress=False)
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_method_that_cannot_be_trained_on_starts_over(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    quickly(source, out, epochs=2, method="joint_optim")
    apply.apply(out, [write_decisions(out, tmp_path / "d.json", (1, "keep", "pear"))])
    said: list[str] = []
    apply.continue_training(out, progress=False, say=said.append)
    assert "joint_optim cannot be trained on: training starts over" in said
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_damaged_checkpoint_is_named(out: Path, tmp_path: Path) -> None:
    apply.apply(out, [write_decisions(out, tmp_path / "d.json", (1, "keep", "pear"))])
    (out / "checkpoint.pt").write_bytes(b"no checkpoint")
    said = colafier("apply", out, "--continue", code=2)
    assert "checkpoint.pt is damaged; start over without it" in " ".join(said.split())


def test_a_second_review_after_the_first(out: Path, tmp_path: Path) -> None:
    apply.apply(out, [some(out, tmp_path / "d.json")])
    apply.continue_training(out, progress=False)
    second = write_decisions(out, tmp_path / "second.json", (20, "exclude", None))
    assert apply.apply(out, [second]).decided == 7
    apply.continue_training(out, progress=False)
    after = read_labels(out)
    assert after.loc[[0, 2, 20], "action"].tolist() == ["relabel", "exclude", "exclude"]
    assert (after["reviewed_at"] != "").sum() == 7
