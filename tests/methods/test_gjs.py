"""GJS on two strong views; the divergence itself is checked in tests/test_functional.py."""

from math import log
from typing import Any

import pytest
import torch
from in_phases import assert_minimizes
from torch import Tensor

from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch
from colafier.methods.gjs import GeneralizedJensenShannon
from colafier.nets import net_factory
from colafier.training.training_set import TrainingSet

X = torch.randint(0, 256, (8, 1, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
OBSERVED = torch.arange(8) % 3


def ready(**settings: Any) -> tuple[GeneralizedJensenShannon, Batch]:
    torch.manual_seed(0)
    method = GeneralizedJensenShannon(**settings)
    train = TrainingSet(X, Labels(OBSERVED), 3, view_names=method.views, batch_size=8)
    method.setup(net_factory("convnet", train.row_shape, 3), train, 5)
    (part,) = method.passes(0, train)
    return method, next(iter(train.batches(part, 0, 0)))


def entropy(p: Tensor) -> Tensor:
    return -(p * p.log()).sum()


@pytest.mark.parametrize("num_views", [1, 2])
def test_loss_row_by_row_as_a_difference_of_entropies(num_views: int) -> None:
    """The divergence is H(sum of pi_i d_i) - sum of pi_i H(d_i), another form of the same."""
    method, batch = ready(num_views=num_views, label_weight=0.3)
    views = [method.net(view).softmax(1) for view in batch.views]
    total = torch.zeros(())
    for i, label in enumerate(batch.y.tolist()):
        mean = 0.3 * torch.eye(3)[label] + 0.7 / num_views * sum(p[i] for p in views)
        js = entropy(mean) - 0.7 / num_views * sum(entropy(p[i]) for p in views)
        total = total + js / (-0.7 * log(0.7))
    assert_minimizes(method, batch, total / 8)


def test_two_different_strong_views_each_a_batch_of_its_own() -> None:
    method, batch = ready()
    assert method.views == ("strong", "strong")
    assert not torch.equal(batch.views[0], batch.views[1])
    calls: list[int] = []
    method.net.register_forward_hook(lambda *args: calls.append(len(args[2])))
    method.loss(batch)
    assert calls == [8, 8]
