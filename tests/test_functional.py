import math

import pytest
import torch
from torch import Tensor

from colafier.functional import cross_entropy, draw_wrong, gce

LOGITS = 3 * torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(12) % 5
SOFT = torch.randn(12, 5, generator=torch.Generator().manual_seed(1)).softmax(1)


def probabilities(logits: list[float]) -> list[float]:
    exponents = [math.exp(value) for value in logits]
    return [value / sum(exponents) for value in exponents]


def slow_cross_entropy(logits: list[float], label: list[float]) -> float:
    """Section 3.2: minus the sum over classes of y ln p."""
    p = probabilities(logits)
    return -sum(label[j] * math.log(p[j]) for j in range(len(p)))


def slow_gce(logits: list[float], label: list[float], q: float) -> float:
    """Eq. 3.18: the sum over classes of y (1 - p^q) / q."""
    p = probabilities(logits)
    return sum(label[j] * (1 - p[j] ** q) / q for j in range(len(p)))


def one_hot(labels: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(labels, 5).float()


def test_cross_entropy_row_by_row() -> None:
    for target, soft in ((LABELS, one_hot(LABELS)), (SOFT, SOFT)):
        rows = zip(LOGITS.tolist(), soft.tolist(), strict=True)
        expected = [slow_cross_entropy(logits, label) for logits, label in rows]
        torch.testing.assert_close(cross_entropy(LOGITS, target), torch.tensor(expected))


@pytest.mark.parametrize("q", [0.1, 0.7, 1.0])
def test_gce_row_by_row(q: float) -> None:
    for target, soft in ((LABELS, one_hot(LABELS)), (SOFT, SOFT)):
        rows = zip(LOGITS.tolist(), soft.tolist(), strict=True)
        expected = [slow_gce(logits, label, q) for logits, label in rows]
        torch.testing.assert_close(gce(LOGITS, target, q), torch.tensor(expected))


def test_gce_has_the_recommended_q() -> None:
    torch.testing.assert_close(gce(LOGITS, LABELS), gce(LOGITS, LABELS, 0.7))


@pytest.mark.parametrize("q", [1e-3, 1e-6])
def test_gce_approaches_cross_entropy_for_small_q(q: float) -> None:
    torch.testing.assert_close(
        gce(LOGITS, LABELS, q), cross_entropy(LOGITS, LABELS), rtol=20 * q + 1e-5, atol=1e-5
    )


def test_gce_is_the_mean_absolute_error_for_q_one() -> None:
    """|p - y| summed over classes is 2 (1 - p_y); GCE is half of it, as its paper says."""
    error = (LOGITS.softmax(1) - one_hot(LABELS)).abs().sum(1) / 2
    torch.testing.assert_close(gce(LOGITS, LABELS, 1.0), error)


@pytest.mark.parametrize("gap", [50.0, 200.0, 1e4])
def test_gce_has_a_finite_gradient_where_the_probability_vanishes(gap: float) -> None:
    logits = torch.tensor([[0.0, gap], [gap, 0.0]], requires_grad=True)
    loss = gce(logits, torch.tensor([0, 0]))
    loss.sum().backward()
    torch.testing.assert_close(loss.detach(), torch.tensor([1 / 0.7, 0.0]), rtol=1e-4, atol=1e-6)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_gce_gradient_by_hand() -> None:
    """The slope of (1 - p^q) / q in the label's logit is -p^q (1 - p)."""
    logits = LOGITS.clone().requires_grad_()
    gce(logits, LABELS, 0.7).sum().backward()
    p = LOGITS.softmax(1).gather(1, LABELS[:, None])[:, 0]
    assert logits.grad is not None
    slope = logits.grad.gather(1, LABELS[:, None])[:, 0]
    torch.testing.assert_close(slope, -(p**0.7) * (1 - p), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_a_wrong_label_is_another_class(num_classes: int) -> None:
    torch.manual_seed(0)
    labels = torch.arange(5000) % num_classes
    wrong = draw_wrong(labels, num_classes)
    assert (wrong != labels).all()
    assert ((wrong >= 0) & (wrong < num_classes)).all()


def test_wrong_labels_are_uniform_over_the_other_classes() -> None:
    torch.manual_seed(0)
    n, num_classes = 8000, 5
    counts = draw_wrong(torch.full((n,), 2), num_classes).bincount(minlength=num_classes)
    expected, deviation = n / 4, math.sqrt(n * 0.25 * 0.75)
    others = counts[[0, 1, 3, 4]]
    assert ((others - expected).abs() < 5 * deviation).all()


def test_wrong_labels_are_drawn_anew() -> None:
    torch.manual_seed(0)
    labels = torch.zeros(100, dtype=torch.long)
    assert not torch.equal(draw_wrong(labels, 10), draw_wrong(labels, 10))
