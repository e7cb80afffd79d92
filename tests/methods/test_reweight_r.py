"""What is special to Reweight-R: the weights, the three phases, and T with its slack."""

import pytest
import torch
from in_phases import CLASSES, ROWS, batch_at, gradient, ready, walk

from colafier.methods.reweight_r import ReweightR, importance

T = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]])


def test_weights_row_by_row() -> None:
    p = torch.rand(9, 3, generator=torch.Generator().manual_seed(0))
    p, given = p / p.sum(1, keepdim=True), torch.arange(9) % 3
    for n, weight in enumerate(importance(p, given, T).tolist()):
        y = int(given[n])
        noisy = sum(float(T[i, y] * p[n, i]) for i in range(3))
        assert weight == pytest.approx(float(p[n, y]) / noisy, rel=1e-5)


def test_weights_without_noise_are_one_and_never_infinite() -> None:
    p = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.3, 0.2]])
    given = torch.tensor([1, 1])
    assert importance(p, given, torch.eye(3)).tolist() == [0.0, 1.0]


def test_loss_row_by_row() -> None:
    method, rows = ready(ReweightR(warmup=1, revision=1))
    batch = batch_at(method, rows, 2)
    method.transition.copy_(T)
    p = method.net(batch.x).softmax(1).tolist()
    total = 0.0
    for n, y in enumerate(batch.y.tolist()):
        beta = p[n][y] / sum(p[n][i] * float(T[i, y]) for i in range(CLASSES))
        total -= beta * torch.tensor(p[n][y]).log().item()
    value = float(method.loss(batch)["reweighted"].detach())
    assert value == pytest.approx(total / len(batch), rel=1e-4)


def test_weights_are_constants_until_the_revision() -> None:
    """Before it, the gradient is that of cross entropy with fixed weights."""
    method, rows = ready(ReweightR(warmup=1, revision=2), epochs=6)
    method.transition.copy_(T)
    batch = batch_at(method, rows, 3)
    got = gradient(method, batch)
    assert method.slack.grad is None
    logits = method.net(batch.x)
    fixed = importance(logits.softmax(1), batch.y, T).detach()
    method.zero_grad()
    losses = torch.nn.functional.cross_entropy(logits, batch.y, reduction="none")
    (fixed * losses).mean().backward()
    torch.testing.assert_close(got, torch.cat([p.grad.flatten() for p in method.net.parameters()]))
    gradient(method, batch_at(method, rows, 5))
    assert method.slack.grad is not None
    assert method.slack.grad.abs().max() > 0


def test_the_slack_is_added_once_and_rows_stay_probabilities() -> None:
    method, _ = ready(ReweightR())
    method.transition.copy_(T)
    with torch.no_grad():
        method.slack.copy_(torch.tensor([[0.1, -0.1, 0.0], [-0.5, 0.0, 0.9], [0.0, 0.0, 0.0]]))
    expected = torch.tensor([[0.8, 0.1, 0.1], [0.0, 0.9 / 1.9, 1.0 / 1.9], [0.3, 0.1, 0.6]])
    torch.testing.assert_close(method.revised(), expected, atol=1e-6, rtol=1e-5)


def test_three_phases_each_from_the_best_epoch_before() -> None:
    method, rows = ready(ReweightR(revision_rate=0.5), epochs=10)
    assert method.resolved() == {"warmup": 2, "revision_begin": 6}
    for epoch, rate in ((2, 1.0), (6, 0.5)):
        walk(method, rows, [epoch - 1])
        kept = method.best.net.head.weight.clone()
        with torch.no_grad():
            method.net.head.weight.zero_()
        part = next(iter(method.passes(epoch, rows)))
        assert torch.equal(method.net.head.weight, kept)
        assert (part.restart, part.lr_scale) == (("net",), rate)
    assert not torch.equal(method.transition, torch.eye(CLASSES))


def test_held_out_rows_train_nothing() -> None:
    method, rows = ready(ReweightR(holdout=0.2), epochs=10)
    assert {len(batch_at(method, rows, epoch)) for epoch in (0, 3, 8)} == {ROWS - 12}


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_short_runs_go_through(epochs: int) -> None:
    method, rows = ready(ReweightR(), epochs=epochs)
    walk(method, rows, range(epochs))
    assert torch.isfinite(rows.predict(method.deployed())).all()


@pytest.mark.parametrize(
    ("name", "value"), [("warmup", 0), ("revision", -1), ("revision_rate", -1.0), ("quantile", 2.0)]
)
def test_values_without_meaning_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        ReweightR(**{name: value})  # type: ignore[arg-type]
