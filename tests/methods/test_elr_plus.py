"""What is special to ELR+: targets from the other net's average, mixed, and the averages' decay."""

import copy
import math
from typing import Any

import pytest
import torch

from colafier.core.mixing import mixup
from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch
from colafier.methods.elr_plus import EarlyLearningPlus
from colafier.nets import net_factory
from colafier.training.distributed import Processes
from colafier.training.engine import Engine
from colafier.training.optimizers import OptimizerSettings
from colafier.training.training_set import TrainingSet

ROWS, CLASSES = 24, 3


def ready(epochs: int = 20, **settings: Any) -> Any:
    """A method set up for some rows, and for each net the batch of its pass: all rows."""
    torch.manual_seed(0)
    observed = torch.arange(ROWS) % CLASSES
    x = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(1))
    train = TrainingSet(x, Labels(observed), CLASSES, view_names=("weak",), batch_size=ROWS)
    method = EarlyLearningPlus(**settings)
    method.setup(net_factory("mlp", (5,), CLASSES), train, epochs)
    parts = list(method.passes(0, train))
    batches: list[Batch] = []
    for number, part in enumerate(parts):
        batches += train.batches(part, 0, number)
    return method, parts, batches


@pytest.mark.parametrize("number", [0, 1])
def test_terms_row_by_row(number: int) -> None:
    method, _, batches = ready(momentum=0.6, weight=2.0)
    batch, net, table = batches[number], method.net[number], method.targets[number]
    table.values = 0.5 * torch.rand(ROWS, CLASSES).softmax(1)
    for p in method.copies.parameters():
        p += 0.1 * torch.randn_like(p)
    other = method.copies[1 - number](batch.x).softmax(1)
    targets = [0.6 * table.values[row] + 0.4 * other[i] for i, row in enumerate(batch.index)]
    torch.manual_seed(5)
    terms = method.loss(batch)
    torch.manual_seed(5)
    mixed = mixup(batch.x, 1.0)
    p = net(mixed.x).softmax(1).detach()
    ce = elr = 0.0
    for i in range(ROWS):
        j, keep = int(mixed.partner[i]), mixed.keep
        ce -= keep * math.log(p[i, batch.y[i]]) + (1 - keep) * math.log(p[i, batch.y[j]])
        target = keep * targets[i] + (1 - keep) * targets[j]
        elr += 2.0 * math.log(1 - float((target * p[i].clamp(1e-4, 1 - 1e-4)).sum()))
    assert terms["ce"].item() == pytest.approx(ce / ROWS, rel=1e-4)
    assert terms["elr"].item() == pytest.approx(elr / ROWS, rel=1e-4)
    index, staged = table.take_staged()
    assert torch.equal(index, batch.index)
    torch.testing.assert_close(staged, torch.stack(targets))
    assert method.targets[1 - number].take_staged() is None


def test_each_pass_teaches_one_net_on_the_same_labels() -> None:
    method, parts, batches = ready()
    engine = Engine(method, OptimizerSettings(), Processes())
    for number, (part, batch) in enumerate(zip(parts, batches, strict=True)):
        assert sorted(batch.index.tolist()) == list(range(ROWS))
        assert torch.equal(batch.y, batch.index % CLASSES)
        before = copy.deepcopy(method.state_dict())
        engine.begin_pass(part)
        method.update(batch, engine)
        changed = {k for k, v in method.state_dict().items() if not torch.equal(v, before[k])}
        assert any(k.startswith(f"net.{number}") for k in changed)
        assert any(k.startswith(f"copies.{number}") for k in changed)
        left = 1 - number
        assert not any(k.startswith((f"net.{left}", f"targets.{left}")) for k in changed)


def test_the_decay_rises_from_nearly_nothing() -> None:
    method, _, _ = ready(epochs=200)
    assert method.resolved() == {"decay_ramp": 114}
    assert method.decay_at(0.0) == pytest.approx(0.0067, abs=1e-4)
    assert method.decay_at(57.0) == pytest.approx(0.29, abs=0.01)
    assert method.decay_at(114.0) == method.decay_at(200.0) == 0.997


def test_after_the_first_step_the_average_is_nearly_the_net() -> None:
    method, parts, batches = ready()
    start = method.net[0].head.weight.detach().clone()
    engine = Engine(method, OptimizerSettings(), Processes())
    engine.begin_pass(parts[0])
    method.update(batches[0], engine)
    expected = start.lerp(method.net[0].head.weight.detach(), 1 - 0.997 * math.exp(-5))
    torch.testing.assert_close(method.copies[0].net.head.weight, expected)


def test_both_nets_are_deployed_with_mean_logits() -> None:
    method, _, batches = ready()
    x = batches[0].x
    first, second = method.net
    torch.testing.assert_close(method(x), (first(x) + second(x)) / 2)
    assert method.members() == [first, second]
