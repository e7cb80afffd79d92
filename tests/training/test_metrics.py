from itertools import product

import pytest
import torch
from torch import Tensor, nn

from colafier.methods.contract import Method, Purified
from colafier.training.metrics import Metrics

N = 40
g = torch.Generator().manual_seed(0)
TRUTH = torch.randint(3, (N,), generator=g)
OBSERVED = torch.where(torch.rand(N, generator=g) < 0.4, (TRUTH + 1) % 3, TRUTH)
LABELS = torch.where(torch.rand(N, generator=g) < 0.5, TRUTH, OBSERVED)
LABELS[0] = (OBSERVED[0] + 2) % 3 if OBSERVED[0] == TRUTH[0] else OBSERVED[0]
SCORE = torch.rand(N, generator=g).mul(10).round()  # with ties


class Says(Method):
    """A method whose rows are given."""

    def __init__(self, **rows: Tensor) -> None:
        super().__init__()
        self.rows = rows
        self.net = nn.Identity()

    def rows_now(self) -> dict[str, Tensor]:
        return self.rows


def slow_auroc(score: Tensor, wrong: Tensor) -> float:
    """How often a wrong row has the higher score than a right one."""
    pairs = product(score[wrong].tolist(), score[~wrong].tolist())
    wins = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs]
    return sum(wins) / len(wins)


def slow_average_precision(score: Tensor, wrong: Tensor) -> float:
    total, recall = 0.0, 0.0
    for threshold in sorted(set(score.tolist()), reverse=True):
        flagged = [bool(w) for s, w in zip(score.tolist(), wrong, strict=True) if s >= threshold]
        total += (sum(flagged) / int(wrong.sum()) - recall) * sum(flagged) / len(flagged)
        recall = sum(flagged) / int(wrong.sum())
    return total


def test_figures_of_an_epoch() -> None:
    metrics = Metrics(TRUTH, OBSERVED)
    figures = metrics(Says(labels=LABELS, judged=LABELS, lid=SCORE), 0)
    right = sum(a == b for a, b in zip(LABELS.tolist(), TRUTH.tolist(), strict=True)) / N
    assert figures == {
        "labels_changed": sum((LABELS != OBSERVED).tolist()),
        "label_accuracy": pytest.approx(right),
        "lid_auroc": pytest.approx(slow_auroc(SCORE, LABELS != TRUTH)),
    }
    by_default = metrics(Says(loss=SCORE), 0)
    assert by_default == {"loss_auroc": pytest.approx(slow_auroc(SCORE, OBSERVED != TRUTH))}
    assert metrics(Says(), 0) == {}


def test_scores_of_some_rows_only() -> None:
    observed = OBSERVED.clone()
    observed[5:9] = -1
    truth = TRUTH.clone()
    truth[20:22] = -1
    score = SCORE.clone()
    score[30] = torch.nan
    kept = torch.ones(N, dtype=torch.bool)
    kept[5:9] = kept[20:22] = kept[30] = False
    figures = Metrics(truth, observed)(Says(lid=score), 0)
    assert figures["lid_auroc"] == pytest.approx(slow_auroc(SCORE[kept], (OBSERVED != TRUTH)[kept]))


def test_what_is_undefined_is_left_out() -> None:
    assert "lid_auroc" not in Metrics(TRUTH, TRUTH)(Says(lid=SCORE), 0)
    assert Metrics(None, OBSERVED)(Says(labels=LABELS, lid=SCORE), 0) == {
        "labels_changed": float((LABELS != OBSERVED).sum())
    }
    assert Metrics(None, OBSERVED).final(Purified(LABELS, SCORE / 10)) == {}


def test_accuracy_of_the_deployed_classifier() -> None:
    x = torch.eye(3)[torch.tensor([0, 1, 2, 2])]
    metrics = Metrics(TRUTH, OBSERVED, x, torch.tensor([0, 1, 2, 0]), lambda x: x)
    assert metrics(Says(), 0) == {"test_accuracy": 0.75}
    with pytest.raises(ValueError, match="test rows need their labels"):
        Metrics(TRUTH, OBSERVED, x)


def test_figures_at_the_end() -> None:
    quality = 1 - SCORE / 10
    columns = {"lid": SCORE.neg(), "votes": torch.arange(N)}
    found = Metrics(TRUTH, OBSERVED).final(Purified(LABELS, quality, columns))
    rows = list(zip(TRUTH.tolist(), OBSERVED.tolist(), LABELS.tolist(), strict=True))
    caught = sum(g != t and new != g for t, g, new in rows)
    wrong = OBSERVED != TRUTH
    assert found == {
        "labels_right_before": pytest.approx(sum(g == t for t, g, _ in rows) / N),
        "labels_right_after": pytest.approx(sum(new == t for t, _, new in rows) / N),
        "labels_changed": sum(new != g for _, g, new in rows),
        "labels_fixed": sum(g != t and new == t for t, g, new in rows),
        "labels_broken": sum(g == t and new != t for t, g, new in rows),
        "precision": pytest.approx(caught / sum(new != g for _, g, new in rows)),
        "recall": pytest.approx(caught / sum(g != t for t, g, _ in rows)),
        "auroc": pytest.approx(slow_auroc(SCORE, wrong)),
        "average_precision": pytest.approx(slow_average_precision(SCORE, wrong)),
        "lid_auroc": pytest.approx(1 - slow_auroc(SCORE, wrong)),
    }


def test_clean_labels_that_stay() -> None:
    found = Metrics(TRUTH, TRUTH).final(Purified(TRUTH, torch.ones(N)))
    assert found["labels_right_after"] == 1
    assert found["precision"] is found["recall"] is found["auroc"] is None


def test_labels_of_the_audit_are_scored_like_those_of_a_method() -> None:
    metrics = Metrics(TRUTH, OBSERVED)
    found = metrics.labels(LABELS)
    whole = metrics.final(Purified(LABELS, torch.ones(N)))
    assert found == {name: whole[name] for name in found}
    assert {"labels_right_after", "labels_fixed", "precision", "recall"} <= set(found)
    assert Metrics(None, OBSERVED).labels(LABELS) == {}
