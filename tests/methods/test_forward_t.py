"""What is special to forward correction: two nets one after the other, and T between them."""

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
from colafier.methods.forward_t import ForwardT


def state(net: torch.nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in net.parameters()]


def test_first_the_first_net_learns_then_the_second() -> None:
    method, rows = ready(ForwardT(), epochs=4)
    assert method.resolved() == {"warmup": 2}
    first, second = state(method.first), state(method.net)
    run_pass(method, rows, [0, 1])
    assert method.deployed() is method.first
    assert all(torch.equal(a, b) for a, b in zip(second, state(method.net), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, state(method.first), strict=True))
    first = state(method.first)
    run_pass(method, rows, [2])
    assert method.deployed() is method.net
    assert all(torch.equal(a, b) for a, b in zip(first, state(method.first), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(second, state(method.net), strict=True))


def test_t_is_read_off_the_most_likely_epoch_of_the_first_net() -> None:
    method, rows = ready(ForwardT(warmup=3), epochs=6)
    accurate = confident(OBSERVED, 0.4)
    likely = confident(OBSERVED.clamp(min=1), 0.6)  # though it does not know the first class
    wrong = confident((OBSERVED + 1) % CLASSES, 0.9)
    act(method, method.first, rows, [accurate, likely, wrong])
    run_pass(method, rows, [3])
    torch.testing.assert_close(method.transition, anchor_transition(likely))


def test_a_run_that_goes_on_for_much_longer_stays_with_the_second_net() -> None:
    short, rows = ready(ForwardT(), epochs=4)
    run_pass(short, rows, range(4))
    method, _ = ready(ForwardT(), epochs=12)
    method.load_state_dict(short.state_dict())
    assert method.resolved() == {"warmup": 6}
    run_pass(method, rows, [4])
    assert method.deployed() is method.net
    assert not torch.equal(method.net.head.weight, short.net.head.weight)
    assert torch.equal(method.first.head.weight, short.first.head.weight)
    assert torch.equal(method.transition, short.transition)


def test_held_out_rows_train_the_second_net_only() -> None:
    method, rows = ready(ForwardT(warmup=1, holdout=0.2), epochs=4)
    assert len(batch_at(method, rows, 0)) == ROWS - 12
    assert len(batch_at(method, rows, 1)) == ROWS


def test_loss_of_the_second_net_row_by_row() -> None:
    method, rows = ready(ForwardT(warmup=1), epochs=4)
    batch = batch_at(method, rows, 1)
    method.transition.copy_(torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]]))
    p, t = method.net(batch.x).softmax(1), method.transition.tolist()
    total = torch.zeros(())
    for n, y in enumerate(batch.y.tolist()):
        total = total - sum(p[n, i] * t[i][y] for i in range(CLASSES)).log()
    assert_minimizes(method, batch, total / ROWS)


def found(transition: torch.Tensor) -> float:
    """Share of the first class that the second net finds, when most labels of it are wrong."""
    noisy = torch.where((OBSERVED == 0) & (torch.arange(ROWS) % 5 > 1), 1, OBSERVED)
    method, rows = ready(ForwardT(warmup=1), epochs=40, observed=noisy)
    run_pass(method, rows, [0])
    list(method.passes(1, rows))
    method.transition.copy_(transition)
    run_pass(method, rows, range(2, 40))
    prediction = rows.predict(method.net).argmax(1)
    return float((prediction == 0)[OBSERVED == 0].float().mean())


def test_it_learns_the_clean_class_where_t_says_so() -> None:
    knowing = torch.tensor([[0.4, 0.6, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert found(knowing) > found(torch.eye(CLASSES)) + 0.2
