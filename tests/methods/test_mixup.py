"""Mixup's loss, pair by pair."""

import pytest
import torch
from in_phases import assert_minimizes
from torch import Tensor

from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch
from colafier.methods.mixup import Mixup
from colafier.nets import net_factory
from colafier.training.training_set import TrainingSet

X = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
OBSERVED = torch.arange(9) % 3


def slow(method: Mixup, x: Tensor, labels: Tensor, share: float, partner: list[int]) -> Tensor:
    """Mean over i of lam CE(x', y_i) + (1 - lam) CE(x', y_j), x' = lam x_i + (1 - lam) x_j."""
    total = torch.zeros(())
    for i, j in enumerate(partner):
        p = method.net((share * x[i] + (1 - share) * x[j])[None]).softmax(1)[0]
        total = total - share * p[labels[i]].log() - (1 - share) * p[labels[j]].log()
    return total / len(partner)


def ready(alpha: float) -> tuple[Mixup, Batch]:
    torch.manual_seed(0)
    method = Mixup(alpha=alpha)
    train = TrainingSet(X, Labels(OBSERVED), 3, view_names=method.views, batch_size=9)
    method.setup(net_factory("mlp", (4,), 3), train, 5)
    (part,) = method.passes(0, train)
    return method, next(iter(train.batches(part, 0, 0)))


@pytest.mark.parametrize("seed", range(4))
def test_loss_pair_by_pair_with_the_share_as_it_was_drawn(seed: int) -> None:
    """With a share below one half the pairs are turned around, which makes the same batch."""
    method, batch = ready(alpha=1.0)
    torch.manual_seed(seed)
    share = float(torch.distributions.Beta(1.0, 1.0).sample())
    partner = torch.randperm(9)
    partner = partner if share >= 0.5 else partner.argsort()  # i and j change places
    expected = slow(method, batch.x, batch.y, share, partner.tolist())
    torch.manual_seed(seed)
    assert_minimizes(method, batch, expected)


def test_a_large_alpha_mixes_half_and_half_and_the_score_is_of_the_own_label() -> None:
    method, batch = ready(alpha=1e8)
    torch.manual_seed(1)
    method.loss(batch)
    torch.manual_seed(1)
    torch.distributions.Beta(1e8, 1e8).sample()
    partner = torch.randperm(9)
    logits = method.net((batch.x + batch.x[partner]) / 2)
    expected = torch.nn.functional.cross_entropy(logits, batch.y, reduction="none")
    staged = method.row_losses.take_staged()
    assert staged is not None
    torch.testing.assert_close(staged[0], batch.index)
    torch.testing.assert_close(staged[1], expected.detach(), rtol=1e-3, atol=1e-3)
