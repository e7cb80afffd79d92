import math

import pytest
import torch
from torch import Tensor

from colafier.core import losses

B, C = 9, 4


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


LABELS = torch.arange(B) % C
WEIGHT = draw(B, seed=0).sigmoid()
VIEWS = [draw(B, C, seed=1), draw(B, C, seed=2)]
OTHER_VIEWS = [draw(B, C, seed=3), draw(B, C, seed=4)]


def probability(logits: Tensor, label: int) -> float:
    exponents = [math.exp(value) for value in logits.tolist()]
    return exponents[label] / sum(exponents)


def slow_ce(logits: Tensor, label: int) -> float:
    return -math.log(probability(logits, label))


def slow_gce(logits: Tensor, label: int) -> float:
    return (1 - probability(logits, label) ** 0.7) / 0.7


def slow_cosine(first: list[float], second: list[float]) -> float:
    product = sum(a * b for a, b in zip(first, second, strict=True))
    return product / (math.hypot(*first) * math.hypot(*second))


@pytest.mark.parametrize(
    ("loss", "slow"), [(losses.clean, slow_ce), (losses.hard, slow_gce)], ids=["clean", "hard"]
)
def test_clean_and_hard_row_by_row(loss, slow) -> None:
    """Eq. 3.16-3.17 and 3.19-3.20, each the mean over the rows."""
    of_gen = of_dis = 0.0
    for i in range(B):
        label = int(LABELS[i])
        once = sum(slow(view[i], label) for view in VIEWS)
        with_other = sum(slow(view[i], label) for view in OTHER_VIEWS)
        of_gen += float(WEIGHT[i]) * once / B
        of_dis += float(WEIGHT[i]) * (once + 0.3 * with_other) / B
    assert float(loss(WEIGHT, VIEWS, LABELS)) == pytest.approx(of_gen, rel=1e-5)
    with_both = loss(WEIGHT, VIEWS, LABELS, OTHER_VIEWS, 0.3)
    assert float(with_both) == pytest.approx(of_dis, rel=1e-5)


def test_soft_labels_row_by_row() -> None:
    targets = draw(B, C, seed=5).softmax(1)
    expected = sum(
        float(targets[i, c]) * slow_ce(view[i], c) / B
        for view in VIEWS
        for i in range(B)
        for c in range(C)
    )
    assert float(losses.soft(VIEWS, targets)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", [losses.clean, losses.hard])
def test_the_other_label_has_the_papers_weight(loss) -> None:
    default = loss(WEIGHT, VIEWS, LABELS, OTHER_VIEWS)
    torch.testing.assert_close(default, loss(WEIGHT, VIEWS, LABELS, OTHER_VIEWS, 0.5))


@pytest.mark.parametrize("loss", [losses.clean, losses.hard])
def test_a_row_without_weight_gives_no_gradient(loss) -> None:
    views = [view.clone().requires_grad_() for view in VIEWS]
    weight = WEIGHT.clone()
    weight[3] = 0
    loss(weight, views, LABELS).backward()
    for view in views:
        assert view.grad is not None
        assert (view.grad[3] == 0).all()
        assert (view.grad[[0, 1, 2, 4]] != 0).any(1).all()


def test_mixed_row_by_row() -> None:
    """One summand of Eq. 3.23-3.24: lambda CE(y_i) + (1 - lambda) CE(y_r(i))."""
    partner = torch.arange(B).flip(0)
    got = losses.mixed(VIEWS[0], LABELS, LABELS[partner], 0.65)
    expected = [
        0.65 * slow_ce(VIEWS[0][i], int(LABELS[i]))
        + 0.35 * slow_ce(VIEWS[0][i], int(LABELS[partner[i]]))
        for i in range(B)
    ]
    torch.testing.assert_close(got, torch.tensor(expected))


def test_mixed_equals_cross_entropy_with_the_mixed_label() -> None:
    partner = torch.arange(B).flip(0)
    one_hot = torch.eye(C)[LABELS]
    soft = 0.65 * one_hot + 0.35 * one_hot[partner]
    expected = torch.nn.functional.cross_entropy(VIEWS[0], soft, reduction="none")
    torch.testing.assert_close(losses.mixed(VIEWS[0], LABELS, LABELS[partner], 0.65), expected)


@pytest.mark.parametrize("on", ["logits", "probabilities"])
def test_consistency_row_by_row(on: str) -> None:
    """Eq. 3.25: the sum over views of 1 - cos."""
    expected = []
    for i in range(B):
        total = 0.0
        for view, other_view in zip(VIEWS, OTHER_VIEWS, strict=True):
            first, second = view[i].tolist(), other_view[i].tolist()
            if on == "probabilities":
                first = [probability(view[i], c) for c in range(C)]
                second = [probability(other_view[i], c) for c in range(C)]
            total += 1 - slow_cosine(first, second)
        expected.append(total)
    got = losses.consistency(VIEWS, OTHER_VIEWS, on)
    torch.testing.assert_close(got, torch.tensor(expected), rtol=1e-4, atol=1e-6)


def test_consistency_is_on_logits_unless_told() -> None:
    torch.testing.assert_close(
        losses.consistency(VIEWS, OTHER_VIEWS), losses.consistency(VIEWS, OTHER_VIEWS, "logits")
    )
    with pytest.raises(ValueError, match="probabilities"):
        losses.consistency(VIEWS, OTHER_VIEWS, "probs")


def test_only_the_logit_cosine_depends_on_a_common_offset() -> None:
    moved = [view + 2 for view in VIEWS]
    same = losses.consistency(VIEWS, moved, "probabilities")
    torch.testing.assert_close(same, torch.zeros(B), rtol=0, atol=1e-6)
    assert (losses.consistency(VIEWS, moved, "logits") > 1e-3).all()


def test_noisy_row_by_row() -> None:
    """Eq. 3.26 without, 3.27 with the consistency loss."""
    mixed_rows, consistency_rows = draw(B, seed=5).exp(), draw(B, seed=6).exp()
    of_gen = of_dis = 0.0
    for w, mixed, consistency in zip(
        WEIGHT.tolist(), mixed_rows.tolist(), consistency_rows.tolist(), strict=True
    ):
        of_gen += w * mixed / B
        of_dis += w * (mixed + 10 * consistency) / B
    assert float(losses.noisy(WEIGHT, mixed_rows)) == pytest.approx(of_gen, rel=1e-5)
    both = losses.noisy(WEIGHT, mixed_rows, consistency_rows)
    assert float(both) == pytest.approx(of_dis, rel=1e-5)


def test_totals_row_by_row() -> None:
    """Eq. 3.28-3.29 whole, both subnets, as the sum of three weighted terms for each row."""
    weights = torch.stack([draw(B, seed=seed) for seed in (7, 8, 9)]).softmax(0)  # (3, b)
    mixed_views, partners = (
        [draw(B, C, seed=10), draw(B, C, seed=11)],
        [
            torch.arange(B).flip(0),
            torch.arange(B).roll(1),
        ],
    )
    keeps = [0.7, 0.4]
    of_gen = of_dis = 0.0
    for i in range(B):
        clean, hard, noisy = weights[:, i].tolist()
        label = int(LABELS[i])
        gen = dis = 0.0
        for k in range(2):
            view, other = VIEWS[k][i], OTHER_VIEWS[k][i]
            ce, gce = slow_ce(view, label), slow_gce(view, label)
            mixed = keeps[k] * slow_ce(mixed_views[k][i], label)
            mixed += (1 - keeps[k]) * slow_ce(mixed_views[k][i], int(LABELS[partners[k][i]]))
            turned = 1 - slow_cosine(view.tolist(), other.tolist())
            gen += clean * ce + hard * gce + noisy * mixed
            dis += clean * (ce + 0.5 * slow_ce(other, label))
            dis += hard * (gce + 0.5 * slow_gce(other, label))
            dis += noisy * (mixed + 10 * turned)
        of_gen += gen / B
        of_dis += dis / B
    clean, hard, noisy = weights
    mixed_rows = torch.zeros(B)
    for view, partner, keep in zip(mixed_views, partners, keeps, strict=True):
        mixed_rows += losses.mixed(view, LABELS, LABELS[partner], keep)
    turned_rows = losses.consistency(VIEWS, OTHER_VIEWS)
    total_gen = losses.clean(clean, VIEWS, LABELS) + losses.hard(hard, VIEWS, LABELS)
    total_gen += losses.noisy(noisy, mixed_rows)
    total_dis = losses.clean(clean, VIEWS, LABELS, OTHER_VIEWS)
    total_dis += losses.hard(hard, VIEWS, LABELS, OTHER_VIEWS)
    total_dis += losses.noisy(noisy, mixed_rows, turned_rows)
    assert float(total_gen) == pytest.approx(of_gen, rel=1e-5)
    assert float(total_dis) == pytest.approx(of_dis, rel=1e-5)


def test_losses_are_finite_for_extreme_logits() -> None:
    views = [torch.tensor([[1e4, -1e4], [-1e4, 1e4], [0.0, 0.0]], requires_grad=True)]
    labels, weight = torch.tensor([1, 1, 0]), torch.ones(3)
    total = losses.clean(weight, views, labels) + losses.hard(weight, views, labels)
    for on in losses.CONSISTENCY_ON:
        other = [view.detach().flip(1) for view in views]
        mixed = losses.mixed(views[0], labels, labels.flip(0), 0.5)
        total = total + losses.noisy(weight, mixed, losses.consistency(views, other, on))
    total.backward()
    assert total.isfinite()
    assert views[0].grad is not None
    assert views[0].grad.isfinite().all()
