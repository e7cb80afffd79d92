"""A run from Python: own arrays, with and without known truth."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from colafier import Source, arrays, resolve, run
from colafier.audit.label_table import COLUMNS
from colafier.workflows.experiment import Task, prepare, settings_of, train
from colafier.workflows.run_dir import RunConfig, write_config

pytestmark = pytest.mark.usefixtures("quick")

FILES = {
    "config.json", "noise.json", "metrics.jsonl", "labels.csv", "record.json", "checkpoint.pt",
    "evidence.json", "report.html", "summary.json", "model",
}  # fmt: skip
QUICK = {"net": "linear", "epochs": 1, "method": "ce", "batch_size": 32}


@pytest.fixture
def vectors() -> Source:
    """Two clouds of 40 rows each, far from each other."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 5, generator=generator)
    x[40:] += 6
    return arrays(x, np.repeat(["cat", "dog"], 40), name="clouds")


def test_own_rows_have_no_known_truth(vectors: Source) -> None:
    result = run(resolve(overrides={**QUICK, "epochs": 3}), vectors, progress=False)
    assert result.record["noise"]["true_rate"] is None
    assert result.record["config"]["source"] == "clouds"
    assert "labels_right_before" not in result.record
    assert result.purified.labels.shape == result.purified.quality.shape == (80,)
    assert len(result.history.epochs) == 3
    p = result.predict(vectors.x[:7])
    torch.testing.assert_close(p.sum(1), torch.ones(7))


def test_injected_noise_is_scored(vectors: Source) -> None:
    settings = resolve(overrides={**QUICK, "noise": "pair:0.25", "epochs": 20, "lr": 0.01})
    record = run(settings, vectors, progress=False).record
    assert record["labels_right_before"] == pytest.approx(1 - record["noise"]["true_rate"])
    assert record["labels_right_after"] > 0.9  # clouds this far apart are easy


def test_a_method_that_needs_the_noise_rate_gets_it(vectors: Source) -> None:
    overrides = {**QUICK, "noise": "pair:0.25"}
    record = run(
        resolve(overrides={**overrides, "method": "jocor"}), vectors, progress=False
    ).record
    assert record["config"]["hyper"]["noise_rate"] == pytest.approx(
        record["noise"]["true_rate"], abs=1e-3
    )
    told = resolve(overrides={**overrides, "method": "jocor"}, hyper={"noise_rate": 0.1})
    assert run(told, vectors, progress=False).record["config"]["hyper"]["noise_rate"] == 0.1
    record = run(resolve(overrides={**overrides, "method": "ce"}), vectors, progress=False).record
    assert "noise_rate" not in record["config"]["hyper"]


def test_files_hold_what_the_result_holds(vectors: Source, tmp_path: Path) -> None:
    observed = vectors.labels.clone()
    observed[3] = -1
    settings = resolve(overrides={**QUICK, "source": "clouds"})
    task = Task(vectors, observed, vectors.labels, {"true_rate": 0.0})
    result = train(settings, task, tmp_path / "run", progress=False)
    table = pd.read_csv(tmp_path / "run" / "labels.csv", keep_default_na=False)
    assert tuple(table.columns) == ("row", "name", *COLUMNS)
    names = np.array([*vectors.classes, ""])
    decided = result.audited.decided
    assert table["original_label"].tolist() == names[observed].tolist()
    assert table["label"].tolist() == names[decided.labels].tolist()
    assert table["method_label"].tolist() == names[result.purified.labels].tolist()
    assert table["action"].tolist() == decided.action.tolist()
    assert table.loc[3, ["original_label", "label", "label_quality"]].tolist() == ["", "", ""]
    quality = pd.to_numeric(table["label_quality"].drop(3))
    found = result.audited.found.quality[torch.arange(80) != 3]
    np.testing.assert_allclose(quality, found, rtol=1e-4)
    assert json.loads((tmp_path / "run" / "record.json").read_text()) == result.record
    assert settings_of(tmp_path / "run") == settings


def test_the_record_scores_the_labels_after_the_audit(vectors: Source) -> None:
    settings = resolve(overrides={**QUICK, "noise": "pair:0.2", "epochs": 20, "lr": 0.01})
    task = prepare(settings, vectors)
    result = train(settings, task, progress=False)
    after = result.record["audit"]
    labels = result.audited.decided.labels
    assert task.truth is not None
    assert after["labels_right_after"] == pytest.approx(
        float((labels == task.truth).double().mean())
    )
    assert after["labels_changed"] == int((labels != task.observed).sum())
    assert after["labels_right_after"] > 0.95


def test_limit_keeps_the_first_rows_and_all_test_rows() -> None:
    whole, part = (
        prepare(resolve("digits", overrides)).source for overrides in ({}, {"limit": 50})
    )
    assert torch.equal(part.x, whole.x[:50])
    assert torch.equal(part.labels, whole.labels[:50])
    assert part.test_x is not None
    assert len(part.test_x) == 360


def test_noise_follows_the_seed() -> None:
    first, again, other = (prepare(resolve("digits", {"seed": seed})) for seed in (1, 1, 2))
    assert torch.equal(first.observed, again.observed)
    assert not torch.equal(first.observed, other.observed)
    assert first.truth is not None
    assert (first.observed != first.truth).double().mean() == first.manifest["true_rate"]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"source": "mnist"}, "there are digits, cifar10, fashion_mnist"),
        ({"source": "fashion_mnist"}, "--data FOLDER"),
        ({"source": "digits", "pad_to": 32}, "pad_to is for fashion_mnist"),
        ({"net": "resnet9"}, "no net 'resnet9'"),
        ({"dtype": "fp16"}, "auto, float32, bf16"),
    ],
)
def test_mistakes_show_up_before_a_run(overrides: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        prepare(resolve(overrides=overrides))


def test_mistakes_about_own_rows_show_up_before_a_run(vectors: Source) -> None:
    with pytest.raises(ValueError, match=r"resnet8 needs images.*mlp or linear"):
        prepare(resolve(overrides={"net": "resnet8"}), vectors)
    with pytest.raises(ValueError, match="all 30 rows are of one class"):
        prepare(resolve(overrides={"net": "mlp", "limit": 30}), vectors)
    with pytest.raises(ValueError, match="folder"):
        run(resolve(overrides=QUICK), vectors, log=["tensorboard"])


def test_own_net(vectors: Source) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Tanh())
    result = run(
        resolve(overrides={"epochs": 1, "batch_size": 32}), vectors, net=net, progress=False
    )
    assert result.record["config"]["net"] == "Sequential"
    assert result.predict(vectors.x[:4]).shape == (4, 2)


def test_limit_is_for_own_rows_too(vectors: Source) -> None:
    task = prepare(resolve(overrides={"net": "mlp", "limit": 50}), vectors)
    assert torch.equal(task.source.x, vectors.x[:50])
    assert torch.equal(task.observed, vectors.labels[:50])


def test_record_says_what_open_choices_came_to(vectors: Source) -> None:
    settings = resolve(overrides={**QUICK, "dtype": "bf16"})
    resolved = run(settings, vectors, progress=False).record["resolved"]
    expected = {"dtype": "bfloat16", "init": "torch", "input_statistics": "fitted"}
    assert resolved == expected | {"lr_floor": 0.02}


def test_a_variant_brings_its_net_and_run_settings() -> None:
    x = torch.randint(0, 256, (24, 3, 32, 32), dtype=torch.uint8)
    source = arrays(x.numpy(), [0, 1] * 12)
    quick = {"method": "colafier", "net": "convnet", "epochs": 1, "batch_size": 8, "lr": 0.0}
    for variant in ("paper", "authors"):
        result = run(resolve(overrides=quick, hyper={"variant": variant}), source, progress=False)
        found = result.record["resolved"]
        assert (found["init"], found["dtype"]) == ("kaiming-fan-out", "float32")
        assert found["input_statistics"] == "cifar10-authors"
        assert found["lr_floor"] == result.record["config"]["lr_floor"] == 1.0
        assert result.normalize.std.tolist() == pytest.approx([0.2023, 0.1994, 0.2010])
        weight = result.classifier.backbone.module[6].weight  # (64, 32, 3, 3), as it started
        assert weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.05)
    given = {**quick, "input_statistics": "fitted"}
    result = run(resolve(overrides=given, hyper={"variant": "authors"}), source, progress=False)
    assert result.record["resolved"]["input_statistics"] == "fitted"


def test_statistics_that_do_not_fit_are_refused_before_the_run(vectors: Source) -> None:
    with pytest.raises(ValueError, match="three channels"):
        prepare(resolve(overrides={**QUICK, "input_statistics": "cifar10-authors"}), vectors)


def test_overwrite_removes_the_files_of_the_run_only(vectors: Source, tmp_path: Path) -> None:
    settings = resolve(overrides=QUICK)
    task = prepare(settings, vectors)
    write_config(tmp_path, RunConfig("purify", {"source": "a"}, "1234"))  # of any kind
    for name in ("purified.csv", "labels.before-review.csv", "notes.txt", "model.partial"):
        (tmp_path / name).write_text("older")
    with pytest.raises(FileExistsError, match="--overwrite"):
        train(settings, task, tmp_path, progress=False)
    train(settings, task, tmp_path, overwrite=True, progress=False)
    assert {path.name for path in tmp_path.iterdir()} == FILES | {"notes.txt"}
    (config,) = (tmp_path / "config.json").read_text().splitlines()
    assert json.loads(config)["kind"] == "train"


def test_a_file_is_no_folder(vectors: Source, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = resolve(overrides=QUICK)
    with pytest.raises(FileExistsError, match="is a file"):
        train(settings, prepare(settings, vectors), tmp_path / "file", overwrite=True)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "does not hold the settings"),
        ({"hyper": {"warm": 1}}, "no hyper-parameter of colafier 'warm'"),
        ({"hyper": {}, "epochs": 0}, "epochs must be"),
    ],
)
def test_damaged_settings_are_named(tmp_path: Path, asked: dict[str, Any], says: str) -> None:
    write_config(tmp_path, RunConfig("train", asked, "1234"))
    with pytest.raises(ValueError, match=says):
        settings_of(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"hyper": {'])
def test_a_damaged_config_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json is"):
        settings_of(tmp_path)


def test_resume_needs_a_run_of_its_kind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no run in"):
        settings_of(tmp_path / "nothing")
    write_config(tmp_path, RunConfig("purify", {"source": "a"}, "1234"))
    with pytest.raises(ValueError, match="made by colafier purify, not by train"):
        settings_of(tmp_path)


class FakeEmbedder:
    """Features are the means of the channels."""

    name = key = "means"
    num_features = 3

    def __call__(self, items: Any) -> tuple[Any, dict[int, str]]:
        """Features of images."""
        means = np.stack([np.asarray(item, np.float32).mean((1, 2)) for item in items])
        return means, {}


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> Source:
    """Random images of two classes, and an embedder for them."""
    monkeypatch.setattr("colafier.embed.embedder", lambda *_: FakeEmbedder())
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(256, (50, 3, 8, 8), generator=generator).to(torch.uint8)
    labels = np.arange(50) % 2
    return arrays(x[:40], labels[:40], test_x=x[40:], test_labels=labels[40:], name="pictures")


def test_an_embedder_replaces_images_by_features(images: Source) -> None:
    wanted = {**QUICK, "noise": "instance:0.3"}
    plain = prepare(resolve(overrides=wanted), images)
    task = prepare(resolve(overrides={**wanted, "embedder": "means"}), images)
    assert torch.equal(task.observed, plain.observed)  # noise depends on the images
    torch.testing.assert_close(task.source.x, images.x.float().mean((2, 3)))
    assert task.source.test_x is not None
    assert task.source.test_x.shape == (10, 3)
    record = train(resolve(overrides={**wanted, "embedder": "means"}), task, progress=False).record
    assert record["test_accuracy"] is not None


def test_an_embedder_is_for_images(vectors: Source) -> None:
    with pytest.raises(ValueError, match="embedder=means is for images, not for clouds"):
        prepare(resolve(overrides={**QUICK, "embedder": "means"}), vectors)
