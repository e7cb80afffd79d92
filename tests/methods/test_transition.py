"""T from anchor rows, and the forward loss."""

import pytest
import torch

from colafier.methods._transition import anchor_transition, forward_loss


def test_anchors_are_the_largest_below_the_quantile() -> None:
    p = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)).pow(4)
    p = p / p.sum(1, keepdim=True)
    rows = []
    for i in range(3):
        column = sorted(p[:, i].tolist())
        limit = column[-(-97 * 199 // 100)]  # the 97th percentile, the higher of two neighbors
        best = max((float(p[n, i]), n) for n in range(200) if float(p[n, i]) < limit)[1]
        rows.append(p[best])
    torch.testing.assert_close(anchor_transition(p), torch.stack(rows))
    assert not torch.equal(anchor_transition(p), anchor_transition(p, quantile=1.0))


def test_exact_probabilities_give_the_matrix_of_the_noise() -> None:
    true_t = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]])
    clean = torch.rand(300, 3, generator=torch.Generator().manual_seed(0)).pow(9)
    clean = clean / clean.sum(1, keepdim=True)
    clean[:60] = torch.eye(3).repeat(20, 1)  # anchors: more than are above the quantile
    torch.testing.assert_close(anchor_transition(clean @ true_t), true_t)


def test_a_rare_class_has_its_anchor_at_the_top() -> None:
    p = torch.tensor([[0.9, 0.1]]).repeat(100, 1)
    p[:2] = torch.tensor([[0.2, 0.8], [0.3, 0.7]])  # the only rows of the second class
    torch.testing.assert_close(anchor_transition(p)[1], torch.tensor([0.2, 0.8]))


def test_a_class_that_is_found_nowhere_has_clean_labels() -> None:
    p = torch.tensor([[0.6, 0.3, 0.1], [0.3, 0.6, 0.1]]).repeat(20, 1)
    expected = torch.tensor([[0.6, 0.3, 0.1], [0.3, 0.6, 0.1], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(anchor_transition(p), expected)


def test_one_row() -> None:
    t = anchor_transition(torch.tensor([[0.2, 0.8]]))
    torch.testing.assert_close(t, torch.tensor([[1.0, 0.0], [0.2, 0.8]]))


def test_forward_loss_row_by_row() -> None:
    g = torch.Generator().manual_seed(0)
    logits, observed = torch.randn(9, 3, generator=g), torch.arange(9) % 3
    t = torch.tensor([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.3, 0.1, 0.6]])
    p = logits.softmax(1)
    for n, loss in enumerate(forward_loss(logits, observed, t).tolist()):
        noisy = sum(float(p[n, i] * t[i, observed[n]]) for i in range(3))
        assert loss == pytest.approx(-torch.tensor(noisy).log().item(), rel=1e-5)


def test_forward_loss_without_noise_is_cross_entropy() -> None:
    logits, observed = torch.randn(9, 3), torch.arange(9) % 3
    expected = torch.nn.functional.cross_entropy(logits, observed, reduction="none")
    torch.testing.assert_close(forward_loss(logits, observed, torch.eye(3)), expected)


def test_a_label_that_cannot_be_has_a_finite_loss_and_slope() -> None:
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    loss = forward_loss(logits, torch.tensor([1]), torch.eye(2))
    loss.sum().backward()
    assert torch.isfinite(loss).all()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
