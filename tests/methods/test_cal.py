"""What is special to CAL: proxies, the covariance, and two nets one after the other."""

from dataclasses import replace
from math import log, sqrt

import pytest
import torch
from in_phases import (
    CLASSES,
    OBSERVED,
    ROWS,
    assert_minimizes,
    batch_at,
    gradient,
    ready,
    run_pass,
    slope,
)
from torch import Tensor

from colafier.methods.cal import CAL
from colafier.methods.contract import Batch

NOISY = torch.where(torch.arange(ROWS) % 4 == 0, (OBSERVED + 1) % CLASSES, OBSERVED)


def second(**settings: float) -> tuple[CAL, Tensor, Batch]:
    """The method as its second net begins, with proxies that are the clean labels."""
    method, rows = ready(CAL(proxy_epochs=1, warmup=0, ramp=1, **settings), observed=NOISY)  # type: ignore[arg-type]
    method.proxies.values.copy_(OBSERVED)
    batch = batch_at(method, rows, 1)
    return method, method.net(batch.x).softmax(1), batch


def slow_covariance(p: Tensor, batch: Batch) -> Tensor:
    """The authors' form: a mean within each proxy class, weighted by its share of all rows."""
    losses = -(p + 1e-5).log()
    total = torch.zeros(())
    for i in range(CLASSES):
        everywhere = [n for n in range(ROWS) if OBSERVED[n] == i]
        here = [place for place, n in enumerate(batch.index.tolist()) if OBSERVED[n] == i]
        for j in range(CLASSES):
            tau = sum(float(NOISY[n] == j) for n in everywhere) / len(everywhere)
            products = [(float(batch.y[n] == j) - tau) * losses[n, j] for n in here]
            if here:
                total = total + len(everywhere) / ROWS * sum(products) / len(here)
    return total


def slow_peer(p: Tensor, shares: list[float]) -> Tensor:
    """Mean loss over labels as frequent as these shares."""
    total = torch.zeros(())
    for n in range(ROWS):
        for j in range(CLASSES):
            total = total - shares[j] / sum(shares) * (p[n, j] + 1e-5).log() / ROWS
    return total


@pytest.mark.parametrize("missing", [False, True])
def test_covariance_class_by_class(missing: bool) -> None:
    """In a batch whose classes are not as frequent as in the whole set; one may be missing."""
    method, _, batch = second(peer_weight=0.0)
    kept = OBSERVED[batch.index] != 2 if missing else torch.arange(ROWS) < 17
    views = tuple(view[kept] for view in batch.views)
    some = replace(batch, index=batch.index[kept], y=batch.y[kept], views=views)
    counts = OBSERVED[some.index].bincount(minlength=CLASSES)
    assert counts.min() != counts.max()
    p = method.net(some.x).softmax(1)
    got = -method.loss(some)["covariance"]
    torch.testing.assert_close(got, slow_covariance(p, some), rtol=1e-3, atol=1e-6)


def test_loss_of_the_second_net_row_by_row() -> None:
    method, p, batch = second(peer_weight=0.5)
    ce = -sum((p[n, y] + 1e-8).log() for n, y in enumerate(batch.y.tolist())) / ROWS
    peer = slow_peer(p, NOISY.bincount().tolist())
    assert_minimizes(method, batch, ce - 0.5 * peer - slow_covariance(p, batch))


def test_the_first_net_takes_the_root_of_the_label_shares() -> None:
    observed = torch.where(torch.arange(ROWS) < 36, 0, OBSERVED)
    method, rows = ready(CAL(proxy_epochs=3, warmup=0, ramp=1), observed=observed)
    batch = batch_at(method, rows, 1)
    p = method.first(batch.x).softmax(1)
    ce = -sum((p[n, y] + 1e-8).log() for n, y in enumerate(batch.y.tolist())) / ROWS
    roots = [sqrt(count) for count in observed.bincount().tolist()]
    assert_minimizes(method, batch, ce - 2 * slow_peer(p, roots))


def test_the_peer_term_of_each_net_rises_from_its_begin() -> None:
    method, rows = ready(CAL(proxy_epochs=5, warmup=1, ramp=3), epochs=10)
    for begin in (0, 5):
        batch = batch_at(method, rows, begin)
        epochs = range(begin, begin + 5)
        peers = [method.loss(replace(batch, epoch=e))["peer"].item() for e in epochs]
        assert [peer / peers[-1] for peer in peers] == pytest.approx([0, 0, 0.5, 1, 1])
    assert method.corrects


def test_proxies_are_sure_observed_labels_and_predictions_elsewhere() -> None:
    method, rows = ready(CAL(proxy_epochs=2, sure=1.0), observed=NOISY)
    assert method.loss(batch_at(method, rows, 0))
    assert method.proxies.take_staged() is None
    batch = batch_at(method, rows, 1)
    method.loss(batch)
    staged = method.proxies.take_staged()
    assert staged is not None
    p = method.first(batch.x).detach().softmax(1)
    needed = 1.0 * (1 - 1 / CLASSES) / 0.9
    for n, y in enumerate(batch.y.tolist()):
        every = [-log(float(p[n, j]) + 1e-8) for j in range(CLASSES)]
        sure = every[y] - sum(every) / CLASSES < -needed
        assert int(staged[1][n]) == (y if sure else int(p[n].argmax()))


def test_a_sure_observed_label_is_its_proxy_though_it_is_not_the_prediction() -> None:
    method, rows = ready(CAL(proxy_epochs=1, sure=3.0))
    batch = batch_at(method, rows, 0)
    with torch.no_grad():
        method.first.head.weight.zero_()
        method.first.head.bias.copy_(torch.tensor([10.0, 10.5, -10.0]))
    method.loss(replace(batch, y=torch.zeros_like(batch.y)))
    staged = method.proxies.take_staged()
    assert staged is not None
    assert set(staged[1].tolist()) == {0}


def test_trusted_rows_are_their_own_proxy() -> None:
    trusted = torch.arange(ROWS) < 20
    method, rows = ready(CAL(proxy_epochs=1), observed=NOISY, trusted=trusted)
    with torch.no_grad():
        method.first.head.bias.copy_(torch.tensor([50.0, 0.0, 0.0]))
    run_pass(method, rows, [0])
    assert torch.equal(method.proxies.values[trusted], NOISY[trusted])
    assert (method.proxies.values[~trusted] == 0).all()
    list(method.passes(1, rows))  # a class may have few proxies, or none
    assert torch.isfinite(method.flips).all()


def test_first_the_first_net_learns_then_the_second() -> None:
    method, rows = ready(CAL(), epochs=5)
    assert method.resolved() == {"proxy_epochs": 2, "warmup": 1, "ramp": 1}
    rates = [next(iter(method.passes(epoch, rows))).lr_scale for epoch in (0, 1)]
    assert rates == [None, 0.1]  # proxies are read at a low rate
    untouched = method.net.head.weight.detach().clone()
    run_pass(method, rows, [0, 1])
    assert method.deployed() is method.first
    assert torch.equal(method.net.head.weight, untouched)
    run_pass(method, rows, [2])
    assert method.deployed() is method.net
    assert not torch.equal(method.net.head.weight, untouched)


def test_a_run_that_goes_on_for_much_longer_stays_with_the_second_net() -> None:
    short, rows = ready(CAL(), epochs=5, observed=NOISY)
    run_pass(short, rows, range(5))
    method, _ = ready(CAL(), epochs=15, observed=NOISY)
    method.load_state_dict(short.state_dict())
    assert method.resolved()["proxy_epochs"] == 6
    run_pass(method, rows, [5])
    assert method.deployed() is method.net
    assert not torch.equal(method.net.head.weight, short.net.head.weight)
    assert torch.equal(method.first.head.weight, short.first.head.weight)
    assert torch.equal(method.proxies.values, short.proxies.values)
    assert next(iter(method.passes(5, rows))).lr_scale is None


def test_observed_labels_count_by_their_proxy_only() -> None:
    """Loss less covariance is the loss of the labels that rows with this proxy have on average."""
    method, _, batch = second(peer_weight=0.0)
    with torch.no_grad():
        method.net.head.weight.mul_(0.1)  # far from where the small constants matter
    soft = method.flips[OBSERVED[batch.index]]
    expected = slope(method, torch.nn.functional.cross_entropy(method.net(batch.x), soft))
    torch.testing.assert_close(gradient(method, batch), expected, rtol=1e-3, atol=1e-4)
