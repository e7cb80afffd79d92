import pytest
import torch
from torch import nn

from colafier.nets.averaged import Averaged


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def test_follows_step_by_step() -> None:
    """Against a loop over numbers; the decay grows as 1/2, 2/3, 3/4 ... up to its setting."""
    torch.manual_seed(0)
    live = net()
    averaged = Averaged(live)
    slow = {name: value.clone().double() for name, value in live.state_dict().items()}
    for step in range(1, 8):
        with torch.no_grad():
            for p in live.parameters():
                p += torch.randn_like(p)
        live(torch.randn(5, 3))  # moves the batch statistics
        averaged.follow(live, 0.7)
        decay = min(0.7, step / (step + 1))
        for name, value in live.state_dict().items():
            if value.is_floating_point():
                slow[name] = decay * slow[name] + (1 - decay) * value.double()
            else:
                slow[name] = value.double()
        for name, value in averaged.net.state_dict().items():
            torch.testing.assert_close(value.double(), slow[name], rtol=1e-5, atol=1e-5)


def test_the_start_is_forgotten() -> None:
    live = nn.Linear(1, 1)
    nn.init.constant_(live.weight, 100.0)
    averaged = Averaged(live)
    nn.init.constant_(live.weight, 1.0)
    for _ in range(99):
        averaged.follow(live, 0.99)
    assert float(averaged.net.weight.detach()) == pytest.approx(1.99)  # 1/100 of the start is left


def test_the_copy_is_apart_and_calls_go_to_it() -> None:
    torch.manual_seed(0)
    live = net().eval()
    averaged = Averaged(live).eval()
    x = torch.randn(2, 3)
    before = live(x)
    with torch.no_grad():
        for p in live.parameters():
            p.zero_()
    torch.testing.assert_close(averaged(x), before)
    assert not any(p.requires_grad for p in averaged.parameters())
    assert all(p.requires_grad for p in live.parameters())


def test_steps_are_saved() -> None:
    torch.manual_seed(0)
    live = net()
    first, second = Averaged(live), Averaged(net())
    with torch.no_grad():
        live[0].weight += 1
    first.follow(live, 0.9)
    second.load_state_dict(first.state_dict())
    for averaged in (first, second):
        averaged.follow(live, 0.9)
    for mine, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(mine, other)
