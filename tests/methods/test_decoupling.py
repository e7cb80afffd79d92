"""What is special to Decoupling: rows without disagreement teach nothing."""

import copy

import pytest
import torch
from one_batch import ready, row_losses
from torch import nn

from colafier.methods.decoupling import Decoupling


@pytest.mark.parametrize("min_share", [0.1, 1.0])
def test_loss_row_by_row(min_share: float) -> None:
    method, batch = ready(Decoupling(min_share=min_share))
    logits = [net(batch.x) for net in method.net]
    predictions = [some.argmax(1).tolist() for some in logits]
    rows = [i for i in range(len(batch)) if predictions[0][i] != predictions[1][i]]
    assert 0 < len(rows) < len(batch)
    terms = method.loss(batch)
    for name, some in zip(("first", "second"), logits, strict=True):
        losses = row_losses(some, batch.y)
        expected = sum(losses[i] for i in rows) / max(min_share * len(batch), len(rows))
        assert float(terms[name].detach()) == pytest.approx(expected, rel=1e-4)
    assert float(terms["disagree"]) == pytest.approx(len(rows) / len(batch))


def test_nets_that_agree_learn_nothing() -> None:
    method, batch = ready(Decoupling(min_share=0.0))
    method.net[1].load_state_dict(method.net[0].state_dict())
    terms = method.loss(batch)
    (terms["first"] + terms["second"]).backward()
    assert float(terms["first"].detach()) == float(terms["second"].detach()) == 0
    assert all(p.grad is not None and not p.grad.any() for p in method.net.parameters())


def test_warm_up_is_plain_training() -> None:
    method, batch = ready(Decoupling(warmup=3), epoch=2)
    plain = nn.functional.cross_entropy(method.net[0](batch.x), batch.y)
    torch.testing.assert_close(method.loss(batch)["first"], plain)


def test_the_nets_start_differently_and_do_not_learn_from_each_other() -> None:
    method, batch = ready(Decoupling())
    first, second = method.members()
    assert not torch.equal(first.head.weight, second.head.weight)  # type: ignore[union-attr]
    before = copy.deepcopy(second.state_dict())
    method.loss(batch)["first"].backward()
    assert all(p.grad is None for p in second.parameters())
    assert all(torch.equal(v, before[k]) for k, v in second.state_dict().items())
