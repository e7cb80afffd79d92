import math

import pytest
import torch
from torch import Tensor

from colafier.core.functional import (
    clamped,
    cross_entropy,
    draw_other,
    early_learning,
    gce,
    generalized_js,
)

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
def test_the_other_label_is_another_class(num_classes: int) -> None:
    torch.manual_seed(0)
    labels = torch.arange(5000) % num_classes
    other = draw_other(labels, num_classes)
    assert (other != labels).all()
    assert ((other >= 0) & (other < num_classes)).all()


def test_other_labels_are_uniform_over_the_other_classes() -> None:
    torch.manual_seed(0)
    n, num_classes = 8000, 5
    counts = draw_other(torch.full((n,), 2), num_classes).bincount(minlength=num_classes)
    expected, deviation = n / 4, math.sqrt(n * 0.25 * 0.75)
    others = counts[[0, 1, 3, 4]]
    assert ((others - expected).abs() < 5 * deviation).all()


def test_other_labels_are_drawn_at_each_call() -> None:
    torch.manual_seed(0)
    labels = torch.zeros(100, dtype=torch.long)
    assert not torch.equal(draw_other(labels, 10), draw_other(labels, 10))


VIEWS = [3 * torch.randn(12, 5, generator=torch.Generator().manual_seed(i)) for i in range(3)]


def slow_js(views: list[list[float]], label: int, weight: float) -> float:
    """Sum of pi_i KL(d_i || m) over label and views, divided by -(1 - pi_1) ln(1 - pi_1)."""
    distributions = [[float(j == label) for j in range(5)], *map(probabilities, views)]
    weights = [weight] + [(1 - weight) / len(views)] * len(views)
    pairs = list(zip(weights, distributions, strict=True))
    mean = [sum(w * d[j] for w, d in pairs) for j in range(5)]
    total = sum(w * d[j] * math.log(d[j] / mean[j]) for w, d in pairs for j in range(5) if d[j] > 0)
    return total / (-(1 - weight) * math.log(1 - weight))


@pytest.mark.parametrize("weight", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_generalized_js_row_by_row(count: int, weight: float) -> None:
    views = VIEWS[:count]
    expected = [
        slow_js([view[i].tolist() for view in views], int(LABELS[i]), weight) for i in range(12)
    ]
    torch.testing.assert_close(generalized_js(views, LABELS, weight), torch.tensor(expected))


def test_js_lies_between_cross_entropy_and_mean_absolute_error() -> None:
    error = (LOGITS.softmax(1) - one_hot(LABELS)).abs().sum(1) / 2
    small, large = generalized_js([LOGITS], LABELS, 1e-3), generalized_js([LOGITS], LABELS, 0.9999)
    likely = LOGITS.softmax(1).gather(1, LABELS[:, None])[:, 0] > 0.02  # far above the weight
    ce = cross_entropy(LOGITS, LABELS)
    torch.testing.assert_close(small[likely], ce[likely], rtol=0.05, atol=0.01)
    torch.testing.assert_close(large, error, rtol=0.1, atol=0.01)


def test_generalized_js_also_asks_the_views_to_agree() -> None:
    """Two views with the same probability of the label, once alike and once not."""
    one, other = torch.tensor([[1.0, 3.0, 0.0]]), torch.tensor([[1.0, 0.0, 3.0]])
    label = torch.tensor([0])
    alike, apart = generalized_js([one, one], label, 0.3), generalized_js([one, other], label, 0.3)
    assert float(apart) > float(alike) + 0.1
    torch.testing.assert_close(alike, generalized_js([one], label, 0.3))


@pytest.mark.parametrize("gap", [50.0, 1e4])
def test_generalized_js_is_bounded_and_has_a_finite_gradient(gap: float) -> None:
    views = [torch.tensor([[0.0, gap], [gap, 0.0]], requires_grad=True) for _ in range(2)]
    loss = generalized_js(views, torch.tensor([0, 0]), 0.3)
    loss.sum().backward()
    limit = math.log(0.3) * 0.3 / (0.7 * math.log(0.7)) + 1
    torch.testing.assert_close(loss.detach(), torch.tensor([limit, 0.0]), rtol=1e-4, atol=1e-5)
    assert all(view.grad is not None and view.grad.isfinite().all() for view in views)


def test_early_learning_row_by_row() -> None:
    expected = [
        math.log(1 - sum(t * p for t, p in zip(row, probabilities(logits), strict=True)))
        for row, logits in zip(SOFT.tolist(), (LOGITS / 3).tolist(), strict=True)
    ]
    torch.testing.assert_close(early_learning(LOGITS / 3, SOFT), torch.tensor(expected))


def test_early_learning_gradient_by_hand() -> None:
    """The slope in logit c is p_c (<p, t> - t_c) / (1 - <p, t>); the target gets none."""
    logits, targets = (LOGITS / 3).requires_grad_(), SOFT.clone().requires_grad_()
    early_learning(logits, targets).sum().backward()
    p = logits.detach().softmax(1)
    agreement = (p * SOFT).sum(1, keepdim=True)
    torch.testing.assert_close(logits.grad, p * (agreement - SOFT) / (1 - agreement))
    assert targets.grad is None


def test_early_learning_is_bounded_where_net_and_target_are_certain() -> None:
    logits = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    values = early_learning(logits, torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    values.sum().backward()
    expected = torch.tensor([math.log(1e-4), math.log(1 - 1e-4)])
    torch.testing.assert_close(values.detach(), expected, rtol=1e-3, atol=1e-6)
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_clamped_probabilities_stay_off_the_ends() -> None:
    p = clamped(torch.tensor([[200.0, 0.0], [0.0, 0.0]]))
    torch.testing.assert_close(p, torch.tensor([[1 - 1e-4, 1e-4], [0.5, 0.5]]))
