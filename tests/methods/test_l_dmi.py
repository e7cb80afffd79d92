"""What is special to L_DMI: the determinant, its invariance, and batches where it is zero."""

from dataclasses import replace
from itertools import permutations

import pytest
import torch
from in_phases import (
    CLASSES,
    ROWS,
    assert_minimizes,
    batch_at,
    gradient,
    joint_gradient,
    ready,
    run_pass,
)
from torch import Tensor

from colafier.methods.contract import Batch
from colafier.methods.l_dmi import LDMI


def slow_determinant(u: Tensor) -> Tensor:
    """By permutations."""
    total = torch.zeros(())
    for order in permutations(range(len(u))):
        swaps = sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])
        product = torch.tensor(-1.0 if swaps % 2 else 1.0)
        for i, j in enumerate(order):
            product = product * u[i, j]
        total = total + product
    return total


def slow_loss(method: LDMI, batch: Batch, classes: list[int]) -> Tensor:
    """From predictions of some classes, summed by observed label row by row."""
    p = method.net(batch.x).softmax(1)
    sums = {i: torch.zeros(len(classes)) for i in classes}
    for n, y in enumerate(batch.y.tolist()):
        sums[y] = sums[y] + p[n, classes]
    return -(slow_determinant(torch.stack([sums[i] for i in classes])).abs() + 0.001).log()


def dmi(method: LDMI, batch: Batch, y: Tensor) -> float:
    return float(method.loss(replace(batch, y=y))["dmi"].detach())


def test_loss_row_by_row() -> None:
    method, rows = ready(LDMI(warmup=1))
    batch = batch_at(method, rows, 1)
    assert_minimizes(method, batch, slow_loss(method, batch, [0, 1, 2]))


def test_noise_by_class_adds_a_constant_whatever_the_classifier() -> None:
    """Every row four times, one of them with the next class: exactly a quarter of labels wrong."""
    method, rows = ready(LDMI(warmup=1))
    batch = batch_at(method, rows, 1)
    four = replace(batch, index=batch.index.repeat(4), views=(batch.x.repeat(4, 1),))
    clean = batch.y.repeat(4)
    noisy = torch.where(torch.arange(4 * ROWS) < ROWS, (clean + 1) % CLASSES, clean)
    added = []
    for scale in (1.0, 4.0):
        with torch.no_grad():
            method.net.head.weight.mul_(scale)
        added.append(dmi(method, four, noisy) - dmi(method, four, clean))
    t = 0.75 * torch.eye(CLASSES) + 0.25 * torch.eye(CLASSES).roll(1, 1)
    assert added == pytest.approx([-t.det().abs().log().item()] * 2, rel=1e-2)


@pytest.mark.parametrize("classes", [[0, 2], [1]])
def test_a_class_that_is_not_in_the_batch_is_left_out(classes: list[int]) -> None:
    method, rows = ready(LDMI(warmup=1))
    batch = batch_at(method, rows, 1)
    there = torch.isin(batch.y, torch.tensor(classes))
    some = Batch(batch.index[there], batch.y[there], (batch.x[there],), 1, 1.0)
    assert set(method.loss(some)) == {"dmi"}
    assert_minimizes(method, some, slow_loss(method, some, classes))


def test_a_class_without_any_row_has_no_share_of_a_batch() -> None:
    method, rows = ready(LDMI(warmup=1, rows_per_class=5), observed=torch.arange(ROWS) % 2)
    assert next(iter(method.passes(1, rows))).batch_size == 10


def test_a_batch_whose_determinant_is_zero_is_cross_entropy() -> None:
    method, rows = ready(LDMI(warmup=1))
    batch = batch_at(method, rows, 1)
    with torch.no_grad():
        method.net.head.weight.zero_()
        method.net.head.bias.copy_(torch.tensor([200.0, 0.0, 0.0]))
    expected = torch.nn.functional.cross_entropy(method.net(batch.x), batch.y)
    torch.testing.assert_close(method.loss(batch)["ce"], expected)


@pytest.mark.parametrize("by_class", [False, True])
def test_two_processes_learn_what_one_does(by_class: bool) -> None:
    """Also where one of them has no row of a class."""
    method, rows = ready(LDMI(warmup=1))
    batch = batch_at(method, rows, 1)
    order = batch.y.argsort() if by_class else torch.arange(ROWS)
    batch = Batch(batch.index[order], batch.y[order], (batch.x[order],), 1, 1.0)
    alone = gradient(method, batch)
    torch.testing.assert_close(joint_gradient(method, batch, 25), alone, rtol=1e-3, atol=1e-5)


def test_dmi_starts_from_the_best_epoch_and_trains_all_rows_at_its_own_rate() -> None:
    method, rows = ready(LDMI(warmup=1, rows_per_class=5, rate=0.3))
    run_pass(method, rows, [0])
    kept = method.net.head.weight.detach().clone()
    with torch.no_grad():
        method.net.head.weight.zero_()
    part = next(iter(method.passes(1, rows)))
    assert torch.equal(method.net.head.weight, kept)
    assert part.rows is None
    assert (part.lr_scale, part.batch_size, part.restart) == (0.3, 15, ("net",))
    assert part.drop_last


def test_fewer_rows_than_a_batch_are_one_batch() -> None:
    method, rows = ready(LDMI(warmup=1, rows_per_class=26))
    part = next(iter(method.passes(1, rows)))
    assert rows.steps(part) == 1
