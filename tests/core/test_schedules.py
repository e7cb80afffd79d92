import math

import pytest
import torch

from colafier.core.schedules import cosine, plain_epochs, ramp, scaled


def test_ramp_is_a_line_of_points() -> None:
    """Facts, row 18: .5 at epoch 15, 1 at epoch 44, thirty points with both ends."""
    line = torch.linspace(0.5, 1.0, 30).tolist()
    for epoch in range(60):
        expected = 0.5 if epoch < 15 else line[epoch - 15] if epoch < 45 else 1.0
        assert ramp(epoch, 15, 30, 0.5, 1.0) == pytest.approx(expected, abs=1e-6)


def test_ramp_may_fall() -> None:
    assert [ramp(e, 1, 3, 1.0, 0.0) for e in range(5)] == [1, 1, 0.5, 0, 0]


@pytest.mark.parametrize("length", [0, 1])
def test_a_ramp_without_length_is_a_step(length: int) -> None:
    assert [ramp(e, 2, length, 0.5, 1.0) for e in range(4)] == [0.5, 0.5, 1, 1]


@pytest.mark.parametrize(
    ("value", "epochs", "expected"),
    [(15, 200, 15), (15, 100, 8), (15, 40, 3), (15, 1, 1), (0, 40, 0), (30, 400, 60)],
)
def test_settings_scale_with_the_run(value: int, epochs: int, expected: int) -> None:
    assert scaled(value, epochs, 200) == expected


@pytest.mark.parametrize(("epochs", "expected"), [(1, 1), (3, 1), (15, 7), (40, 20), (300, 20)])
def test_a_warm_up_that_does_not_shrink_takes_half_of_the_run(epochs: int, expected: int) -> None:
    assert plain_epochs(20, epochs) == expected


def test_cosine_falls_from_one_to_the_floor() -> None:
    for floor in (0.0, 0.02):
        values = [cosine(epoch, 10, floor) for epoch in range(11)]
        assert values[0] == pytest.approx(1)
        assert values[5] == pytest.approx((1 + floor) / 2)
        assert values[10] == pytest.approx(floor)
        assert values == sorted(values, reverse=True)
        assert values[3] == pytest.approx(
            floor + (1 - floor) * (0.5 + 0.5 * math.cos(0.3 * math.pi))
        )


def test_cosine_of_no_epochs() -> None:
    assert cosine(0, 0) == 1
