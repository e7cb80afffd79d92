"""What is special to L_DMI: the determinant, its invariance, and batches where it is zero."""

from dataclasses import replace
from itertools import permutations

import pytest
import torch
from in_phases import CLASSES, ROWS, batch_at, gradient, joint_gradient, ready, share_of, walk
from torch import Tensor

from colafier.methods.l_dmi import LDMI


def slow_determinant(u: list[list[float]]) -> float:
    """By permutations."""
    total = 0.0
    for order in permutations(range(len(u))):
        swaps = sum(a > b for i, a in enumerate(order) for b in order[i + 1 :])
        product = -1.0 if swaps % 2 else 1.0
        for i, j in enumerate(order):
            product *= u[i][j]
        total += product
    return total


def dmi(method: LDMI, batch: object, y: Tensor) -> float:
    return float(method.loss(replace(batch, y=y))["dmi"].detach())  # type: ignore[type-var]


def test_loss_row_by_row() -> None:
    method, rows = ready(LDMI(warmup=1))
    batch = batch_at(method, rows, 1)
    p = method.net(batch.x).softmax(1).tolist()
    u = [[0.0] * CLASSES for _ in range(CLASSES)]
    for n, y in enumerate(batch.y.tolist()):
        for j in range(CLASSES):
            u[y][j] += p[n][j]
    expected = -torch.tensor(abs(slow_determinant(u)) + 0.001).log().item()
    assert dmi(method, batch, batch.y) == pytest.approx(expected, rel=1e-3)


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


def test_a_batch_without_a_class_is_cross_entropy() -> None:
    method, rows = ready(LDMI(warmup=1))
    batch = batch_at(method, rows, 1)
    for some in (share_of(batch, slice(0, 1)), replace(batch, y=batch.y.clamp(max=1))):
        terms = method.loss(some)
        expected = torch.nn.functional.cross_entropy(method.net(some.x), some.y)
        torch.testing.assert_close(terms["ce"], expected)


def test_a_class_without_any_row_is_left_out() -> None:
    method, rows = ready(LDMI(warmup=1), given=(torch.arange(ROWS) % 2))
    batch = batch_at(method, rows, 1)
    p = method.net(batch.x).softmax(1)
    u = [p[batch.y == i].sum(0)[:2].tolist() for i in range(2)]
    expected = -torch.tensor(abs(slow_determinant(u)) + 0.001).log().item()
    assert dmi(method, batch, batch.y) == pytest.approx(expected, rel=1e-3)


def test_two_processes_learn_what_one_does() -> None:
    method, rows = ready(LDMI(warmup=1))
    batch = batch_at(method, rows, 1)
    alone = gradient(method, batch)
    torch.testing.assert_close(joint_gradient(method, batch, 25), alone, rtol=1e-3, atol=1e-5)


def test_dmi_starts_from_the_best_epoch_and_trains_all_rows_at_its_own_rate() -> None:
    method, rows = ready(LDMI(warmup=1, rows_per_class=5, rate=0.3))
    walk(method, rows, [0])
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


@pytest.mark.parametrize(("name", "value"), [("warmup", 0), ("rate", -1.0), ("rows_per_class", 0)])
def test_values_without_meaning_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        LDMI(**{name: value})  # type: ignore[arg-type]
