import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colafier.core import lid as module
from colafier.core.lid import SMALLEST_DISTANCE, lid, reach

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def rows(n: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def slow_lid(row: list[float], others: list[list[float]], k: int) -> float:
    """Supplement 1.4, term by term: r_i is the distance to the i-th nearest neighbor."""
    r = sorted(max(math.dist(row, other), SMALLEST_DISTANCE) for other in others)[:k]
    r_max = max(r)
    total = 0.0
    for r_i in r:
        total += math.log(r_i / r_max)
    return -1 / (total / len(r))


def slow_scores(z: Tensor, k: int | list[int]) -> Tensor:
    points = z.tolist()
    of_row = [k] * len(points) if isinstance(k, int) else k
    return torch.tensor(
        [slow_lid(points[i], points[:i] + points[i + 1 :], of_row[i]) for i in range(len(points))]
    )


@pytest.mark.parametrize(("n", "d", "k"), [(30, 4, 5), (40, 16, 20), (64, 1, 10), (12, 3, 2)])
def test_equals_the_equation_row_by_row(n: int, d: int, k: int) -> None:
    z = rows(n, d)
    torch.testing.assert_close(lid(z, k), slow_scores(z, k), rtol=1e-4, atol=1e-4)


def test_a_case_worked_by_hand() -> None:
    z = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    # Row 0, k 2: r = 1, 3, so LID = -2 / (ln(1/3) + ln 1) = 2 / ln 3. Row 3: r = 4, 6.
    # Row 1: r = 1, 2. Row 2: r = 2, 3.
    expected = [2 / math.log(3), 2 / math.log(2), 2 / math.log(1.5), 2 / math.log(1.5)]
    torch.testing.assert_close(lid(z, 2), torch.tensor(expected))


def test_finds_the_dimension_of_a_cube() -> None:
    for dimension in (1, 2, 4):
        flat = torch.rand(1500, dimension, generator=torch.Generator().manual_seed(0))
        frame = torch.linalg.qr(rows(10, dimension, seed=1)).Q  # (10, dimension)
        z = flat @ frame.T  # lies in ten dimensions and has few
        inner = (flat - 0.5).abs().amax(1) < 0.25  # the border has fewer neighbors
        assert lid(z, 30)[inner].mean() == pytest.approx(dimension, rel=0.1)


@quick
@given(seeds, st.floats(0.01, 100))
def test_scaling_changes_nothing(seed: int, scale: float) -> None:
    z = rows(30, 6, seed)
    torch.testing.assert_close(lid(scale * z, 10), lid(z, 10), rtol=1e-3, atol=1e-4)


@quick
@given(seeds)
def test_rotation_and_translation_change_nothing(seed: int) -> None:
    z = rows(30, 6, seed)
    rotation = torch.linalg.qr(rows(6, 6, seed + 1)).Q
    moved = z @ rotation + rows(1, 6, seed + 2)
    torch.testing.assert_close(lid(moved, 10), lid(z, 10), rtol=1e-3, atol=1e-4)


@quick
@given(seeds)
def test_row_order_is_followed(seed: int) -> None:
    z = rows(30, 6, seed)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(lid(z[order], 10), lid(z, 10)[order])


def test_k_as_a_number_equals_k_for_each_row() -> None:
    z = rows(40, 8)
    assert torch.equal(lid(z, 7), lid(z, torch.full((40,), 7)))
    assert torch.equal(lid(z, 7), lid(z, torch.tensor(7)))


def test_k_may_differ_from_row_to_row() -> None:
    z = rows(40, 8)
    k = torch.arange(40) % 12 + 2
    torch.testing.assert_close(lid(z, k), slow_scores(z, k.tolist()), rtol=1e-4, atol=1e-4)


def test_a_k_beyond_the_rows_takes_all_of_them() -> None:
    z = rows(9, 3)
    assert torch.equal(lid(z, 20), lid(z, 8))
    torch.testing.assert_close(lid(z, 20), slow_scores(z, 8), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [0, 1])
def test_a_k_below_two_is_two(k: int) -> None:
    z = rows(9, 3)
    assert torch.equal(lid(z, k), lid(z, 2))


@pytest.mark.parametrize("n", [0, 1, 2])
def test_fewer_than_two_neighbors_give_ones(n: int) -> None:
    assert torch.equal(lid(rows(n, 3), 20), torch.ones(n))


def test_three_rows_are_enough() -> None:
    z = torch.tensor([[0.0], [1.0], [3.0]])
    expected = [2 / math.log(3), 2 / math.log(2), 2 / math.log(1.5)]
    torch.testing.assert_close(lid(z, 20), torch.tensor(expected))


@pytest.mark.parametrize("numbers", [1, 100, 1000])
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, numbers: int) -> None:
    z, reference, own = rows(23, 5), rows(50, 5, seed=1), torch.full((23,), -1)
    own[:10] = torch.arange(10)
    k = torch.arange(23) % 6 + 2
    whole = lid(z, k), lid(z, k, reference, own)
    monkeypatch.setattr(module, "CHUNK_NUMBERS", numbers)
    torch.testing.assert_close(lid(z, k), whole[0])
    torch.testing.assert_close(lid(z, k, reference, own), whole[1])


def test_against_a_reference_set() -> None:
    z, reference = rows(15, 5), rows(40, 5, seed=1)
    expected = [slow_lid(row, reference.tolist(), 10) for row in z.tolist()]
    scores = lid(z, 10, reference)
    torch.testing.assert_close(scores, torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_a_row_is_not_its_own_neighbor_in_a_reference_set() -> None:
    reference = rows(40, 5)
    some = torch.tensor([3, 17, 39])
    torch.testing.assert_close(lid(reference[some], 10, reference, some), lid(reference, 10)[some])


def test_rows_inside_and_outside_of_the_reference_set_go_together() -> None:
    reference, outside = rows(40, 5), rows(1, 5, seed=1)
    z = torch.cat([reference[:1], outside])
    scores = lid(z, 10, reference, torch.tensor([0, -1]))
    torch.testing.assert_close(scores[0], lid(reference, 10)[0])
    torch.testing.assert_close(scores[1:], lid(outside, 10, reference))


def test_equal_distances_give_a_large_positive_score() -> None:
    """Corners of a simplex; the authors' code gives -2e13, the cleanest score of all."""
    scores = lid(torch.eye(24), 20)
    assert (scores > 1e6).all()
    assert scores.isfinite().all()


def test_identical_rows_give_a_large_positive_score() -> None:
    scores = lid(torch.ones(30, 8), 20)
    assert (scores > 1e6).all()
    assert scores.isfinite().all()


def test_a_twin_is_at_distance_zero_exactly() -> None:
    """Matmul distances leave up to .02 between equal rows of this size, and LID up to 3."""
    z = torch.nn.functional.layer_norm(rows(128, 512), (512,))
    scores = lid(torch.cat([z, z]), 20)
    assert torch.equal(scores[:128], scores[128:])
    assert (scores < 0.8).all()
    torch.testing.assert_close(
        scores[:4], slow_scores(torch.cat([z, z]), 20)[:4], rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("radius", [1.0, 1e-1, 1e-2, 1e-3])
def test_tight_clusters_far_from_the_origin(radius: float) -> None:
    """Inside a tight cluster distances are smaller than the error of a float32 matmul."""
    centers = torch.nn.functional.layer_norm(rows(4, 64), (64,)) * 3
    z = centers.repeat(40, 1) + radius * rows(160, 64, seed=1) / 8
    torch.testing.assert_close(lid(z, 20), slow_scores(z, 20), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("whole", [True, False])
def test_a_broken_row_scores_highest_and_harms_no_other(value: float, whole: bool) -> None:
    z = rows(60, 8)
    before = lid(z[1:], 10)
    z[0, slice(None) if whole else 3] = value
    scores = lid(z, 10)
    torch.testing.assert_close(scores[1:], before, rtol=1e-4, atol=1e-4)
    assert scores.isfinite().all()
    assert scores[0] > 10 * scores[1:].max()


def test_two_broken_rows_are_not_twins() -> None:
    z = rows(60, 8)
    z[:2] = math.nan
    scores = lid(z, 10)
    assert (scores[:2] > scores[2:].max()).all()


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38, 1e-45])
@pytest.mark.parametrize("n", [1, 2, 3, 30])
def test_no_score_is_ever_broken(n: int, value: float) -> None:
    for part in (slice(0, 1), slice(0, n // 2), slice(0, n)):
        z = rows(n, 4)
        z[part] = value
        scores = lid(z, 20)
        assert scores.isfinite().all()
        assert (scores > 0).all()


@quick
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, 1e-30, 1e30]), min_size=2, max_size=2)))
def test_no_ties_or_scales_break_a_score(points: list[list[float]]) -> None:
    scores = lid(torch.tensor(points).reshape(-1, 2), 5)
    assert scores.isfinite().all()
    assert (scores > 0).all()


def test_scores_are_float32_without_gradient_for_any_input() -> None:
    z = rows(30, 8).requires_grad_()
    assert not lid(z, 5).requires_grad
    for dtype in (torch.float64, torch.bfloat16):
        assert lid(z.to(dtype), 5).dtype == torch.float32


def test_the_input_is_left_alone() -> None:
    z = rows(30, 8)
    z[0, 0] = math.nan
    before = z.clone()
    lid(z, 5)
    assert torch.equal(z.nan_to_num(), before.nan_to_num())


def test_reach_counts_the_rows_that_share_a_label() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1, 2, 2, 2])
    # 1.25 x 4 rows of class 0, 1 of class 1, 3 of class 2
    assert reach(labels, labels).tolist() == [5, 5, 5, 5, 1, 4, 4, 4]


def test_reach_takes_a_factor_and_other_rows() -> None:
    labels, others = torch.tensor([0, 1, 2]), torch.tensor([1, 1, 0, 1])
    assert reach(labels, others, 2.0).tolist() == [2, 6, 0]
