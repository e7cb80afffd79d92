"""Which state of a net is kept."""

import torch
from torch import nn

from colafier.methods._best_net import BestNet, accuracy, likelihood


def test_scores_by_hand() -> None:
    p = torch.tensor([[0.5, 0.5 - 1e-3], [0.2, 0.8], [0.9, 0.1]])
    observed = torch.tensor([0, 1, 1])
    assert accuracy(p, observed) == torch.tensor(2 / 3)
    expected = torch.tensor([0.5, 0.8, 0.1]).log().mean()
    torch.testing.assert_close(torch.tensor(likelihood(p, observed)), expected)
    assert accuracy(p[:0], observed[:0]) == likelihood(p[:0], observed[:0]) == 0


def test_the_best_state_is_kept_and_observed_back_once() -> None:
    net = nn.Linear(1, 1)
    best = BestNet(net)
    for value, score in ((1.0, 0.3), (2.0, 0.7), (3.0, 0.5)):
        nn.init.constant_(net.weight, value)
        best.offer(net, score)
    best.restore(net)
    assert net.weight.item() == 2
    nn.init.constant_(net.weight, 4.0)
    best.offer(net, 0.1)  # the comparison starts from scratch
    assert best.net.weight.item() == 4
    assert not any(p.requires_grad for p in best.parameters())
