"""What is special to JoCoR: the joint loss, and that it stays finite."""

from math import log

import pytest
import torch
from one_batch import CLASSES, ROWS, ready, row_losses, smallest

from colafier.methods.jocor import JoCoR, disagreement


def far_apart(method: JoCoR, times: float) -> None:
    """Nets that are sure of what they say, and disagree."""
    with torch.no_grad():
        for net in method.net:
            net.head.weight *= times


def test_loss_row_by_row() -> None:
    method, batch = ready(JoCoR(noise_rate=0.3, agreement=0.65), epoch=20)
    far_apart(method, 10)
    logits = [net(batch.x) for net in method.net]
    p, q = (some.detach().softmax(1).tolist() for some in logits)
    first, second = (row_losses(some, batch.y) for some in logits)
    joint = []
    for i in range(ROWS):
        kl = sum(
            p[i][c] * log(p[i][c] / q[i][c]) + q[i][c] * log(q[i][c] / p[i][c])
            for c in range(CLASSES)
        )
        joint.append(0.35 * (first[i] + second[i]) + 0.65 * kl)
    chosen = smallest(joint, list(range(ROWS)), 0.3)
    by_labels = smallest(
        [a + b for a, b in zip(first, second, strict=True)], list(range(ROWS)), 0.3
    )
    assert len(chosen) == 28
    assert len(set(chosen) - set(by_labels)) >= 3
    terms = method.loss(batch)
    value = sum(float(term.detach()) for term in terms.values())
    assert value == pytest.approx(sum(joint[i] for i in chosen) / 28, rel=1e-4)


def test_far_apart_logits_give_finite_gradients_to_both_nets() -> None:
    """A probability of 0 gave gradients that are no numbers to the authors' code."""
    first = torch.tensor([[200.0, 0.0, 0.0]], requires_grad=True)
    second = torch.tensor([[0.0, 200.0, 0.0]], requires_grad=True)
    value = disagreement(first, second)
    value.sum().backward()
    assert float(value.detach()) == pytest.approx(400)
    for gradient in (first.grad, second.grad):
        assert gradient is not None
        assert torch.isfinite(gradient).all()
        assert gradient.any()


def test_agreement_teaches_both_nets_with_the_slope_of_both_divergences() -> None:
    method, batch = ready(JoCoR(agreement=0.8))
    far_apart(method, 5)
    p, q = (net(batch.x).softmax(1) for net in method.net)
    divergence = (p * (p / q).log()).sum(1) + (q * (q / p).log()).sum(1)
    parameters = list(method.net.parameters())
    expected = torch.autograd.grad(0.8 * divergence.mean(), parameters)
    found = torch.autograd.grad(method.loss(batch)["agreement"], parameters)
    assert all(slope.any() for slope in expected)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
