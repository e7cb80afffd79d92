"""No label moves before held-out rows show, several times, that predictions beat the labels."""

from collections.abc import Iterable
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
    SUREST,
    HoldoutCheck,
    NoHoldoutCheck,
    sureness,
    weigh,
)

NUM_CLASSES = 10
Rows = tuple[Tensor, Tensor, Tensor, Tensor]  # LID-gen, LID-dis, how sure both are, observed


def held_out_rows(
    predicted_right: float,
    observed_right: float,
    rows: int = 300,
    seed: int = 0,
    shared: float = SHARED_ERRORS,
) -> Rows:
    """Predictions and labels that are right in so many rows; errors are random other classes.

    Where LID-gen is right, so is LID-dis; where it is wrong, LID-dis shares some of its errors.
    Both are surer where they are right.
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
    sure = 0.3 + 0.3 * right + 0.4 * torch.rand(rows, generator=g)
    return gen, dis, sure, observed


def slow_weigh(
    gen: list[int], dis: list[int], sure: list[float], observed: list[int]
) -> tuple[float, float, float]:
    """Shares of right labels a and of right predictions b, and (b - a) in deviations, row by row.

    The variance is that of a weighted sum of the rows: how b - a changes if a row weighs more.
    """
    rows = len(observed)
    agree = [float(g == d) for g, d in zip(gen, dis, strict=True)]
    met = [float(g == label) for g, label in zip(gen, observed, strict=True)]
    surest = sorted(range(rows), key=lambda row: -sure[row])[: round(SUREST * rows)]

    def shares(weight: list[float]) -> tuple[float, float]:
        def mean(values: list[float], chosen: Iterable[int]) -> float:
            chosen = list(chosen)
            return sum(weight[i] * values[i] for i in chosen) / sum(weight[i] for i in chosen)

        def right(chosen: Iterable[int]) -> float:
            return max((mean(agree, chosen) - SHARED_ERRORS) / (1 - SHARED_ERRORS), SMALLEST)

        return mean(met, surest) / right(surest), right(range(rows))

    a, b = shares([1.0] * rows)
    variance, step = 0.0, 1e-6
    for row in range(rows):
        heavier = [1 + step * (row == i) for i in range(rows)]
        other_a, other_b = shares(heavier)
        variance += ((other_b - other_a - (b - a)) / step) ** 2
    return a, b, (b - a) / sqrt(variance)


@pytest.mark.parametrize(("predicted", "observed"), [(0.9, 0.6), (0.6, 0.6), (0.5, 0.8)])
def test_the_evidence_equals_a_loop_over_the_rows(predicted: float, observed: float) -> None:
    rows = held_out_rows(predicted, observed)
    evidence = weigh(*rows)
    a, b, deviations = slow_weigh(*(part.tolist() for part in rows))
    assert evidence.observed_right == pytest.approx(min(a, 1.0))
    assert evidence.predicted_right == pytest.approx(b)
    assert evidence.deviations == pytest.approx(deviations, rel=1e-3)


def test_hand_worked_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine rows, the surest first: the subnets agree in eight; of the surest, two are met."""
    monkeypatch.setattr(holdout_check, "SHARED_ERRORS", 0.4)
    monkeypatch.setattr(holdout_check, "SUREST", 1 / 3)
    sure = torch.linspace(0.95, 0.5, 9)
    gen = torch.tensor([0, 0, 1, 1, 1, 1, 0, 0, 0])
    dis = torch.tensor([0, 0, 1, 1, 1, 1, 0, 0, 2])
    observed = torch.zeros(9, dtype=torch.long)
    evidence = weigh(gen, dis, sure, observed)
    assert evidence.rows == 9
    assert evidence.agreement == pytest.approx(9 / 18)  # LID-gen meets five labels, LID-dis four
    # they predict 5, 4, 0 and 4, 4, 1 times the classes, so 36 of 81 pairs agree by chance
    assert evidence.predicted_right == pytest.approx((8 / 9 - 4 / 9) / (5 / 9))
    assert evidence.observed_right == pytest.approx(2 / 3)
    agrees, differs = (1 - 8 / 9) / (5 / 9) / 9, (0 - 8 / 9) / (5 / 9) / 9
    effects = [agrees - 1 / 9] * 2 + [agrees + 2 / 9] + [agrees] * 5 + [differs]
    deviation = sqrt(sum(effect**2 for effect in effects))
    assert evidence.deviations == pytest.approx((4 / 5 - 2 / 3) / deviation)


def test_only_the_order_of_confidence_counts() -> None:
    gen, dis, sure, observed = held_out_rows(0.8, 0.6)
    assert weigh(gen, dis, sure**9, observed) == weigh(gen, dis, sure, observed)


def test_both_subnets_must_be_sure() -> None:
    gen = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    dis = torch.tensor([[0.1, 0.9], [0.5, 0.5], [0.1, 0.9]])
    assert sureness(gen, dis).tolist() == pytest.approx([0.09, 0.3, 0.72])


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
    assert evidence.observed_right == pytest.approx(observed, abs=0.02)


@pytest.mark.parametrize("observed", [0.5, 0.6, 0.8])
def test_much_better_predictions_beat_the_labels_in_nearly_every_draw(observed: float) -> None:
    draws = [weigh(*held_out_rows(observed + 0.2, observed, seed=seed)) for seed in range(100)]
    assert sum(evidence.deviations >= MIN_DEVIATIONS for evidence in draws) >= 95


@pytest.mark.parametrize("observed", [0.4, 0.5, 0.6, 0.8, 1.0])
def test_worse_predictions_hardly_ever_beat_the_labels(observed: float) -> None:
    draws = [weigh(*held_out_rows(observed - 0.1, observed, seed=seed)) for seed in range(100)]
    assert sum(evidence.deviations >= MIN_DEVIATIONS for evidence in draws) <= 2


def test_subnets_that_err_independently_look_worse_than_they_are() -> None:
    """Each is also right where the other is wrong, which is the safe side."""
    g = torch.Generator().manual_seed(0)
    truth = torch.arange(20_000) % NUM_CLASSES

    def right_in(share: float) -> Tensor:
        off = torch.randint(1, NUM_CLASSES, truth.shape, generator=g)
        right = torch.rand(truth.shape, generator=g) < share
        return torch.where(right, truth, (truth + off) % NUM_CLASSES)

    evidence = weigh(right_in(0.8), right_in(0.8), torch.zeros(truth.shape), right_in(0.6))
    assert evidence.predicted_right < 0.6
    assert evidence.observed_right > 0.65


def test_labels_that_are_better_where_predictions_are_sure_look_better_than_they_are() -> None:
    """So do those of easy images. This, too, is the safe side."""
    gen, dis, sure, truth = held_out_rows(0.8, 1.0, rows=20_000)
    lucky = torch.rand(20_000, generator=torch.Generator().manual_seed(1)) < 0.5
    observed = torch.where((sure > 0.7) | lucky, truth, (truth + 1) % NUM_CLASSES)
    right = float((observed == truth).float().mean())
    assert weigh(gen, dis, sure, observed).observed_right > right + 0.1


@pytest.mark.parametrize("other", [0, 1])
def test_one_class_for_all_rows_is_not_taken_for_a_good_prediction(other: int) -> None:
    """Two collapsed subnets, on one class or on two; on one they agree everywhere."""
    observed = torch.arange(300) % NUM_CLASSES
    gen, dis = torch.zeros_like(observed), torch.full_like(observed, other)
    evidence = weigh(gen, dis, torch.zeros(300), observed)
    assert evidence.predicted_right == SMALLEST
    assert evidence.deviations < 0


def test_with_two_classes_subnets_agree_in_half_of_the_rows_by_chance() -> None:
    """Both are right in 80 % of the rows, each on its own; all labels are right."""
    g = torch.Generator().manual_seed(0)
    truth = torch.arange(20_000) % 2
    gen, dis = (truth ^ (torch.rand(20_000, generator=g) < 0.2).long() for _ in range(2))
    evidence = weigh(gen, dis, (gen == dis).double(), truth)
    assert evidence.predicted_right == pytest.approx((0.68 - 0.5) / 0.5, abs=0.03)


@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_are_no_evidence(rows: int) -> None:
    nothing = torch.zeros(rows, dtype=torch.long)
    evidence = weigh(nothing, nothing, torch.zeros(rows), nothing)
    assert (evidence.rows, evidence.deviations) == (rows, 0.0)


def test_perfect_agreement_is_finite() -> None:
    observed = torch.arange(50) % NUM_CLASSES
    evidence = weigh(observed, observed, torch.ones(50), observed)
    assert (evidence.predicted_right, evidence.observed_right) == pytest.approx((1.0, 1.0))
    assert evidence.deviations == pytest.approx(0.0, abs=1e-6)


def probabilities(predicted_right: float, observed_right: float) -> tuple[Tensor, Tensor, Tensor]:
    """Those of LID-gen and of LID-dis (m, c), and observed labels (m,)."""
    gen, dis, sure, observed = held_out_rows(predicted_right, observed_right)
    flat = torch.full((len(gen), NUM_CLASSES), 0.01)
    with_sureness = (flat.scatter(1, c[:, None], sure[:, None]) for c in (gen, dis))
    return (*with_sureness, observed)


GOOD, BAD = probabilities(0.95, 0.5), probabilities(0.5, 0.9)


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
    gen, dis, observed = GOOD
    expected = weigh(gen.argmax(1), dis.argmax(1), sureness(gen, dis), observed)
    assert check.figures() == asdict(expected) | {"passed": int(check.passed)}
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
