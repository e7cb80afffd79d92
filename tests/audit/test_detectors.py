"""Detection baselines: what they rank, row by row, and how well on digits."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from math import nan, sqrt

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from torch import Tensor

from colafier.audit import detectors
from colafier.audit.detectors import (
    confident_learning,
    knn_voting,
    margin,
    mean_margin,
    small_loss,
)

needs_cleanlab = pytest.mark.skipif(
    find_spec("cleanlab") is None, reason="pip install 'colafier[bench]'"
)
N, CLASSES = 60, 4
G = torch.Generator().manual_seed(0)
LABELS = torch.randint(CLASSES, (N,), generator=G)
OBSERVED = torch.where(torch.arange(N) % 7 == 3, -1, LABELS)
FEATURES = torch.randn(N, 3, generator=G) + torch.eye(CLASSES, 3)[LABELS]
LOGITS = 2 * torch.randn(N, CLASSES, generator=G) + torch.eye(CLASSES)[LABELS]


def noisy(truth: Tensor, share: float, num_classes: int) -> Tensor:
    """Every so many-th label moved to the next class."""
    wrong = torch.arange(len(truth)) % round(1 / share) == 0
    return torch.where(wrong, (truth + 1) % num_classes, truth)


def auroc(quality: Tensor, observed: Tensor, truth: Tensor) -> float:
    return float(roc_auc_score((observed != truth).numpy(), 1 - quality.numpy()))


# confident learning


@needs_cleanlab
def test_confident_learning_prunes_by_its_thresholds() -> None:
    """By hand: class averages of own probability are thresholds; rows above another's are moved."""
    sure, other = [0.9, 0.1], [0.2, 0.8]
    p = torch.tensor([sure] * 8 + [other] * 2 + [other] * 10)
    observed = torch.tensor([0] * 10 + [1] * 10)  # rows 8 and 9 look like the other class
    quality = confident_learning(p, observed)
    assert (quality < 0.5).nonzero()[:, 0].tolist() == [8, 9]
    torch.testing.assert_close(quality[8:10], torch.tensor([0.1, 0.1]))
    torch.testing.assert_close(quality[:8], torch.full((8,), 0.95))


@needs_cleanlab
def test_confident_learning_agrees_with_cleanlab() -> None:
    from cleanlab.filter import find_label_issues

    p = LOGITS.softmax(1)
    flagged = find_label_issues(LABELS.numpy(), p.double().numpy(), n_jobs=1)
    assert 0 < flagged.sum() < N
    assert np.array_equal((confident_learning(p, LABELS) < 0.5).numpy(), flagged)


@needs_cleanlab
@pytest.mark.filterwarnings("ignore:May not flag all label issues")
@pytest.mark.parametrize("n", [1, 2, 5])
def test_confident_learning_of_few_rows_and_a_class_without_any(n: int) -> None:
    quality = confident_learning(LOGITS[:n].softmax(1), torch.arange(n) % 2)
    assert ((quality >= 0) & (quality <= 1)).all()


@needs_cleanlab
def test_confident_learning_leaves_out_rows_without_probabilities() -> None:
    p = LOGITS.softmax(1)
    broken = p.clone()
    broken[3], broken[4] = nan, 0.0
    others = torch.ones(N, dtype=torch.bool)
    others[3:5] = False
    quality = confident_learning(broken, LABELS)
    assert (quality[3:5] == 1).all()
    assert torch.equal(quality[others], confident_learning(p[others], LABELS[others]))


def test_without_cleanlab_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cleanlab.filter", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'colafier\[bench\]'"):
        confident_learning(LOGITS.softmax(1), LABELS)


# losses


def test_small_loss_is_the_share_of_rows_with_a_larger_one() -> None:
    losses = torch.randint(6, (N,), generator=torch.Generator().manual_seed(1)).float()
    losses[5] = nan
    quality = small_loss(losses, OBSERVED)
    rows = [i for i in range(N) if OBSERVED[i] >= 0 and i != 5]
    for i in range(N):
        larger = sum(float(losses[j] > losses[i]) for j in rows)
        equal = sum(float(losses[j] == losses[i]) for j in rows)
        expected = (larger + equal / 2) / len(rows) if i in rows else 1.0
        assert float(quality[i]) == pytest.approx(expected), i


def test_small_loss_takes_any_loss() -> None:
    losses = torch.tensor([-20.0, 1e-9, 2e-9, 500.0, torch.inf])
    quality = small_loss(losses, torch.zeros(5, dtype=torch.long))
    torch.testing.assert_close(quality, torch.tensor([0.9, 0.7, 0.5, 0.3, 0.1]))


# margins


def test_margins_row_by_row() -> None:
    for i, (row, label) in enumerate(zip(LOGITS.tolist(), OBSERVED.tolist(), strict=True)):
        others = [value for j, value in enumerate(row) if j != label]
        expected = row[label] - max(others) if label >= 0 else 0.0
        assert float(margin(LOGITS, OBSERVED)[i]) == pytest.approx(expected, abs=1e-6), i


def test_mean_margin_keeps_the_order_and_has_its_middle_where_two_classes_are_level() -> None:
    margins = torch.tensor([-torch.inf, -300.0, -1.0, 0.0, 1.0, 40.0, 41.0, torch.inf])
    quality = mean_margin(margins, torch.zeros(8, dtype=torch.long))
    assert (quality.diff() > 0).all()
    assert float(quality[3]) == 0.5
    assert (float(quality[0]), float(quality[-1])) == (0.0, 1.0)
    unknown = mean_margin(torch.tensor([nan, -1.0]), torch.tensor([0, -1]))
    assert unknown.tolist() == [1.0, 1.0]


# neighbors


def slow_vote(features: Tensor, observed: Tensor, i: int, k: int) -> float:
    """The vote on one row, from the description of SimiFeat."""

    def cosine(a: Tensor, b: Tensor) -> float:
        return float(a @ b) / sqrt(float(a @ a) * float(b @ b))

    near = sorted(
        (1 - cosine(features[i], features[j]), j)
        for j in range(len(observed))
        if j != i and observed[j] >= 0
    )[: k - 1]
    itself = 2 * near[0][0] - near[1][0]
    votes = [0.0] * CLASSES
    for distance, j in [(itself, i), *near]:
        votes[int(observed[j])] += min(max(1 - distance, 0.0), 1.0)
    return votes[int(observed[i])] / sqrt(sum(v * v for v in votes))


@pytest.mark.parametrize("k", [3, 10, 45])
@pytest.mark.parametrize("numbers", [1, 500, 2**24])
def test_votes_row_by_row_however_rows_are_cut(
    k: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detectors, "CHUNK_NUMBERS", numbers)
    quality = knn_voting(FEATURES, OBSERVED, k)
    for i in range(N):
        expected = slow_vote(FEATURES, OBSERVED, i, k) if OBSERVED[i] >= 0 else 1.0
        assert float(quality[i]) == pytest.approx(expected, abs=1e-5), i


def test_no_more_than_a_chunk_is_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    votes = detectors._votes

    def watched(z: Tensor, labels: Tensor, place: Tensor, *rest: int) -> Tensor:
        sizes.append(len(place) * len(z))
        return votes(z, labels, place, *rest)

    monkeypatch.setattr(detectors, "_votes", watched)
    monkeypatch.setattr(detectors, "CHUNK_NUMBERS", 700)
    knn_voting(FEATURES, LABELS)
    assert len(sizes) == 6  # 60 rows, 11 at a time
    assert max(sizes) <= 700


@pytest.mark.parametrize("n", [1, 2, 3])
def test_votes_of_few_rows(n: int) -> None:
    quality = knn_voting(FEATURES[:n].abs(), torch.zeros(n, dtype=torch.long))
    torch.testing.assert_close(quality, torch.ones(n))


def test_features_without_direction_or_with_broken_values_are_no_evidence() -> None:
    features = FEATURES.clone()
    features[0], features[1] = 0.0, nan
    quality = knn_voting(features, LABELS)
    assert quality[:2].tolist() == [1.0, 1.0]
    assert ((quality >= 0) & (quality <= 1)).all()


def test_a_row_alone_among_another_class_is_suspicious() -> None:
    features = torch.randn(30, 8, generator=G).abs()
    observed = torch.tensor([1] + [0] * 29)
    quality = knn_voting(features, observed)
    assert int(quality.argmin()) == 0
    assert float(quality[0]) < 0.5


def test_fewer_than_two_voters_are_refused() -> None:
    with pytest.raises(ValueError, match="neighbors"):
        knn_voting(FEATURES, LABELS, 1)


# all


Detect = Callable[[Tensor, Tensor], Tensor]


def of_centers(use: Callable[[Tensor, Tensor], Tensor]) -> Detect:
    """A detector that needs logits gets those of the nearest class means, without the row."""

    def detect(x: Tensor, observed: Tensor) -> Tensor:
        member = torch.nn.functional.one_hot(observed, 10).float()  # (n, c)
        total, count = member.T @ x, member.sum(0)[:, None]
        without = (total - member[:, :, None] * x[:, None]) / (count - member[:, :, None])
        return use(-0.01 * (x[:, None] - without).square().sum(2), observed)

    return detect


@pytest.mark.parametrize(
    "detect",
    [
        pytest.param(knn_voting, id="knn"),
        pytest.param(
            of_centers(lambda z, y: confident_learning(z.softmax(1), y)),
            id="confident",
            marks=needs_cleanlab,
        ),
        pytest.param(
            of_centers(
                lambda z, y: small_loss(
                    torch.nn.functional.cross_entropy(z, y, reduction="none"), y
                )
            ),
            id="loss",
        ),
        pytest.param(of_centers(lambda z, y: mean_margin(margin(z, y), y)), id="margin"),
    ],
)
def test_wrong_labels_of_digits_are_found(detect: Detect) -> None:
    data = load_digits()
    x, truth = torch.tensor(data.data[:700]).float(), torch.tensor(data.target[:700])
    observed = noisy(truth, 0.2, 10)
    assert auroc(detect(x, observed), observed, truth) > 0.93


@pytest.mark.parametrize(
    "detect", [pytest.param(confident_learning, marks=needs_cleanlab), knn_voting]
)
def test_no_label_at_all_is_no_issue(detect: Detect) -> None:
    nothing = torch.full((N,), -1)
    torch.testing.assert_close(detect(LOGITS.softmax(1), nothing), torch.ones(N))
