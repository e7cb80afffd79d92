"""What is special to Reweight-R: the weights, the three phases, and T with its slack."""

import pytest
import torch
from in_phases import (
    CLASSES,
    OBSERVED,
    ROWS,
    act,
    assert_minimizes,
    batch_at,
    confident,
    ready,
    run_pass,
)

from colafier.methods._transition import anchor_transition
from colafier.methods.reweight_r import ReweightR, importance

T = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]])


def test_weights_row_by_row() -> None:
    p = torch.rand(9, 3, generator=torch.Generator().manual_seed(0))
    p, observed = p / p.sum(1, keepdim=True), torch.arange(9) % 3
    for n, weight in enumerate(importance(p, observed, T).tolist()):
        y = int(observed[n])
        noisy = sum(float(T[i, y] * p[n, i]) for i in range(3))
        assert weight == pytest.approx(float(p[n, y]) / noisy, rel=1e-5)


def test_weights_without_noise_are_one_and_never_infinite() -> None:
    p = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.3, 0.2]])
    observed = torch.tensor([1, 1])
    assert importance(p, observed, torch.eye(3)).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("revises", [False, True])
def test_loss_row_by_row_with_weights_that_are_constants_until_the_revision(revises: bool) -> None:
    method, rows = ready(ReweightR(warmup=1, revision=2), epochs=6)
    batch = batch_at(method, rows, 5 if revises else 3)
    method.transition.copy_(T)
    p = method.net(batch.x).softmax(1)
    slack = torch.zeros(CLASSES, CLASSES, requires_grad=True)
    t = (T + slack) / (T + slack).sum(1, keepdim=True)
    total = torch.zeros(())
    for n, y in enumerate(batch.y.tolist()):
        beta = p[n, y] / sum(p[n, i] * t[i, y] for i in range(CLASSES))
        total = total - (beta if revises else beta.detach()) * p[n, y].log() / len(batch)
    assert_minimizes(method, batch, total)
    assert (method.slack.grad is not None) == revises
    if revises:
        torch.testing.assert_close(method.slack.grad, slack.grad, rtol=1e-3, atol=1e-5)


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
    for epoch, rate in ((2, None), (6, 0.5)):
        run_pass(method, rows, [epoch - 1])
        kept = method.best.net.head.weight.clone()
        with torch.no_grad():
            method.net.head.weight.zero_()
        part = next(iter(method.passes(epoch, rows)))
        assert torch.equal(method.net.head.weight, kept)
        assert (part.restart, part.lr_scale) == (("net",), rate)
    assert not torch.equal(method.transition, torch.eye(CLASSES))


def test_t_is_read_off_the_best_epoch_of_the_warm_up() -> None:
    method, rows = ready(ReweightR(warmup=3), epochs=8)
    right, wrong = confident(OBSERVED, 0.8), confident((OBSERVED + 1) % CLASSES, 0.6)
    act(method, method.net, rows, [wrong, right, wrong])
    next(iter(method.passes(3, rows)))
    torch.testing.assert_close(method.transition, anchor_transition(right))


def test_after_the_warm_up_the_best_epoch_is_that_of_predictions_sent_through_t() -> None:
    method, rows = ready(ReweightR(warmup=1, revision=2), epochs=6)
    method.transition.copy_(torch.eye(CLASSES).roll(1, 1))  # every label is the next class
    act(
        method,
        method.net,
        rows,
        [confident((OBSERVED - 1) % CLASSES, 0.8), confident(OBSERVED, 0.8)],
        epoch=2,
    )
    next(iter(method.passes(4, rows)))
    assert method.net.head.bias[0].item() == 0


def test_held_out_rows_train_nothing() -> None:
    method, rows = ready(ReweightR(holdout=0.2), epochs=10)
    assert {len(batch_at(method, rows, epoch)) for epoch in (0, 3, 8)} == {ROWS - 12}


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_short_runs_go_through(epochs: int) -> None:
    method, rows = ready(ReweightR(), epochs=epochs)
    run_pass(method, rows, range(epochs))
    assert torch.isfinite(rows.predict(method.deployed())).all()
