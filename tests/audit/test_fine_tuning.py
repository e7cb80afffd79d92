"""Soft-label fine-tuning follows its targets and leaves everything else alone."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from colafier.audit.fine_tuning import fine_tune
from colafier.audit.heads import DROPPED_INPUTS, SoftLabelTrainer, WithDroppedInputs, kept_inputs
from colafier.nets import inference

N, C = 400, 4


def as_it_is(x: Tensor) -> Tensor:
    return x


def perceptron() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, C)).eval()


def clouds() -> tuple[Tensor, Tensor]:
    truth = torch.arange(N) % C
    noise = torch.randn(N, 8, generator=torch.Generator().manual_seed(1))
    return 3 * one_hot(truth, 8).float() + noise, truth


def test_it_follows_the_targets_and_repeats_itself() -> None:
    x, truth = clouds()
    targets = one_hot(truth, C).float()
    before = inference.predict(perceptron(), x, as_it_is)
    results = []
    for _ in range(2):
        net = perceptron()
        state = torch.get_rng_state()
        fine_tune(net, x, targets, as_it_is, epochs=12, batch_size=50, lr=0.02)
        assert torch.equal(state, torch.get_rng_state())  # nobody else's numbers are used up
        results.append(inference.predict(net, x, as_it_is))
    assert (before.argmax(1) == truth).float().mean() < 0.6
    assert (results[0].argmax(1) == truth).float().mean() > 0.9
    assert torch.equal(*results)
    assert not net.training
    assert not any(p.requires_grad for p in net.parameters())


def test_targets_are_probabilities() -> None:
    """All rows are the same: what is learned is the mean of their targets."""
    net = perceptron()
    x = torch.ones(100, 8)
    targets = torch.tensor([0.55, 0.25, 0.15, 0.05]).expand(100, C)
    fine_tune(net, x, targets, as_it_is, epochs=60, batch_size=10, lr=0.01)
    p = inference.predict(net, x[:1], as_it_is)[0]
    assert p.tolist() == pytest.approx(targets[0].tolist(), abs=0.06)


def test_frozen_parameters_stay_as_they_are() -> None:
    net = nn.ModuleDict({"body": perceptron()})
    net.forward = net["body"].forward
    x, truth = clouds()
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    frozen = {"0.weight", "0.bias"}  # the names in the net that is inside
    fine_tune(net, x, one_hot(truth, C).float(), as_it_is, epochs=1, batch_size=50, frozen=frozen)
    same = {name for name, p in net.named_parameters() if torch.equal(p, before[name])}
    assert same == {"body.0.weight", "body.0.bias"}


def test_batches_never_have_a_single_row() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, C))
    x, targets = torch.rand(17, 8), torch.full((17, C), 1 / C)
    fine_tune(net, x, targets, as_it_is, epochs=1, batch_size=16)
    assert all(p.isfinite().all() for p in net.parameters())


def test_the_rate_falls_to_zero() -> None:
    """A step at the very end changes nothing, whatever the loss."""
    net = perceptron()
    x, truth = clouds()
    trainer = SoftLabelTrainer(net, lr=1.0)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    trainer.step(x, one_hot(truth, C).float(), done=1.0)
    assert all(torch.equal(p, before[name]) for name, p in net.named_parameters())
    trainer.step(x, one_hot(truth, C).float(), done=0.5)
    assert trainer.optimizer.param_groups[0]["lr"] == 0.5
    assert not all(torch.equal(p, before[name]) for name, p in net.named_parameters())


def test_inputs_are_dropped_in_training_only() -> None:
    net = WithDroppedInputs(nn.Identity())
    x = torch.ones(3, 1000)
    assert torch.equal(net.eval()(x), x)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        dropped = net.train()(x)
        mask = kept_inputs(100_000)
    assert torch.equal(dropped[0], dropped[1])  # one mask for the batch
    assert set(dropped.unique().tolist()) == {0.0, 1.25}
    assert float((mask == 0).float().mean()) == pytest.approx(DROPPED_INPUTS, abs=0.01)
    assert float(mask.mean()) == pytest.approx(1.0, abs=0.01)
