"""The choice that Co-teaching, Co-teaching+ and JoCoR share."""

import pytest
import torch

from colafier.methods._small_loss import dropped, mean_over, small_loss


def test_the_share_rises_to_the_noise_rate_and_stays() -> None:
    assert [dropped(0.4, t, 10) for t in (0, 2.5, 10, 150)] == [0, pytest.approx(0.1), 0.4, 0.4]


@pytest.mark.parametrize(
    ("drop", "among", "expected"),
    [
        (0.0, None, [0, 1, 2, 3, 4]),
        (0.4, None, [0, 2, 3]),
        (1.0, None, [2]),  # at least one row
        (0.5, [False, True, False, True, True], [3]),
        (0.9, [False, False, False, False, True], [4]),
        (0.2, [False] * 5, []),
    ],
)
def test_rows_with_the_smallest_losses(
    drop: float, among: list[bool] | None, expected: list[int]
) -> None:
    losses = torch.tensor([1.0, 5.0, 0.1, 0.5, 2.0])
    chosen = small_loss(losses, drop, None if among is None else torch.tensor(among))
    assert chosen.nonzero()[:, 0].tolist() == expected


def test_weights_give_the_mean_over_chosen_rows_however_the_batch_is_shared() -> None:
    losses = torch.tensor([1.0, 5.0, 3.0, 0.5, 2.0])
    chosen = torch.tensor([True, False, True, False, False])
    weight = mean_over(chosen)
    assert float((weight * losses).mean()) == pytest.approx(2.0)
    shares = [(weight * losses)[part].mean() * len(part) for part in ([0, 1], [2, 3, 4])]
    assert float(sum(shares)) / 5 == pytest.approx(2.0)
    assert float((mean_over(chosen, min_rows=4) * losses).mean()) == pytest.approx(1.0)


def test_nothing_chosen_gives_no_weight() -> None:
    assert mean_over(torch.zeros(3, dtype=torch.bool)).tolist() == [0, 0, 0]
