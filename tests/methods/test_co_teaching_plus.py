"""What is special to Co-teaching+: after warm-up only rows with disagreement count."""

import pytest
import torch
from one_batch import ROWS, ready, row_losses, smallest

from colafier.methods.co_teaching import CoTeaching
from colafier.methods.co_teaching_plus import CoTeachingPlus


def test_loss_row_by_row() -> None:
    method, batch = ready(CoTeachingPlus(noise_rate=0.4), epoch=30)
    logits = [net(batch.x) for net in method.net]
    predictions = [some.argmax(1).tolist() for some in logits]
    disputed = [i for i in range(ROWS) if predictions[0][i] != predictions[1][i]]
    first, second = (row_losses(some, batch.y) for some in logits)
    by_first, by_second = (smallest(losses, disputed, 0.4) for losses in (first, second))
    assert 0 < len(by_first) < len(disputed) < ROWS
    terms = method.loss(batch)
    expected = {
        "first": sum(first[i] for i in by_second) / len(by_second),
        "second": sum(second[i] for i in by_first) / len(by_first),
        "disagree": len(disputed) / ROWS,
    }
    for name, value in expected.items():
        assert float(terms[name].detach()) == pytest.approx(value, rel=1e-4), name


@pytest.mark.parametrize(("epoch", "equal"), [(19, False), (30, True)])
def test_warm_up_and_nets_that_agree_are_co_teaching(epoch: int, equal: bool) -> None:
    method, batch = ready(CoTeachingPlus(noise_rate=0.4), epoch=epoch)
    other, _ = ready(CoTeaching(noise_rate=0.4), epoch=epoch)
    if equal:
        method.net[1].load_state_dict(method.net[0].state_dict())
    other.net.load_state_dict(method.net.state_dict())
    terms = method.loss(batch)
    for name, term in other.loss(batch).items():
        torch.testing.assert_close(terms[name], term)


def test_a_single_row_with_disagreement_is_learned_from() -> None:
    """Also if it is the row with number 0, which the authors' code takes for none."""
    method, batch = ready(CoTeachingPlus(noise_rate=0.4), epoch=30)
    method.net[1].load_state_dict(method.net[0].state_dict())
    place = (batch.index == 0).nonzero()[0, 0]

    class Contrary(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = method.net[0](x)
            turned = logits.clone()
            turned[place] = -logits[place]
            return turned

    agreeing = method.net[0]
    method.net = torch.nn.ModuleList([agreeing, Contrary()])
    losses = row_losses(agreeing(batch.x), batch.y)
    terms = method.loss(batch)
    assert float(terms["first"].detach()) == pytest.approx(losses[int(place)], rel=1e-4)


def test_warm_up_and_ramp_take_no_more_than_half_of_the_run() -> None:
    assert ready(CoTeachingPlus(), epochs=30)[0].resolved() == {"ramp": 10, "warmup": 15}
    method, _ = ready(CoTeachingPlus(ramp=3, warmup=0), epochs=40)
    assert method.resolved() == {"ramp": 3, "warmup": 0}
