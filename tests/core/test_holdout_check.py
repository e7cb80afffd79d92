"""Labels move only where held-out observed labels support the predictions."""

from dataclasses import asdict
from math import inf

import pytest
import torch
from torch import Tensor

from colafier.core.holdout_check import (
    MIN_ROWS,
    TO_MOVE,
    Evidence,
    HoldoutCheck,
    NoHoldoutCheck,
    settle,
    weigh,
)

NUM_CLASSES = 10
HELD, TRAINED = 500, 4000

Rows = tuple[Tensor, Tensor, Tensor]


def out_of_fold(right_labels: float, level: float, slope: float = 1.0, seed: int = 0) -> Rows:
    """Probabilities, observed labels and truth; predictions are right with b(c)."""
    g = torch.Generator().manual_seed(seed)
    m = HELD + TRAINED
    truth = torch.randint(NUM_CLASSES, (m,), generator=g)

    def corrupt(right: Tensor) -> Tensor:
        step = torch.randint(1, NUM_CLASSES, (m,), generator=g)
        return torch.where(torch.rand(m, generator=g) < right, truth, (truth + step) % NUM_CLASSES)

    confidence = 0.2 + 0.79 * torch.rand(m, generator=g)
    prediction = corrupt((level + slope * confidence.logit()).sigmoid())
    observed = corrupt(torch.full((m,), right_labels))
    others = (1 - confidence) / (NUM_CLASSES - 1)
    probabilities = others[:, None].repeat(1, NUM_CLASSES)
    probabilities[torch.arange(m), prediction] = confidence
    return probabilities, observed, truth


def evidence_of(rows: Rows, held: int = HELD) -> Evidence:
    probabilities, observed, _ = rows
    return weigh(probabilities, observed, torch.arange(len(observed)) < held)


def gain(rows: Rows, evidence: Evidence) -> float:
    """How much label accuracy changes where predictions replace observed labels."""
    probabilities, observed, truth = rows
    labels = settle(evidence, probabilities, observed, observed)
    return float((labels == truth).float().mean() - (observed == truth).float().mean())


@pytest.mark.parametrize("right_labels", [0.4, 0.6, 0.8])
def test_good_predictions_move_labels(right_labels: float) -> None:
    rows = out_of_fold(right_labels, level=1.5)
    evidence = evidence_of(rows)
    assert evidence.observed_right == pytest.approx(right_labels, abs=0.06)
    assert gain(rows, evidence) > 0.5 * (0.9 - right_labels)


def test_a_classifier_that_predicts_at_random_moves_nothing() -> None:
    rows = out_of_fold(right_labels=0.9, level=-2.2, slope=0.0)
    assert gain(rows, evidence_of(rows)) == 0


def test_only_the_confident_part_of_a_weak_classifier_moves_labels() -> None:
    rows = out_of_fold(right_labels=0.5, level=-1.0)
    evidence = evidence_of(rows)
    assert 0.6 < evidence.min_confidence(TO_MOVE) < 1
    assert gain(rows, evidence) > 0


@pytest.mark.parametrize("level", [-3.0, -2.0, -1.0, 0.0, 2.0])
@pytest.mark.parametrize("right_labels", [0.3, 0.6, 0.9, 1.0])
def test_labels_never_get_worse(right_labels: float, level: float) -> None:
    """Whether the classifier is worse than the labels or better, in every draw of the rows."""
    for seed in range(5):
        rows = out_of_fold(right_labels, level, seed=seed)
        assert gain(rows, evidence_of(rows)) > -0.005


def test_memorized_rows_do_not_hide_what_the_held_out_rows_show() -> None:
    """The classifier meets the observed labels of trained rows, right or wrong."""
    probabilities, observed, truth = out_of_fold(right_labels=0.7, level=0.5)
    memorized = torch.nn.functional.one_hot(observed, NUM_CLASSES) * 0.9 + 0.01
    held = torch.arange(len(observed)) < HELD
    probabilities = torch.where(held[:, None], probabilities, memorized)
    evidence = evidence_of((probabilities, observed, truth))
    assert evidence.observed_right == pytest.approx(0.7, abs=0.1)
    assert torch.equal(settle(evidence, probabilities, observed, observed)[~held], observed[~held])


def test_too_few_rows_are_no_evidence() -> None:
    rows = out_of_fold(0.6, level=3.0)
    assert evidence_of(rows, MIN_ROWS - 1).min_confidence(TO_MOVE) == inf
    assert evidence_of(rows, 4 * MIN_ROWS).min_confidence(TO_MOVE) < 1


@pytest.mark.parametrize("meets", [0, 1])
def test_one_confidence_for_all_is_finite(meets: int) -> None:
    probabilities = torch.full((200, 2), 0.5)
    observed = torch.full((200,), 1 - meets)
    evidence = weigh(probabilities, observed, torch.arange(200) < 100)
    assert evidence.agreement == meets
    assert torch.equal(settle(evidence, probabilities, observed, observed), observed)


def test_moved_labels_stay_down_to_a_lower_confidence_than_others_need_to_move() -> None:
    evidence = Evidence(rows=500, agreement=0.5, observed_right=0.6, level=0.0, slope=1.0)
    to_stay, to_move = evidence.min_confidence(1.0), evidence.min_confidence(TO_MOVE)
    assert to_stay == pytest.approx(0.6)  # b(c) = c, as good as a label that is right with 0.6
    between = (to_stay + to_move) / 2
    probabilities = torch.tensor([[between, 1 - between], [0.55, 0.45], [0.99, 0.01]])
    observed, labels = torch.tensor([1, 1, 1]), torch.tensor([0, 0, 1])
    assert settle(evidence, probabilities, observed, labels).tolist() == [0, 1, 0]
    assert settle(evidence, probabilities, observed, observed).tolist() == [1, 1, 0]


def test_no_evidence_keeps_every_observed_label() -> None:
    probabilities, observed, _ = out_of_fold(0.6, level=3.0)
    moved = (observed + 1) % NUM_CLASSES
    assert torch.equal(settle(Evidence(10), probabilities, observed, moved), observed)


def test_the_check_admits_only_moves_to_the_allowed_class() -> None:
    labels, proposed, allowed = (torch.tensor(row) for row in ([0, 0, 0], [1, 1, 0], [1, 2, 2]))
    assert HoldoutCheck().admit(labels, proposed, allowed).tolist() == [1, 0, 0]
    assert NoHoldoutCheck().admit(labels, proposed, allowed).tolist() == [1, 1, 0]


def test_the_check_weighs_rows_with_a_label_and_reports_the_evidence() -> None:
    probabilities, observed, _ = out_of_fold(0.6, level=1.5)
    held = torch.arange(len(observed)) < HELD
    original = observed.clone()
    original[::7] = -1
    known = original >= 0
    labels, figures = HoldoutCheck().settle(probabilities, observed, observed, original, held)
    evidence = weigh(probabilities[known], observed[known], held[known])
    assert torch.equal(labels, settle(evidence, probabilities, observed, observed))
    assert figures == asdict(evidence)
    assert figures["rows"] == int((held & known).sum())


def test_without_the_check_labels_stay_what_training_made_them() -> None:
    probabilities, observed, _ = out_of_fold(0.6, level=1.5)
    moved = (observed + 1) % NUM_CLASSES
    none_held = torch.zeros_like(observed, dtype=torch.bool)
    labels, figures = NoHoldoutCheck().settle(probabilities, observed, moved, observed, none_held)
    assert torch.equal(labels, moved)
    assert figures == {}


@pytest.mark.parametrize(("n", "held"), [(100, 20), (1000, 200), (2000, 300), (10_000, 500)])
def test_how_many_rows_are_held_out(n: int, held: int) -> None:
    assert round(HoldoutCheck().share(n) * n) == held
    assert NoHoldoutCheck().share(n) == 0
    assert round(HoldoutCheck().share(10**6) * 10**6) == 2000
