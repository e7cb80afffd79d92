import json
from pathlib import Path

import numpy as np
import pytest
import torch

from colafier import __version__, _seeds
from colafier._io import append_json_line
from colafier.training import records
from colafier.training.records import History


def test_summary_of_accuracies() -> None:
    values = [i / 20 for i in range(12)]
    values[3] = 0.9
    assert records.summary(values) == {
        "test_accuracy": 0.55,
        "test_accuracy_last10": pytest.approx((sum(range(2, 12)) - 3) / 200 + 0.09),
        "test_accuracy_last5": pytest.approx((7 + 8 + 9 + 10 + 11) / 100),
        "oracle_best": 0.9,
        "oracle_top3": pytest.approx((0.9 + 0.55 + 0.5) / 3),
    }
    assert set(records.summary([]).values()) == {None}


def test_a_record_says_all_about_a_run(tmp_path: Path) -> None:
    epochs = [
        {"epoch": i, "test_accuracy": 0.5, "seconds": 2.0, "skipped_steps": i} for i in range(3)
    ]
    record = records.run_record(
        method="ce",
        noise={"kind": "symmetric", "true_rate": np.float64(0.41)},
        seed=1,
        history=History(epochs),
        final={"labels_right_before": 0.6, "auroc": float("nan")},
        config={"lr": 0.1, "folder": tmp_path, "shape": (3, 8), "t": torch.tensor(2)},
        resolved={"warmup": 3},
        diagnostics={"level": float("-inf")},
    )
    path = tmp_path / "new" / "runs.jsonl"
    append_json_line(path, record)
    append_json_line(path, record)
    first, second = map(json.loads, path.read_text().splitlines())
    assert first == second
    assert first["method"] == "ce"
    assert first["noise"]["true_rate"] == 0.41
    assert first["epochs"] == 3
    assert first["test_accuracy_last5"] == 0.5
    assert first["seconds"] == 6.0
    assert first["skipped_steps"] == 3
    assert first["auroc"] is None
    assert first["labels_right_before"] == 0.6
    assert first["config"] == {"lr": 0.1, "folder": str(tmp_path), "shape": [3, 8], "t": 2}
    assert first["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert first["versions"]["colafier"] == __version__
    assert first["hardware"]["cpu"]
    assert first["resolved"] == {"warmup": 3}
    assert first["diagnostics"] == {"level": None}
    assert first["hardware"]["processes"] == 1
    assert "commit" in first


def test_derived_seeds_differ() -> None:
    assert _seeds.derive(1, 2, "order") == _seeds.derive(1, 2, "order")
    parts = [(1, 2), (2, 1), (12,), (1, 2, "order"), (1, 2, "weak")]
    found = {_seeds.derive(*part) for part in parts}
    assert len(found) == len(parts)
    assert all(0 <= seed < 2**63 for seed in found)
