"""What is special to Co-teaching: each net learns from the rows that the other one picks."""

import pytest
import torch
from one_batch import ROWS, ready, row_losses, smallest
from torch import nn

from colafier.methods.co_teaching import CoTeaching


def test_loss_row_by_row() -> None:
    method, batch = ready(CoTeaching(noise_rate=0.4), epoch=5)  # half of the ramp
    first, second = (row_losses(net(batch.x), batch.y) for net in method.net)
    by_first, by_second = (smallest(losses, list(range(ROWS)), 0.2) for losses in (first, second))
    assert len(by_first) == 32
    assert set(by_first) != set(by_second)
    terms = method.loss(batch)
    expected = {
        "first": sum(first[i] for i in by_second) / 32,
        "second": sum(second[i] for i in by_first) / 32,
    }
    for name, value in expected.items():
        assert float(terms[name].detach()) == pytest.approx(value, rel=1e-4), name


def test_two_equal_nets_that_drop_nothing_are_plain_training() -> None:
    method, batch = ready(CoTeaching(noise_rate=0.4), epoch=0)
    method.net[1].load_state_dict(method.net[0].state_dict())
    plain = nn.functional.cross_entropy(method.net[0](batch.x), batch.y)
    for term in method.loss(batch).values():
        torch.testing.assert_close(term, plain)


def test_each_loss_touches_one_net() -> None:
    method, batch = ready(CoTeaching(), epoch=50)
    method.loss(batch)["second"].backward()
    assert all(p.grad is None for p in method.net[0].parameters())
    assert any(p.grad is not None and p.grad.any() for p in method.net[1].parameters())


@pytest.mark.parametrize(("epochs", "ramp"), [(200, 10), (40, 10), (15, 7), (3, 1)])
def test_the_ramp_takes_no_more_than_half_of_the_run(epochs: int, ramp: int) -> None:
    assert ready(CoTeaching(), epochs=epochs)[0].resolved() == {"ramp": ramp}
    assert ready(CoTeaching(ramp=7), epochs=epochs)[0].resolved() == {"ramp": 7}
