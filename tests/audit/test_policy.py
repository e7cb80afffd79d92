"""Every action and reason, on rows worked out by hand."""

from typing import Any

import pytest
import torch
from torch import Tensor

from colafier.audit.config import AuditConfig
from colafier.audit.policy import Decisions, decide, most_doubtful
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import NoiseModel, Posterior

# believed, observed, wanted action, wanted reason
ROWS = [
    ([0.90, 0.05, 0.05], 0, "keep", ""),
    ([0.05, 0.90, 0.05], 0, "relabel", "wrong"),
    ([0.21, 0.55, 0.24], 0, "review", "wrong"),  # not sure enough
    ([0.45, 0.50, 0.05], 0, "review", "ambiguous"),
    ([0.36, 0.34, 0.30], 2, "exclude", "outlier"),
    ([0.70, 0.15, 0.15], 0, "keep", ""),
]
ISSUES = 3  # the rows 1, 2 and 4 have the lowest quality
KEPT = ([0.97, 0.02, 0.01], 0)


def believed(p: Tensor, observed: Tensor, rate: float) -> Posterior:
    """As if these were the probabilities after the observed labels are known."""
    quality = p.gather(1, observed.clamp(min=0)[:, None])[:, 0]
    quality = torch.where(observed >= 0, quality, 1.0)
    model = NoiseModel(torch.eye(p.shape[1]), 0.0, 0.0)
    return Posterior(p, p, quality, model, rate, interval=(0.0, 1.0))


def decided(rows: list[tuple], wrong: int, **options: Any) -> tuple[Decisions, Tensor]:
    p = torch.tensor([row[0] for row in rows])
    observed = torch.tensor([row[1] for row in rows])
    labels = Labels(observed, trusted=options.pop("trusted", None))
    found = believed(p, observed, wrong / max(int(labels.doubtful.sum()), 1))
    config = AuditConfig(min_confidence=options.pop("min_confidence", 0.6))
    return decide(found, labels, config, **options), observed


def test_every_action_and_reason() -> None:
    found, observed = decided(ROWS, ISSUES)
    assert found.action.tolist() == [row[2] for row in ROWS]
    assert found.reason.tolist() == [row[3] for row in ROWS]
    assert found.issue.tolist() == [False, True, True, False, True, False]
    assert found.suggested.tolist() == [0, 1, 1, 1, 0, 0]
    assert found.confidence.tolist() == pytest.approx([max(row[0]) for row in ROWS])
    assert found.labels.tolist() == [0, 1, 0, 0, 2, 0]
    moved = torch.tensor([row[2] == "relabel" for row in ROWS])
    assert torch.equal(found.labels != observed, moved)


def test_a_doubtful_label_that_is_still_the_best_is_looked_at() -> None:
    found, _ = decided([([0.5, 0.26, 0.24], 0), KEPT], 1)
    assert found.action.tolist() == ["review", "keep"]
    assert found.reason.tolist() == ["wrong", ""]


def test_min_confidence_sets_how_sure_a_relabel_is() -> None:
    rows = [([0.05, 0.90, 0.05], 0), ([0.02, 0.96, 0.02], 0), KEPT]
    assert decided(rows, 2)[0].action.tolist() == ["relabel", "relabel", "keep"]
    assert decided(rows, 2, min_confidence=0.95)[0].action.tolist() == ["review", "relabel", "keep"]


def test_trusted_rows_are_kept_whatever_is_believed() -> None:
    trusted = torch.tensor([True] * 5 + [False])
    found, observed = decided(ROWS, 0, trusted=trusted, groups=torch.tensor([7, 7, 7, 3, 3, -1]))
    assert set(found.action.tolist()) == {"keep"}
    assert set(found.reason.tolist()) == {""}
    assert not found.issue.any()
    assert torch.equal(found.labels, observed)


def test_rows_without_a_label_stay_without_one() -> None:
    found, _ = decided([([0.05, 0.90, 0.05], -1), ([0.36, 0.34, 0.30], -1), KEPT], 1)
    assert found.action.tolist()[:2] == ["keep", "keep"]
    assert found.labels.tolist() == [-1, -1, 0]
    assert found.suggested.tolist()[:2] == [1, 0]
    assert found.issue.tolist()[:2] == [False, False]


def test_rows_that_may_not_move_are_looked_at() -> None:
    rows = [([0.05, 0.90, 0.05], 0), ([0.05, 0.90, 0.05], 0), KEPT]
    found, _ = decided(rows, 2, may_move=torch.tensor([False, True, True]))
    assert found.action.tolist() == ["review", "relabel", "keep"]
    assert found.labels.tolist() == [0, 1, 0]


def test_with_two_classes_there_are_no_outliers() -> None:
    found, _ = decided([([0.51, 0.49], 1), ([0.99, 0.01], 0)], 1)
    assert found.action.tolist() == ["review", "keep"]
    assert found.reason.tolist() == ["ambiguous", ""]


def test_duplicates_with_different_labels_are_looked_at() -> None:
    sure = ([0.02, 0.96, 0.02], 0)
    same = ([0.02, 0.96, 0.02], 1)
    rows = [sure, same, ([0.9, 0.05, 0.05], 0), ([0.9, 0.05, 0.05], 0), (sure[0], -1), KEPT]
    groups = torch.tensor([4, 4, 0, 0, 4, -1])
    found, observed = decided(rows, 1, groups=groups)
    assert found.action.tolist() == ["review", "review", "keep", "keep", "keep", "keep"]
    assert found.reason.tolist() == ["duplicate", "duplicate", "", "", "", ""]
    assert torch.equal(found.labels, observed)


def test_a_duplicate_that_looks_like_nothing_is_still_a_duplicate() -> None:
    outlier = [0.36, 0.34, 0.30]
    found, _ = decided([(outlier, 2), (outlier, 1), KEPT], 2, groups=torch.tensor([0, 0, -1]))
    assert found.action.tolist() == ["review", "review", "keep"]
    assert found.reason.tolist() == ["duplicate", "duplicate", ""]


def test_duplicates_of_one_label_agree_also_with_more_classes_than_rows() -> None:
    """A class number can be larger than the number of rows, when a model checks new ones."""
    p = [0.01] * 6
    p[5] = 0.95
    found, _ = decided([(p, 5), (p, 5), (p, 5)], 0, groups=torch.tensor([0, 0, -1]))
    assert found.action.tolist() == ["keep", "keep", "keep"]


def test_no_groups_at_all() -> None:
    found, _ = decided(ROWS, ISSUES, groups=torch.full((6,), -1))
    assert found.action.tolist() == [row[2] for row in ROWS]


def test_expected_is_the_sum_over_relabels() -> None:
    rows = [([0.05, 0.90, 0.05], 0), ([0.10, 0.80, 0.10], 0), ([0.05, 0.90, 0.05], -1), KEPT]
    found, observed = decided(rows, 2)
    expected = found.expected(observed, torch.tensor([0.05, 0.10, 1.0, 0.97]))
    assert expected["relabeled"] == 2
    assert expected["expected_fixed"] == pytest.approx(1.7)
    assert expected["expected_broken"] == pytest.approx(0.15)


def test_as_many_issues_as_are_estimated_among_the_free_rows() -> None:
    quality = torch.tensor([0.5, 0.1, 0.5, 0.5, 0.0])
    free = torch.tensor([True, True, True, True, False])
    assert most_doubtful(quality, free, 0.5).tolist() == [True, True, False, False, False]
    assert not most_doubtful(quality, free, 0.0).any()
    assert most_doubtful(quality, free, 1.0).tolist() == free.tolist()
    assert not most_doubtful(quality, ~free & free, 1.0).any()


# Twenty rows called class 2, which is rare, look like class 0; each is of class 2 with 0.19.
FADING = [([0.81, 0.0, 0.19], 2)] * 20 + [([0.97, 0.02, 0.01], 0)] * 20


def test_a_rare_class_is_not_moved_away() -> None:
    found, observed = decided(FADING, 20)
    moved = found.labels != observed
    assert int(moved.sum()) == 5  # one row may be lost, 0.19 by 0.19
    assert found.action[:20].tolist().count("review") == 15


def test_a_class_may_lose_what_it_gains() -> None:
    found, observed = decided([([0.2, 0.0, 0.8], 0), *FADING], 21)
    assert int((found.labels != observed).sum()) == 1 + 9  # 1.8 by 0.19
    surest = [([0.95, 0.0, 0.05], 2), *FADING]
    found, observed = decided(surest, 21)
    assert found.labels[0] == 0


def test_a_common_class_gives_back_what_is_not_its_own() -> None:
    rows = [([0.9, 0.05, 0.05], 1)] * 40 + [([0.03, 0.95, 0.02], 1)] * 60
    found, observed = decided(rows, 40)
    assert int((found.labels != observed).sum()) == 40
