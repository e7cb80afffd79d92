import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colafier.core.lid import lid
from colafier.core.weights import position, split, view_scores

quick = settings(max_examples=60, deadline=None)
levels = st.floats(0, 1)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def slow_quantile(scores: list[float], level: float) -> float:
    """Linear between the two order statistics around (n - 1) * level."""
    ordered = sorted(scores)
    place = level * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def slow_weights(
    first: list[float], second: list[float], low: float, high: float
) -> list[tuple[float, float, float]]:
    """Eq. 3.9-3.15 for each row: quantiles of each view, then clean, hard and noisy weight."""
    of_view = []
    for scores in (first, second):
        q_low, q_high = slow_quantile(scores, low), slow_quantile(scores, high)
        of_view.append([min(max((q_high - s) / (q_high - q_low), 0), 1) for s in scores])
    return [
        (min(w_1, w_2), abs(w_1 - w_2), min(1 - w_1, 1 - w_2))
        for w_1, w_2 in zip(*of_view, strict=True)
    ]


@pytest.mark.parametrize("high", [0.05, 0.3, 0.5, 1.0])
def test_weights_equal_the_equations_row_by_row(high: float) -> None:
    first, second = 9 * draw(50), 9 * draw(50, seed=1)
    weights = split(position(first, first, 0.001, high), position(second, second, 0.001, high))
    expected = torch.tensor(slow_weights(first.tolist(), second.tolist(), 0.001, high))
    torch.testing.assert_close(torch.stack(weights, 1), expected, rtol=1e-3, atol=1e-4)


def test_position_by_hand() -> None:
    among = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    scores = torch.tensor([0.0, 1.0, 2.0, 4.0, 6.0])
    # the quantiles at 0 and .75 are 1 and 4
    expected = torch.tensor([4 / 3, 1, 2 / 3, 0, -2 / 3])
    torch.testing.assert_close(position(scores, among, 0.0, 0.75), expected)


def test_split_by_hand() -> None:
    clean, hard, noisy = split(torch.tensor([0.7, 1.5, -2.0]), torch.tensor([0.2, 0.9, 0.4]))
    torch.testing.assert_close(clean, torch.tensor([0.2, 0.9, 0.0]))
    torch.testing.assert_close(hard, torch.tensor([0.5, 0.1, 0.4]))
    torch.testing.assert_close(noisy, torch.tensor([0.3, 0.0, 0.6]))


@quick
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1))
def test_weights_sum_to_one_and_lie_between_zero_and_one(places: list[tuple[float, float]]) -> None:
    """The supplement's proof on the design of Eq. 3.13-3.15."""
    first, second = torch.tensor(places).T
    weights = torch.stack(split(first, second))
    torch.testing.assert_close(weights.sum(0), torch.ones(len(places)))
    assert ((weights >= 0) & (weights <= 1)).all()


@quick
@given(
    st.lists(st.sampled_from([0.5, 0.5000001, 1.0, 7.0, 2e7]), min_size=1, max_size=20),
    levels,
    levels,
)
def test_ties_never_break_a_weight(values: list[float], one: float, other: float) -> None:
    scores = torch.tensor(values)
    place = position(scores, scores, min(one, other), max(one, other))
    assert place.isfinite().all()
    weights = torch.stack(split(place, place.flip(0)))
    torch.testing.assert_close(weights.sum(0), torch.ones(len(values)))


def test_equal_scores_are_all_clean() -> None:
    scores = torch.full((6,), 3.0)
    clean, hard, noisy = split(*[position(scores, scores, 0.001, 0.5)] * 2)
    assert torch.equal(clean, torch.ones(6))
    assert torch.equal(hard + noisy, torch.zeros(6))


def test_equal_quantiles_part_the_scores_above_from_the_rest() -> None:
    scores = torch.tensor([1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0])
    place = position(scores, scores, 0.4, 0.6).clamp(0, 1)
    assert place.tolist() == [1, 1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("high", [0.5, 0.99, 1.0])
def test_a_broken_score_is_the_worst_and_breaks_no_other(broken: float, high: float) -> None:
    scores = torch.tensor([1.0, 2.0, 3.0, broken, 4.0])
    place = position(scores, scores, 0.001, high)
    assert place.isfinite().all()
    assert place.argmin() == 3
    assert place[3] <= 0


def test_a_broken_score_and_a_tie_stay_finite() -> None:
    scores = torch.tensor([1.0, 1.0, 1.0, math.inf, -math.inf])
    assert position(scores, scores, 0.5, 0.5).isfinite().all()


def test_position_takes_other_number_types() -> None:
    scores = draw(9).double()
    torch.testing.assert_close(
        position(scores, scores, 0.1, 0.9).float(),
        position(scores.float(), scores.float(), 0.1, 0.9),
    )


def test_the_wrong_order_of_the_proof_does_not_sum_to_one() -> None:
    """The supplement writes 1 - w_2 for w_1 > w_2; the formula in the main text is 1 - w_1."""
    _, _, noisy = split(torch.tensor([0.8]), torch.tensor([0.3]))
    torch.testing.assert_close(noisy, torch.tensor([0.2]))


def test_scores_of_each_view_come_from_its_own_rows() -> None:
    views = [draw(30, 4), draw(30, 4, seed=1)]
    for scores, z in zip(view_scores(views, 5), views, strict=True):
        assert torch.equal(scores, lid(z, 5))


@pytest.mark.parametrize("k", [5, torch.arange(30) % 4 + 2])
def test_joined_scores_come_from_all_rows(k: int | Tensor) -> None:
    views = [draw(30, 4), draw(30, 4, seed=1)]
    both = lid(torch.cat(views), k if isinstance(k, int) else torch.cat([k, k]))
    first, second = view_scores(views, k, joined=True)
    assert torch.equal(first, both[:30])
    assert torch.equal(second, both[30:])


def test_joined_with_itself_each_row_has_a_twin() -> None:
    z = draw(30, 4)
    first, second = view_scores([z, z], 10, joined=True)
    assert torch.equal(first, second)
    assert (first < view_scores([z], 10)[0]).all()
