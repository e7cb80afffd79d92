import pytest
import torch
from torch import Tensor

from colafier.core.mixing import (
    Mixed,
    cutmix,
    drawn_views,
    mix,
    mixed_labels,
    mixup,
)


def numbered_images(b: int, channels: int, height: int, width: int) -> Tensor:
    """Every pixel holds a number of its own, so that it is known where a pixel came from."""
    return torch.arange(b * channels * height * width).float().view(b, channels, height, width)


@pytest.mark.parametrize("shape", [(6, 3, 8, 8), (5, 1, 7, 12), (2, 3, 32, 32), (1, 1, 4, 4)])
@pytest.mark.parametrize("alpha", [0.3, 1, 5.0])
def test_cutmix_pixel_by_pixel(shape: tuple[int, int, int, int], alpha: float) -> None:
    """Eq. 3.21: M v_i + (1 - M) v_r(i), with the same M for all rows and channels."""
    torch.manual_seed(0)
    x = numbered_images(*shape)
    b, _, height, width = shape
    for _ in range(10):
        mixed = cutmix(x, alpha)
        assert sorted(mixed.partner.tolist()) == list(range(b))
        foreign = set()
        for i in range(b):
            for place in torch.cartesian_prod(*(torch.arange(size) for size in shape[1:])).tolist():
                pixel = mixed.x[i][tuple(place)]
                if pixel != x[i][tuple(place)]:
                    assert pixel == x[mixed.partner[i]][tuple(place)]
                    foreign.add((place[1], place[2]))
            if shape[2] == 32:
                break  # one row of the large images is enough
        if (mixed.partner != torch.arange(b)).all():
            assert mixed.keep == pytest.approx(1 - len(foreign) / (height * width))
        assert is_rectangle(foreign)


def is_rectangle(places: set[tuple[int, int]]) -> bool:
    if not places:
        return True
    ys, xs = {y for y, _ in places}, {x for _, x in places}
    whole = len(ys) == max(ys) - min(ys) + 1 and len(xs) == max(xs) - min(xs) + 1
    return whole and len(places) == len(ys) * len(xs)


def test_keep_is_the_exact_share_of_own_pixels() -> None:
    """One image against its negative: what is left of the first is counted."""
    torch.manual_seed(1)
    x = torch.stack([torch.zeros(1, 16, 16), torch.ones(1, 16, 16)])
    shares = []
    while len(shares) < 20:
        mixed = cutmix(x, 1.0)
        if mixed.partner.tolist() == [1, 0]:
            assert float(1 - mixed.x[0].mean()) == pytest.approx(mixed.keep)
            assert float(mixed.x[1].mean()) == pytest.approx(mixed.keep)
            shares.append(mixed.keep)
    assert len(set(shares)) > 5


def test_cutmix_keeps_about_what_clipped_boxes_keep() -> None:
    """Facts, row 39: the mean of lambda after clipping is .69, for alpha 1 and 5."""
    torch.manual_seed(0)
    x = torch.zeros(1, 1, 32, 32)
    for alpha in (1.0, 5.0):
        keeps = torch.tensor([cutmix(x, alpha).keep for _ in range(1500)])
        assert keeps.mean() == pytest.approx(0.69, abs=0.03)
        assert (keeps >= 0).all()
        assert (keeps <= 1).all()


def test_mixup_row_by_row() -> None:
    torch.manual_seed(0)
    x = torch.randn(7, 5)
    for _ in range(10):
        mixed = mixup(x, 1.0)
        assert 0.5 <= mixed.keep <= 1
        for i, partner in enumerate(mixed.partner.tolist()):
            expected = mixed.keep * x[i] + (1 - mixed.keep) * x[partner]
            torch.testing.assert_close(mixed.x[i], expected)


def test_mixed_labels_row_by_row() -> None:
    """Eq. 3.22: lambda y_i + (1 - lambda) y_r(i)."""
    labels = torch.tensor([0, 1, 2, 2])
    mixed = Mixed(torch.zeros(4, 3), torch.tensor([1, 2, 3, 0]), 0.7)
    expected = torch.tensor([[0.7, 0.3, 0, 0], [0, 0.7, 0.3, 0], [0, 0, 1, 0], [0.3, 0, 0.7, 0]])
    got = mixed_labels(labels, mixed, 4)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(got.sum(1), torch.ones(4))


def test_images_are_cut_and_vectors_are_blended() -> None:
    torch.manual_seed(0)
    images, vectors = numbered_images(4, 1, 8, 8), torch.randn(4, 8)
    assert mix(images, 1.0).x.frac().eq(0).all()  # whole numbers: no pixel is a blend
    mixed = mix(vectors, 1.0)
    expected = mixed.keep * vectors + (1 - mixed.keep) * vectors[mixed.partner]
    torch.testing.assert_close(mixed.x, expected)


def test_the_input_is_left_alone() -> None:
    torch.manual_seed(0)
    for x in (numbered_images(4, 1, 8, 8), torch.randn(4, 8)):
        before = x.clone()
        for _ in range(5):
            mix(x, 1.0)
        assert torch.equal(x, before)


def test_partners_and_shares_are_drawn_anew() -> None:
    torch.manual_seed(0)
    x = torch.randn(20, 8)
    first, second = mix(x, 1.0), mix(x, 1.0)
    assert first.keep != second.keep
    assert not torch.equal(first.partner, second.partner)


def test_alpha_must_be_positive() -> None:
    with pytest.raises(ValueError, match="concentration"):
        mix(torch.randn(4, 8), 0)


VIEWS = [torch.arange(6.0)[:, None], 10 + torch.arange(6.0)[:, None]]
WEIGHT = torch.tensor([0.0, 0.1, 0.9, 0.5, 1e-6, 1.0])


def test_the_whole_share_is_every_view_of_every_row() -> None:
    groups = list(drawn_views(VIEWS, WEIGHT))
    assert len(groups) == 2
    for (x, rows, counts), view in zip(groups, VIEWS, strict=True):
        assert torch.equal(x, view)
        assert rows.tolist() == list(range(6))
        assert torch.equal(counts, torch.ones(6))


def test_drawn_views_belong_to_their_rows() -> None:
    torch.manual_seed(0)
    ((x, rows, counts),) = drawn_views(VIEWS, WEIGHT, 0.5)
    assert len(x) == 6  # half of twelve views
    assert ((x[:, 0] == rows) | (x[:, 0] == rows + 10)).all()
    assert (WEIGHT[rows] > 0).all()
    assert counts.isfinite().all()


def test_drawn_views_keep_the_weighted_sum_on_average() -> None:
    """A loss that differs from view to view: its weighted sum over all views, and its estimate."""
    torch.manual_seed(0)
    expected = sum(float(WEIGHT[i] * (view[i, 0] + 1) ** 0.5) for view in VIEWS for i in range(6))
    estimates = []
    for _ in range(1500):
        ((x, rows, counts),) = drawn_views(VIEWS, WEIGHT, 0.5)
        loss = (x[:, 0] + 1) ** 0.5  # (6,)
        estimates.append(float((WEIGHT[rows] * counts * loss).sum()))
    assert sum(estimates) / len(estimates) == pytest.approx(expected, rel=0.03)


def test_no_view_is_drawn_without_weight() -> None:
    assert list(drawn_views(VIEWS, torch.zeros(6), 0.5)) == []
