"""No label moves before held-out rows show, several times, that predictions beat the labels."""

from dataclasses import asdict
from math import sqrt

import pytest
import torch
from torch import Tensor

from colafier.core import holdout_check
from colafier.core.holdout_check import (
    IN_A_ROW,
    MIN_DEVIATIONS,
    SHARED_ERRORS,
    SMALLEST,
    HoldoutCheck,
    NoHoldoutCheck,
    weigh,
)

NUM_CLASSES = 10
Rows = tuple[Tensor, Tensor, Tensor]  # predictions of LID-gen and of LID-dis, observed labels


def held_out_rows(
    predicted_right: float,
    observed_right: float,
    rows: int = 300,
    seed: int = 0,
    shared: float = SHARED_ERRORS,
) -> Rows:
    """Predictions and labels that are right in so many rows; errors are random other classes.

    Where LID-gen is right, so is LID-dis; where it is wrong, LID-dis shares some of its errors.
    """
    g = torch.Generator().manual_seed(seed)
    truth = torch.randint(NUM_CLASSES, (rows,), generator=g)

    def chance(share: float) -> Tensor:
        return torch.rand(rows, generator=g) < share

    def off() -> Tensor:
        return torch.randint(1, NUM_CLASSES, (rows,), generator=g)

    error = off()  # how far a wrong prediction is from the truth
    another = (error - 1 + torch.randint(1, NUM_CLASSES - 1, (rows,), generator=g)) % 9 + 1
    right = chance(predicted_right)
    gen = torch.where(right, truth, (truth + error) % NUM_CLASSES)
    dis = torch.where(right | chance(shared), gen, (truth + another) % NUM_CLASSES)
    observed = torch.where(chance(observed_right), truth, (truth + off()) % NUM_CLASSES)
    return gen, dis, observed


def slow_weigh(gen: list[int], dis: list[int], observed: list[int]) -> tuple[float, float, float]:
    """Shares of right labels a and of right predictions b, and (b - a) in deviations, row by row.

    The variance is that of sample means by the delta method, with the derivatives of b - a by
    small differences.
    """
    rows = len(observed)
    agree = [float(g == d) for g, d in zip(gen, dis, strict=True)]
    met = [((g == y) + (d == y)) / 2 for g, d, y in zip(gen, dis, observed, strict=True)]

    def shares(agreed: float, meets: float) -> tuple[float, float]:
        b = max((agreed - SHARED_ERRORS) / (1 - SHARED_ERRORS), SMALLEST)
        return meets / b, b

    means = sum(agree) / rows, sum(met) / rows
    a, b = shares(*means)

    def difference(agreed: float, meets: float) -> float:
        a, b = shares(agreed, meets)
        return b - a

    step = 1e-6
    by_agreed = (difference(means[0] + step, means[1]) - difference(*means)) / step
    by_met = (difference(means[0], means[1] + step) - difference(*means)) / step
    variance = 0.0
    for one, other in zip(agree, met, strict=True):
        effect = by_agreed * (one - means[0]) + by_met * (other - means[1])
        variance += effect**2 / (rows - 1)
    return a, b, (b - a) / sqrt(variance / rows)


@pytest.mark.parametrize(("predicted", "observed"), [(0.9, 0.6), (0.6, 0.6), (0.5, 0.8)])
def test_the_evidence_equals_a_loop_over_the_rows(predicted: float, observed: float) -> None:
    rows = held_out_rows(predicted, observed)
    evidence = weigh(*rows)
    a, b, deviations = slow_weigh(*(part.tolist() for part in rows))
    assert evidence.observed_right == pytest.approx(min(a, 1.0))
    assert evidence.predicted_right == pytest.approx(b)
    assert evidence.deviations == pytest.approx(deviations, rel=1e-3)


def test_hand_worked_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows: the subnets agree in eight; LID-gen meets six labels, LID-dis four."""
    monkeypatch.setattr(holdout_check, "SHARED_ERRORS", 0.2)
    observed = torch.zeros(10, dtype=torch.long)
    gen = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 0, 0])
    dis = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 2])
    evidence = weigh(gen, dis, observed)
    assert evidence.rows == 10
    assert evidence.agreement == pytest.approx(0.5)  # of 20 predictions, 10 meet a label
    assert evidence.predicted_right == pytest.approx(0.75)  # (.8 - .2) / .8
    assert evidence.observed_right == pytest.approx(2 / 3)  # .5 / .75
    # Effects of a row on b - a: agreeing 1.25 (1 + (2/3) / .75) = 85/36, a met label 1/.75 = 4/3.
    # Four rows have 85/36 - 4/3 = 37/36, four have 85/36, two (half met) have -2/3 = -24/36.
    effects = [37 / 36] * 4 + [85 / 36] * 4 + [-24 / 36] * 2
    mean = sum(effects) / 10
    deviation = sqrt(sum((effect - mean) ** 2 for effect in effects) / 9 / 10)
    assert evidence.deviations == pytest.approx((0.75 - 2 / 3) / deviation)


def test_the_deviation_is_that_of_many_draws() -> None:
    """The difference b - a of 300 rows scatters as much as the evidence of one draw claims."""
    draws = [weigh(*held_out_rows(0.8, 0.6, seed=seed)) for seed in range(300)]
    differences = torch.tensor([e.predicted_right - e.observed_right for e in draws])
    claimed = torch.tensor([(e.predicted_right - e.observed_right) / e.deviations for e in draws])
    assert float(differences.std()) == pytest.approx(float(claimed.mean()), rel=0.15)


@pytest.mark.parametrize("predicted", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("observed", [0.4, 0.6, 0.8])
def test_shares_of_right_predictions_and_labels_are_found(
    predicted: float, observed: float
) -> None:
    evidence = weigh(*held_out_rows(predicted, observed, rows=20_000))
    assert evidence.predicted_right == pytest.approx(predicted, abs=0.02)
    # some wrong predictions meet a wrong label: a is rather too high, never too low
    assert observed - 0.02 < evidence.observed_right < observed + 0.15


@pytest.mark.parametrize("observed", [0.5, 0.6, 0.8])
def test_much_better_predictions_beat_the_labels_in_nearly_every_draw(observed: float) -> None:
    draws = [weigh(*held_out_rows(observed + 0.2, observed, seed=seed)) for seed in range(100)]
    assert sum(evidence.deviations >= MIN_DEVIATIONS for evidence in draws) >= 95


@pytest.mark.parametrize("observed", [0.4, 0.6, 0.8, 1.0])
def test_worse_predictions_hardly_ever_beat_the_labels(observed: float) -> None:
    draws = [weigh(*held_out_rows(observed - 0.1, observed, seed=seed)) for seed in range(100)]
    assert sum(evidence.deviations >= MIN_DEVIATIONS for evidence in draws) <= 2


def test_subnets_that_err_independently_look_worse_than_they_are() -> None:
    """Each is also right where the other is wrong. Both errors are on the safe side."""
    g = torch.Generator().manual_seed(0)
    truth = torch.arange(20_000) % NUM_CLASSES

    def right_in(share: float) -> Tensor:
        off = torch.randint(1, NUM_CLASSES, truth.shape, generator=g)
        right = torch.rand(truth.shape, generator=g) < share
        return torch.where(right, truth, (truth + off) % NUM_CLASSES)

    evidence = weigh(right_in(0.8), right_in(0.8), right_in(0.6))
    assert evidence.predicted_right < 0.75
    assert evidence.observed_right > 0.65


def test_one_class_for_all_rows_is_not_taken_for_a_good_prediction() -> None:
    """Two collapsed subnets agree everywhere, but meet the labels of one class only."""
    observed = torch.arange(300) % NUM_CLASSES
    evidence = weigh(torch.zeros_like(observed), torch.ones_like(observed), observed)
    assert evidence.predicted_right == SMALLEST
    assert evidence.deviations < 0


@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_are_no_evidence(rows: int) -> None:
    nothing = torch.zeros(rows, dtype=torch.long)
    evidence = weigh(nothing, nothing, nothing)
    assert (evidence.rows, evidence.deviations) == (rows, 0.0)


def test_perfect_agreement_is_finite() -> None:
    observed = torch.arange(50) % NUM_CLASSES
    evidence = weigh(observed, observed, observed)
    assert (evidence.predicted_right, evidence.observed_right) == pytest.approx((1.0, 1.0))
    assert evidence.deviations == pytest.approx(0.0, abs=1e-6)


GOOD, BAD = held_out_rows(0.95, 0.5), held_out_rows(0.5, 0.9)


def test_labels_may_move_after_good_evidence_in_a_row() -> None:
    check = HoldoutCheck()
    for _ in range(IN_A_ROW - 1):
        check.look(*GOOD)
        assert not check.passed
    check.look(*BAD)
    for _ in range(IN_A_ROW):  # it starts to count again
        assert not check.passed
        check.look(*GOOD)
    assert check.passed


def test_the_state_is_saved_with_the_method() -> None:
    check, loaded = HoldoutCheck(), HoldoutCheck()
    for _ in range(IN_A_ROW):
        loaded.load_state_dict(check.state_dict())
        assert loaded.passed == check.passed
        assert loaded.figures() == check.figures()
        for some in (check, loaded):
            some.look(*GOOD)
        assert loaded.passed == check.passed
    assert loaded.passed
    assert loaded.share(1000) == 0


def test_the_figures_are_those_of_the_last_look() -> None:
    check = HoldoutCheck()
    assert check.figures()["rows"] == 0
    check.look(*BAD)
    check.look(*GOOD)
    assert check.figures() == asdict(weigh(*GOOD)) | {"passed": int(check.passed)}
    assert NoHoldoutCheck().figures() == {}


def test_without_the_check_labels_may_always_move() -> None:
    check = NoHoldoutCheck()
    check.look(*BAD)
    assert check.passed
    assert check.ended


def test_a_check_that_ends_without_evidence_holds_no_rows_out_and_keeps_the_labels() -> None:
    check, loaded = HoldoutCheck(), HoldoutCheck()
    check.look(*BAD)
    assert not check.ended
    check.end()
    loaded.load_state_dict(check.state_dict())
    for some in (check, loaded):
        assert some.ended
        assert not some.passed
        assert some.share(1000) == 0


@pytest.mark.parametrize(("n", "held"), [(100, 20), (1000, 200), (2000, 300), (10_000, 500)])
def test_how_many_rows_are_held_out(n: int, held: int) -> None:
    assert round(HoldoutCheck().share(n) * n) == held
    assert NoHoldoutCheck().share(n) == 0
    assert round(HoldoutCheck().share(10**6) * 10**6) == 2000
