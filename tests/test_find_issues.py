"""The same call as cleanlab's finds wrong labels from probabilities or from features."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import cross_val_predict

from colafier import find_label_issues

Array = NDArray[Any]

RANKINGS = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")


@pytest.fixture(scope="module")
def digits() -> tuple[Array, Array, Array]:
    """Features, observed labels, and which of these are wrong: about a fifth."""
    x, truth = load_digits(return_X_y=True)
    x, truth = x[:1000] / 16, truth[:1000]
    rng = np.random.default_rng(1)
    wrong = rng.random(len(truth)) < 0.2
    return x, np.where(wrong, (truth + rng.integers(1, 10, len(truth))) % 10, truth), wrong


@pytest.fixture(scope="module")
def pred_probs(digits: tuple[Array, Array, Array]) -> Array:
    x, observed, _ = digits
    model = LogisticRegression(max_iter=300)
    return np.asarray(cross_val_predict(model, x, observed, cv=5, method="predict_proba"))


def test_from_probabilities(digits: tuple[Array, Array, Array], pred_probs: Array) -> None:
    _, observed, wrong = digits
    issues = find_label_issues(observed, pred_probs)
    assert issues.dtype == bool
    assert issues.shape == observed.shape
    assert f1_score(wrong, issues) > 0.8
    half = find_label_issues(observed, pred_probs, frac_noise=0.5)
    assert (half <= issues).all()
    assert half.sum() == pytest.approx(issues.sum() / 2, abs=1)


def test_from_features(digits: tuple[Array, Array, Array]) -> None:
    x, observed, wrong = digits
    assert f1_score(wrong, find_label_issues(observed, features=x)) > 0.8


def test_texts_as_labels_and_two_classes() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    x[30:] += 5
    observed = np.repeat(["no", "yes"], 30)
    observed[[3, 40]] = ["yes", "no"]
    assert find_label_issues(observed, features=x).nonzero()[0].tolist() == [3, 40]
    numbers = (observed == "yes").astype(int)
    np.testing.assert_array_equal(
        find_label_issues(numbers, None, x), find_label_issues(observed, features=x)
    )


@pytest.mark.parametrize("ranking", RANKINGS)
def test_ranked_rows_are_the_issues(
    ranking: Any, digits: tuple[Array, Array, Array], pred_probs: Array
) -> None:
    _, observed, _ = digits
    issues = find_label_issues(observed, pred_probs)
    ranked = find_label_issues(observed, pred_probs, return_indices_ranked_by=ranking)
    assert sorted(ranked) == issues.nonzero()[0].tolist()
    scores = [slow_score(pred_probs[row], observed[row], ranking) for row in ranked]
    assert (np.diff(scores) >= 0).all()


def slow_score(p: Array, label: int, ranking: str) -> float:
    """The scores as cleanlab's documentation defines them, low for a bad label."""
    if ranking == "self_confidence":
        return float(p[label])
    if ranking == "normalized_margin":
        return float(p[label] - max(p[k] for k in range(len(p)) if k != label))
    return float(sum(q * np.log(q) for q in p if q > 0) / p[label])


GOOD = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"labels": [0, 1, 1]}, ValueError, "pred_probs, or features"),
        ({"labels": [0, 1], "pred_probs": GOOD}, ValueError, "same length"),
        ({"labels": [[0], [1], [1]], "pred_probs": GOOD}, ValueError, "one dimensional"),
        ({"labels": [0, 1, 2], "pred_probs": GOOD}, ValueError, "from 0 to 1"),
        ({"labels": [0, 1, -1], "pred_probs": GOOD}, ValueError, "from 0 to 1"),
        ({"labels": ["a", "b", "b"], "pred_probs": GOOD}, TypeError, "whole numbers"),
        ({"labels": [0, 1, 1], "pred_probs": GOOD * 2}, ValueError, "probabilities"),
        ({"labels": [0, 1, 1], "pred_probs": GOOD - 0.3}, ValueError, "probabilities"),
        ({"labels": [0, 1, 1], "pred_probs": GOOD[:, 0]}, ValueError, "2D"),
        ({"labels": [0, 0, 0], "pred_probs": GOOD[:, :1]}, ValueError, "each class"),
        ({"labels": [0, 1, 1], "pred_probs": GOOD * np.nan}, ValueError, "NaN"),
        ({"labels": [0, 1], "features": GOOD}, ValueError, "same length"),
        ({"labels": [0, 1, None], "features": GOOD}, ValueError, "needs a label"),
        ({"labels": [0, 0, 0], "features": GOOD}, ValueError, "one class"),
        (
            {"labels": [0, 1, 1], "pred_probs": GOOD, "return_indices_ranked_by": "margin"},
            ValueError,
            "self_confidence",
        ),
        ({"labels": [0, 1, 1], "pred_probs": GOOD, "frac_noise": 2}, ValueError, "frac_noise"),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, Any], error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        find_label_issues(**arguments)
