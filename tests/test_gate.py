"""The gate lets labels move only where held-out given labels bear the guesses out."""

from math import inf

import pytest
import torch
from torch import Tensor

from colafier import gate
from colafier.gate import TO_MOVE, Evidence, weigh

NUM_CLASSES = 10


def witnesses(
    m: int, right_labels: float, best_guess: float, worst_guess: float, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Guesses whose accuracy rises with their confidence, given labels, and the truth."""
    g = torch.Generator().manual_seed(seed)
    truth = torch.randint(NUM_CLASSES, (m,), generator=g)

    def corrupt(right: Tensor) -> Tensor:
        step = torch.randint(1, NUM_CLASSES, (m,), generator=g)
        return torch.where(torch.rand(m, generator=g) < right, truth, (truth + step) % NUM_CLASSES)

    confidence = torch.linspace(0.3, 0.99, m)
    guess = corrupt(torch.linspace(worst_guess, best_guess, m))
    given = corrupt(torch.full((m,), right_labels))
    probabilities = (
        torch.full((m, NUM_CLASSES), 0.0) + ((1 - confidence) / (NUM_CLASSES - 1))[:, None]
    )
    probabilities[torch.arange(m), guess] = confidence
    return probabilities, given, truth


def gain(probabilities: Tensor, given: Tensor, truth: Tensor, evidence: Evidence) -> float:
    """How much label accuracy changes if the gate's guesses replace the given labels."""
    confidence, guess = probabilities.max(1)
    labels = torch.where(confidence >= evidence.least_confidence(TO_MOVE), guess, given)
    return float((labels == truth).float().mean() - (given == truth).float().mean())


def test_good_guesses_open_the_gate() -> None:
    probabilities, given, truth = witnesses(1000, right_labels=0.6, best_guess=1.0, worst_guess=0.6)
    evidence = weigh(probabilities, given)
    assert evidence.given_right == pytest.approx(0.6, abs=0.06)
    assert gain(probabilities, given, truth, evidence) > 0.1


def test_a_classifier_that_guesses_at_random_moves_nothing() -> None:
    probabilities, given, _ = witnesses(1000, right_labels=0.9, best_guess=0.1, worst_guess=0.1)
    assert weigh(probabilities, given).least_confidence(TO_MOVE) == inf


def test_where_sure_guesses_are_no_better_than_labels_these_stay() -> None:
    probabilities, given, truth = witnesses(1000, right_labels=0.9, best_guess=0.95, worst_guess=0)
    evidence = weigh(probabilities, given)
    assert gain(probabilities, given, truth, evidence) > -0.01


def test_only_the_confident_part_of_a_weak_classifier_moves_labels() -> None:
    probabilities, given, truth = witnesses(2000, right_labels=0.5, best_guess=1.0, worst_guess=0.1)
    evidence = weigh(probabilities, given)
    assert 0.5 < evidence.least_confidence(TO_MOVE) < 1
    assert gain(probabilities, given, truth, evidence) > 0


@pytest.mark.parametrize("worst_guess", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("right_labels", [0.4, 0.6, 0.8, 0.95])
def test_labels_get_no_worse_if_the_surest_guesses_are_right(
    right_labels: float, worst_guess: float
) -> None:
    """That the surest guesses are nearly all right is what the gate takes for granted."""
    gains = []
    for seed in range(20):
        held = witnesses(500, right_labels, 1.0, worst_guess, seed)
        fresh = witnesses(5000, right_labels, 1.0, worst_guess, seed + 100)
        gains.append(gain(*fresh, weigh(held[0], held[1])))
    assert min(gains) > -0.01


def test_clean_labels_stay() -> None:
    probabilities, given, truth = witnesses(500, right_labels=1.0, best_guess=1.0, worst_guess=0.7)
    assert gain(probabilities, given, truth, weigh(probabilities, given)) == 0


def test_too_few_rows_are_no_evidence() -> None:
    probabilities, given, _ = witnesses(gate.FEWEST_ROWS - 1, 0.6, 1.0, 1.0)
    assert weigh(probabilities, given).least_confidence(TO_MOVE) == inf


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_one_confidence_and_constant_agreement_are_finite(share: float) -> None:
    probabilities = torch.full((50, 2), 0.5)
    given = torch.full((50,), int(share == 0))
    evidence = weigh(probabilities, given)
    assert evidence.agreement == pytest.approx(share)
    assert evidence.least_confidence(TO_MOVE) == inf or share == 1
