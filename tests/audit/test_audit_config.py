"""The constants that decide are checked, wherever they come from."""

from dataclasses import fields
from typing import Any

import pytest

from colafier.audit.config import AuditConfig
from colafier.audit.pipeline import configure
from colafier.evidence.config import EvidenceConfig


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"min_confidence": -0.1}, r"min_confidence must be a number \(0 to 1\), not -0.1"),
        ({"min_confidence": 1.1}, r"min_confidence must be a number \(0 to 1\), not 1.1"),
        ({"min_confidence": float("nan")}, r"min_confidence must be a number \(0 to 1\), not nan"),
        ({"folds": 1}, r"folds must be a whole number \(at least 2\), not 1"),
        ({"folds": 2.5}, "folds must be a whole number"),
        ({"leniency": -1.0}, r"leniency must be a number \(at least 0\)"),
        ({"feature_weights": 0.1}, "feature_weights must be a list"),
    ],
)
def test_values_out_of_range_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        AuditConfig(**values)
    with pytest.raises(ValueError, match=says):
        configure((4,), 100, audit=values)


def test_defaults_are_sound() -> None:
    config = AuditConfig()
    assert {field.name: field.default for field in fields(config)} == vars(config)


def test_the_audit_makes_its_evidence_as_the_training_does() -> None:
    audit, evidence = vars(AuditConfig()), vars(EvidenceConfig())
    assert {name: audit[name] for name in evidence} == evidence


def test_none_leaves_a_default() -> None:
    left = configure((8,), 500, {"epochs": None, "net": None}, {"min_confidence": None})
    assert left == configure((8,), 500)


def test_small_data_sets_get_more_epochs() -> None:
    epochs = [configure((8,), n)[0].epochs for n in (100, 1000, 100_000)]
    assert epochs == sorted(epochs, reverse=True)
    assert epochs[0] > 2 * epochs[-1]


def test_a_net_fits_its_rows() -> None:
    nets = [configure(shape, 500)[0].net for shape in ((8,), (1, 8, 8), (3, 32, 32))]
    assert nets == ["mlp", "convnet", "resnet10"]
