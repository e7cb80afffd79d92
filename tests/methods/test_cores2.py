"""What is special to CORES2: the sieve, the peer term, and the label shares of kept rows."""

from dataclasses import replace

import pytest
import torch
from in_phases import (
    CLASSES,
    OBSERVED,
    ROWS,
    assert_minimizes,
    batch_at,
    gradient,
    joint_gradient,
    ready,
    share_of,
)

from colafier.methods.cores2 import CORES2


def test_loss_and_sieve_row_by_row() -> None:
    method, rows = ready(CORES2(warmup=1, ramp=1, sieve=2, peer_weight=1.5))
    batch = batch_at(method, rows, 3)
    with torch.no_grad():
        method.net.head.weight.mul_(8)
    method.shares.copy_(torch.tensor([0.5, 0.3, 0.2]))
    p = method.net(batch.x).softmax(1)
    kept, losses = [], []
    for n, y in enumerate(batch.y.tolist()):
        every = [-(p[n, j] + 1e-8).log() for j in range(CLASSES)]
        kept.append(bool(-p[n, y].log() <= sum(every) / CLASSES))
        peer = 0.5 * every[0] + 0.3 * every[1] + 0.2 * every[2]
        losses.append(-p[n, y].log() - 1.5 * peer)
    assert 0 < sum(kept) < ROWS
    assert_minimizes(method, batch, torch.stack(losses)[torch.tensor(kept)].mean())
    staged = method.kept.take_staged()
    assert staged is not None
    assert staged[1].tolist() == kept
    assert float(method.loss(batch)["kept"]) == pytest.approx(sum(kept) / ROWS)


def test_first_it_is_cross_entropy_then_the_peer_term_rises_then_rows_are_sieved() -> None:
    method, rows = ready(CORES2(warmup=2), epochs=20)
    assert method.resolved() == {"warmup": 2, "ramp": 6, "sieve": 6}
    distributed, kept = [], []
    with torch.no_grad():
        method.net.head.weight.mul_(8)
    batch = batch_at(method, rows, 0)
    for epoch in (0, 2, 4, 5, 6, 7, 19):
        terms = method.loss(replace(batch, epoch=epoch))
        distributed.append(float(terms["peer"].detach()))
        kept.append(float(terms["kept"]))
    assert distributed[:2] == [0, 0]
    assert distributed[3] < distributed[2] < 0
    assert kept[:4] == [1, 1, 1, 1]
    assert max(kept[4:]) < 1
    assert distributed[5] == pytest.approx(distributed[6])


def test_the_warm_up_does_not_shrink_and_the_sieve_waits_for_it() -> None:
    assert ready(CORES2(), epochs=100)[0].resolved() == {"warmup": 10, "ramp": 30, "sieve": 31}
    assert ready(CORES2(), epochs=20)[0].resolved() == {"warmup": 10, "ramp": 6, "sieve": 10}
    assert ready(CORES2(sieve=3), epochs=20)[0].resolved()["sieve"] == 3


def test_a_batch_that_keeps_nothing_is_harmless() -> None:
    method, rows = ready(CORES2(sieve=0))
    batch = batch_at(method, rows, 3)
    prediction = method.net(batch.x).argmax(1)
    wrong = share_of(replace(batch, y=method.net(batch.x).argmin(1)), slice(0, 5))
    assert (wrong.y != prediction[:5]).all()
    assert float(method.loss(wrong)["kept"]) == 0
    assert gradient(method, wrong).abs().max() == 0


def test_rows_that_a_person_decided_are_kept_though_their_label_does_not_fit() -> None:
    trusted = torch.arange(ROWS) < 20
    method, rows = ready(CORES2(warmup=0, ramp=1, sieve=0), trusted=trusted)
    batch = batch_at(method, rows, 3)
    wrong = replace(batch, y=method.net(batch.x).argmin(1))
    p = method.net(batch.x).softmax(1)
    own = torch.nn.functional.cross_entropy(method.net(batch.x), wrong.y, reduction="none")
    losses = own + 2 * (p.log() / CLASSES).sum(1)
    assert_minimizes(method, wrong, losses[trusted[batch.index]].mean())
    staged = method.kept.take_staged()
    assert staged is not None
    assert torch.equal(staged[1], trusted[batch.index])


def test_label_shares_are_those_of_kept_rows_and_sum_to_one() -> None:
    method, rows = ready(CORES2())
    torch.testing.assert_close(method.shares, torch.full((3,), 1 / 3))
    method.kept.values.copy_((OBSERVED != 0) | (torch.arange(ROWS) < 30))  # half of the first class
    list(method.passes(0, rows))
    torch.testing.assert_close(method.shares, torch.tensor([0.2, 0.4, 0.4]))
    method.kept.values.zero_()
    list(method.passes(1, rows))
    torch.testing.assert_close(method.shares, torch.tensor([0.2, 0.4, 0.4]))


def test_two_processes_learn_what_one_does() -> None:
    method, rows = ready(CORES2(warmup=0, ramp=1, sieve=0))
    batch = batch_at(method, rows, 3)
    with torch.no_grad():
        method.net.head.weight.mul_(8)
    alone = gradient(method, batch)
    assert 0 < float(method.loss(batch)["kept"]) < 1
    torch.testing.assert_close(joint_gradient(method, batch, 25), alone, rtol=1e-4, atol=1e-6)
