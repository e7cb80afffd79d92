"""Purified labels are better than noisy ones, with the defaults of the package."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from own_data import clouds, quickly, read_labels, write_decisions
from sklearn.datasets import load_digits

from colafier.workflows import apply


def digits(path: Path, n: int, wrong: float) -> tuple[np.ndarray, np.ndarray]:
    """Write digits with a share of random labels; the true and the observed labels (n,)."""
    data, random = load_digits(), np.random.default_rng(1)
    truth = data.target[:n]
    observed = np.where(random.random(n) < wrong, random.integers(0, 10, n), truth)
    np.savez(path, features=data.data[:n], labels=observed)
    return truth, observed


def summary_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "summary.json").read_text())


@pytest.fixture(scope="module")
def noisy_digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    folder = tmp_path_factory.mktemp("digits")
    truth, observed = digits(folder / "digits.npz", 300, 0.3)
    options = {"method": "colafier", "epochs": 8, "write": "npz"}
    quickly(folder / "digits.npz", folder / "out", **options)
    return folder / "out", truth, observed


def test_purified_labels_are_better_than_noisy_ones(noisy_digits: Any) -> None:
    out, truth, observed = noisy_digits
    lines, summary = read_labels(out), summary_of(out)
    before, after = (observed == truth).mean(), (lines["label"] == truth.astype(str)).mean()
    assert after > before + 0.1
    assert 0.1 < summary["estimated_noise_rate"] < 0.4  # how near is for the benchmarks
    relabeled = lines["action"] == "relabel"
    fixed = (lines["label"] == truth.astype(str))[relabeled].sum()
    assert summary["expected_fixed"] == pytest.approx(fixed, rel=0.3)
    assert lines["lid"].ne("").all()


def test_archive_is_written_back_in_its_own_types(noisy_digits: Any) -> None:
    out, _, observed = noisy_digits
    lines = read_labels(out)
    with np.load(out / "purified.npz") as archive:
        keep = (lines["action"] != "exclude").to_numpy()
        assert archive["labels"].dtype == observed.dtype
        assert archive["labels"].astype(str).tolist() == lines["label"][keep].tolist()
        assert (archive["original_label"] == observed[keep]).all()


def test_clean_labels_stay(tmp_path: Path) -> None:
    digits(tmp_path / "clean.npz", 300, 0.0)
    quickly(tmp_path / "clean.npz", tmp_path / "out", method="colafier", epochs=8)
    lines = read_labels(tmp_path / "out")
    assert (lines["label"] == lines["original_label"]).mean() > 0.97
    assert summary_of(tmp_path / "out")["estimated_noise_rate"] < 0.06


def test_the_other_rows_profit_from_decisions(tmp_path: Path) -> None:
    """Most labels of one class are wrong, which nobody can see; a few decisions show it."""
    x, truth = clouds(240)
    observed = np.where((np.random.default_rng(0).random(240) < 0.8) & (truth == 2), 1, truth)
    np.savez(tmp_path / "clouds.npz", features=x, labels=observed)
    out = tmp_path / "out"
    quickly(tmp_path / "clouds.npz", out, method="colafier", epochs=12)
    before = read_labels(out)
    rows = np.flatnonzero(truth == 2)[:16]
    choices = [(int(row), "keep" if observed[row] == 2 else "other", "2") for row in rows]
    apply.apply(out, [write_decisions(out, tmp_path / "d.json", *choices)])
    apply.continue_training(out, progress=False)
    after = read_labels(out)
    assert (after.loc[rows, "label"] == "2").all()
    assert after["original_label"].tolist() == observed.astype(str).tolist()
    rest = np.setdiff1d(np.arange(240), rows)
    right = [(t.loc[rest, "label"] == truth[rest].astype(str)).mean() for t in (before, after)]
    assert right[0] < 0.9
    assert right[1] > 0.97
