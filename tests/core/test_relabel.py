import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from colafier.core.lid import lid
from colafier.core.relabel import (
    Candidate,
    candidate,
    decide,
    difference,
    reliability,
    union_scores,
)
from colafier.core.subnets import LidDis
from colafier.nets import Backbone

quick = settings(max_examples=60, deadline=None)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def slow_quantile(scores: list[float], level: float) -> float:
    ordered = sorted(scores)
    place = level * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def test_difference_row_by_row() -> None:
    """Eq. 3.30-3.31: the sum over classes of |p_G - p_D|."""
    gen, dis = draw(9, 4).softmax(1), draw(9, 4, seed=1).softmax(1)
    expected = [
        sum(abs(g - d) for g, d in zip(gen_row, dis_row, strict=True))
        for gen_row, dis_row in zip(gen.tolist(), dis.tolist(), strict=True)
    ]
    torch.testing.assert_close(difference(gen, dis), torch.tensor(expected))


@quick
@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(-100, 100)), min_size=1, max_size=9))
def test_difference_lies_between_zero_and_two(logits: list[tuple[float, float]]) -> None:
    """The supplement's proof on the design of Eq. 3.36-3.37."""
    gen, dis = torch.tensor(logits).T[:, None].softmax(2)
    apart = difference(gen, dis)
    assert (apart >= 0).all()
    assert (apart <= 2 + 1e-5).all()


def test_difference_at_its_ends() -> None:
    one_hot = torch.eye(3)
    assert torch.equal(difference(one_hot, one_hot), torch.zeros(3))
    assert torch.equal(difference(one_hot, one_hot.flip(0)[[0, 2, 1]]), torch.tensor([2.0, 2, 2]))


def test_union_scores_are_lid_among_both_sets() -> None:
    """Eq. 3.5-3.8: each row's neighbors come from label-rows and prediction-rows together."""
    z_label, z_prediction = draw(12, 5), draw(12, 5, seed=1)
    points = z_label.tolist() + z_prediction.tolist()
    expected = []
    for i, row in enumerate(points):
        r = sorted(math.dist(row, other) for j, other in enumerate(points) if j != i)[:6]
        expected.append(-1 / (sum(math.log(r_j / r[-1]) for r_j in r) / 6))
    of_labels, of_predictions = union_scores(z_label, z_prediction, 6)
    torch.testing.assert_close(of_labels, torch.tensor(expected[:12]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(of_predictions, torch.tensor(expected[12:]), rtol=1e-4, atol=1e-4)


def test_union_scores_of_one_point_twice_are_those_of_both() -> None:
    """Where the prediction is the label both rows are scored at once; a k of its own is heeded."""
    z_label, z_prediction = draw(12, 5), draw(12, 5, seed=1)
    z_prediction[::2] = z_label[::2]
    each, prediction = torch.arange(12) % 5 + 2, torch.arange(12) % 4 + 3
    both, k = torch.cat([z_label, z_prediction]), torch.cat([each, prediction])
    torch.testing.assert_close(
        torch.cat(union_scores(z_label, z_prediction, each, prediction)), lid(both, k)
    )
    torch.testing.assert_close(torch.cat(union_scores(z_label, z_prediction, 6)), lid(both, 6))


def test_union_scores_take_k_in_any_form() -> None:
    z_label, z_prediction = draw(12, 5), draw(12, 5, seed=1)
    both = torch.cat([z_label, z_prediction])
    each, prediction = torch.arange(12) % 5 + 2, torch.arange(12) % 3 + 4
    six = torch.full((12,), 6)
    plain = union_scores(z_label, z_prediction, 6)
    torch.testing.assert_close(union_scores(z_label, z_prediction, six), plain)
    torch.testing.assert_close(union_scores(z_label, z_prediction, 6, 6), plain)
    torch.testing.assert_close(
        torch.cat(union_scores(z_label, z_prediction, each)), lid(both, torch.cat([each, each]))
    )
    torch.testing.assert_close(
        torch.cat(union_scores(z_label, z_prediction, each, prediction)),
        lid(both, torch.cat([each, prediction])),
    )
    torch.testing.assert_close(
        torch.cat(union_scores(z_label, z_prediction, 6, prediction)),
        lid(both, torch.cat([six, prediction])),
    )


def test_reliability_by_hand() -> None:
    place = torch.tensor([0.8, 0.8, 0.8, -1.0, 1.5, 1.5])
    apart = torch.tensor([0.0, 1.0, 2.0, 0.0, 0.0, 1.0])
    expected = torch.tensor([0.8, 0.4, 0.0, 0.0, 1.0, 0.75])
    torch.testing.assert_close(reliability(place, apart), expected)


@pytest.mark.parametrize("high", [0.05, 0.5, 1.0])
def test_candidate_row_by_row(high: float) -> None:
    """Eq. 3.32-3.37 for each row of one view."""
    of_label, of_prediction = 9 * draw(20).sigmoid(), 9 * draw(20, seed=1).sigmoid()
    label_apart, prediction_apart = 2 * draw(20, seed=2).sigmoid(), 2 * draw(20, seed=3).sigmoid()
    scores = of_label.tolist() + of_prediction.tolist()
    apart = label_apart.tolist() + prediction_apart.tolist()
    q_low, q_high = slow_quantile(scores, 0.001), slow_quantile(scores, high)
    expected = [
        min(1, max(0, (q_high - s) / (q_high - q_low) * (2 - a) / 2))
        for s, a in zip(scores, apart, strict=True)
    ]
    prediction = torch.arange(20) % 4
    got = candidate(
        (of_label, of_prediction), (label_apart, prediction_apart), prediction, 0.001, high
    )
    both = torch.cat([got.label_reliability, got.prediction_reliability])
    torch.testing.assert_close(both, torch.tensor(expected), rtol=1e-3, atol=1e-4)
    assert torch.equal(got.prediction, prediction)


def test_reliabilities_are_finite_for_ties_and_full_difference() -> None:
    scores = torch.tensor([1.0, 1.0, 2e7]), torch.tensor([1.0, 1.0, 1.0])
    apart = torch.full((3,), 2.0), torch.zeros(3)
    got = candidate(scores, apart, torch.zeros(3, dtype=torch.long), 0.001, 0.5)
    assert torch.equal(got.label_reliability, torch.zeros(3))
    assert torch.equal(got.prediction_reliability, torch.ones(3))


MOVES = {"prediction": 2, "label_reliability": 0.3, "prediction_reliability": 0.6}


def view(**change: float) -> Candidate:
    values = {**MOVES, **change}
    return Candidate(
        torch.tensor([int(values["prediction"])]),
        torch.tensor([values["label_reliability"]]),
        torch.tensor([values["prediction_reliability"]]),
    )


LABEL = torch.tensor([0])


def test_a_label_moves_if_all_conditions_hold() -> None:
    assert decide([view(), view()], LABEL).tolist() == [2]
    assert decide([view()], LABEL).tolist() == [2]


@pytest.mark.parametrize(
    "change",
    [
        {"label_reliability": 0.7},
        {"label_reliability": 0.6},  # equal is not more
        {"prediction_reliability": 0.05, "label_reliability": 0.0},
        {"prediction_reliability": 0.1, "label_reliability": 0.0},  # equal to the threshold
        {"prediction": 1},
        {"prediction_reliability": math.nan},
        {"label_reliability": math.nan},
    ],
    ids=str,
)
@pytest.mark.parametrize("which", [0, 1])
def test_a_label_stays_if_one_condition_fails_in_one_view(
    change: dict[str, float], which: int
) -> None:
    views = [view(), view()]
    views[which] = view(**change)
    assert decide(views, LABEL).tolist() == [0]


def test_the_threshold_is_a_setting() -> None:
    views = [view(), view()]
    assert decide(views, LABEL, threshold=0.59).tolist() == [2]
    assert decide(views, LABEL, threshold=0.6).tolist() == [0]


def test_decide_row_by_row() -> None:
    """Eq. 3.38-3.40 on random rows; about a tenth of them move."""
    generator = torch.Generator().manual_seed(0)
    n = 400
    views = [
        Candidate(
            torch.randint(2, (n,), generator=generator),
            torch.rand(n, generator=generator) - 0.2,
            torch.rand(n, generator=generator),
        )
        for _ in range(2)
    ]
    labels = torch.full((n,), 7)
    expected = []
    for i in range(n):
        condition = (
            views[0].prediction_reliability[i] > views[0].label_reliability[i]
            and views[1].prediction_reliability[i] > views[1].label_reliability[i]
            and views[0].prediction_reliability[i] > 0.1
            and views[1].prediction_reliability[i] > 0.1
            and views[0].prediction[i] == views[1].prediction[i]
        )
        expected.append(int(views[0].prediction[i]) if condition else int(labels[i]))
    assert decide(views, labels).tolist() == expected
    assert 0.05 * n < sum(label != 7 for label in expected) < 0.95 * n


def moved_share(high: float, agreement: float = 0.55) -> float:
    """Share of the disagreeing rows whose label moves, for label-rows from a real LID-dis."""
    torch.manual_seed(0)
    n, classes, width = 120, 10, 64
    dis = LidDis(Backbone(nn.Identity(), width, "float32"), classes)
    labels = torch.arange(n) % classes
    agrees = torch.arange(n) < agreement * n
    prediction = torch.where(agrees, labels, (labels + 1) % classes)
    views = []
    for _ in range(2):
        features = torch.randn(n, width)
        with torch.no_grad():
            z_label, z_prediction = (
                dis.judge(features, labels)[0],
                dis.judge(features, prediction)[0],
            )
        # The subnets agree on the prediction, not at all on the label: only LID can hold it back.
        apart = torch.full((n,), 2.0), torch.zeros(n)
        views.append(candidate(union_scores(z_label, z_prediction), apart, prediction, 0.001, high))
    moved = decide(views, labels) != labels
    assert not moved[agrees].any()
    return float(moved[~agrees].float().mean())


@pytest.mark.parametrize("high", [0.05, 0.2, 0.4, 0.5])
def test_no_label_moves_while_the_quantile_is_below_the_agreement(high: float) -> None:
    """Facts 3.1: with hard predictions the upper quantile decides whether any label moves."""
    assert moved_share(high) == 0


def test_labels_move_once_the_quantile_passes_the_agreement() -> None:
    assert moved_share(0.6) < moved_share(0.8) < moved_share(1.0)
    assert moved_share(1.0) > 0.5


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_batches_stay_finite(n: int) -> None:
    scores = union_scores(draw(n, 4), draw(n, 4, seed=1))
    apart = torch.ones(n), torch.ones(n)
    got = candidate(scores, apart, torch.zeros(n, dtype=torch.long), 0.001, 1.0)
    both = torch.cat([got.label_reliability, got.prediction_reliability])
    assert ((both >= 0) & (both <= 1)).all()
