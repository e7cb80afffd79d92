"""A run from Python: own arrays, with and without known truth."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from colafier import (
    Purified,
    Source,
    arrays,
    resolve,
    run,
)
from colafier.workflows.experiment import (
    Task,
    claim,
    label_table,
    prepare,
    settings_of,
)

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
    assert record["labels_right_after"] > 0.9  # clouds this far apart are easily told


def test_a_method_that_needs_the_noise_rate_is_told_it(vectors: Source) -> None:
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
    settings = resolve(overrides=QUICK)
    result = run(settings, vectors, tmp_path / "run", progress=False)
    table = pd.read_csv(tmp_path / "run" / "labels.csv")
    names = np.array(vectors.classes)
    assert list(table["label"]) == list(names[result.purified.labels.numpy()])
    np.testing.assert_allclose(table["label_quality"], result.purified.quality, rtol=1e-4)
    assert settings_of(tmp_path / "run") == replace(settings, source="clouds")


def test_rows_without_a_label_stay_empty(vectors: Source) -> None:
    observed = vectors.labels.clone()
    observed[3] = -1
    labels = observed.clone()
    labels[0] = 1
    purified = Purified(labels, torch.ones(80), {"lid": torch.arange(80.0)})
    table = label_table(Task(vectors, observed, None, {}), purified)
    assert list(table.loc[[0, 1, 3], "original_label"]) == ["cat", "cat", ""]
    assert list(table.loc[[0, 1, 3], "label"]) == ["dog", "cat", ""]
    assert list(table.index[table["changed"]]) == [0]
    assert list(table["lid"]) == list(range(80))


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


def test_record_says_what_open_choices_original_to(vectors: Source) -> None:
    settings = resolve(overrides={**QUICK, "dtype": "bf16"})
    assert run(settings, vectors, progress=False).record["resolved"] == {"dtype": "bfloat16"}


def test_overwrite_removes_the_files_of_the_run_only(tmp_path: Path) -> None:
    for name in ("config.json", "metrics.jsonl", "checkpoint.pt", "notes.txt"):
        (tmp_path / name).touch()
    claim(tmp_path, overwrite=True)
    claim(tmp_path / "new" / "run", overwrite=False)
    assert (tmp_path / "new" / "run").is_dir()
    (tmp_path / "new" / "run").rmdir()
    (tmp_path / "new").rmdir()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is a file"):
        claim(tmp_path / "file", overwrite=True)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"hyper": {'])
def test_a_damaged_config_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config\.json does not hold the settings"):
        settings_of(tmp_path)


def test_resume_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no run to resume"):
        settings_of(tmp_path / "nothing")
