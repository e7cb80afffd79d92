"""The estimators follow scikit-learn's rules, find wrong labels, and take rows of every shape."""

import pickle
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from colafier import ColafierClassifier, NoisyLabelClassifier, estimator
from colafier.audit.label_table import COLUMNS
from colafier.audit.pipeline import configure
from colafier.ingest.arrays import ImageLayout
from colafier.methods import available

Array = NDArray[Any]

QUICK: dict[str, Any] = {"epochs": 3, "batch_size": 16, "lr": 0.01, "random_state": 0}
TINY: dict[str, Any] = {"method": "ce", "net": "linear", "epochs": 1, "random_state": 0}


class Noisy(NamedTuple):
    """Rows whose observed labels are partly wrong."""

    x: Array
    truth: Array
    observed: Array

    @property
    def wrong(self) -> Array:
        return np.asarray(self.truth != self.observed)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the out-of-fold heads briefly, which no setting of the estimator does."""

    def short(shape: Any, n: int, train: Any, audit: Any) -> Any:
        return configure(shape, n, train, {"head_min_steps": 40, **audit})

    monkeypatch.setattr(estimator, "configure", short)


@pytest.fixture(scope="module")
def digits() -> Noisy:
    """800 digits as vectors, a fifth of the labels wrong."""
    x, truth = load_digits(return_X_y=True)
    x, truth = x[:800], truth[:800]
    rng = np.random.default_rng(0)
    wrong = rng.random(len(truth)) < 0.2
    return Noisy(x, truth, np.where(wrong, (truth + rng.integers(1, 10, len(truth))) % 10, truth))


@pytest.fixture(scope="module")
def fitted(digits: Noisy) -> ColafierClassifier:
    """With default settings."""
    return ColafierClassifier(random_state=0).fit(digits.x, digits.observed)


@pytest.fixture
def clouds() -> Noisy:
    """Two clouds of 40 rows each, far from each other; every tenth label is wrong."""
    x = np.random.default_rng(0).normal(size=(80, 5)).astype(np.float32)
    x[40:] += 6
    truth = np.repeat(["cat", "dog"], 40)
    observed = truth.copy()
    observed[::10] = np.where(truth[::10] == "cat", "dog", "cat")
    return Noisy(x, truth, observed)


@pytest.fixture
def photos() -> Array:
    """24 images of 8 x 10 pixels in three colors, channels last."""
    return np.random.default_rng(0).integers(0, 256, (24, 8, 10, 3)).astype(np.uint8)


@parametrize_with_checks(
    [
        ColafierClassifier(epochs=2, batch_size=32, lr=0.01),
        NoisyLabelClassifier(method="ce", epochs=2, batch_size=32, lr=0.01),
    ]
)
@pytest.mark.usefixtures("few_steps")
def test_keeps_the_rules_of_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_wrong_labels_are_found(fitted: ColafierClassifier, digits: Noisy) -> None:
    assert average_precision_score(digits.wrong, 1 - fitted.label_quality_) > 0.9
    assert f1_score(digits.wrong, fitted.issues_["is_label_issue"]) > 0.8
    assert abs(fitted.noise_rate_ - digits.wrong.mean()) < 0.08
    low, high = fitted.noise_rate_interval_
    assert 0 < low < fitted.noise_rate_ < high < 1


def test_labels_and_predictions_are_better_than_what_was_observed(
    fitted: ColafierClassifier, digits: Noisy
) -> None:
    before = (digits.observed == digits.truth).mean()
    assert (fitted.labels_ == digits.truth).mean() > before + 0.1
    assert fitted.score(digits.x, digits.truth) > before + 0.1


def test_table_is_that_of_the_rows(fitted: ColafierClassifier, digits: Noisy) -> None:
    table = fitted.issues_
    assert tuple(table.columns) == COLUMNS
    np.testing.assert_array_equal(table["original_label"], digits.observed)
    np.testing.assert_array_equal(table["label"], fitted.labels_)
    np.testing.assert_array_equal(table["predicted_label"], fitted.predict(digits.x))
    moved = fitted.labels_ != digits.observed
    np.testing.assert_array_equal(table["action"] == "relabel", moved)
    assert fitted.labels_.dtype == digits.observed.dtype
    assert len(fitted.history_) == fitted.history_[-1]["epoch"] + 1


def test_pickled_it_predicts_the_same(fitted: ColafierClassifier, digits: Noisy) -> None:
    stored = pickle.dumps(fitted)
    assert b"lightning" not in stored
    again = pickle.loads(stored)
    np.testing.assert_array_equal(again.predict_proba(digits.x), fitted.predict_proba(digits.x))


@pytest.mark.usefixtures("few_steps")
def test_same_seed_same_result(clouds: Noisy) -> None:
    first = ColafierClassifier(**QUICK).fit(clouds.x, clouds.observed)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    second = clone(first).fit(clouds.x, clouds.observed)
    assert torch.equal(torch.get_rng_state(), state)  # the user's generator is left alone
    pd.testing.assert_frame_equal(first.issues_, second.issues_)
    other = clone(first).set_params(random_state=1).fit(clouds.x, clouds.observed)
    assert not np.array_equal(other.predict_proba(clouds.x), first.predict_proba(clouds.x))


@pytest.mark.usefixtures("few_steps")
def test_in_a_pipeline_and_in_cross_validation(clouds: Noisy) -> None:
    pipeline = make_pipeline(StandardScaler(), NoisyLabelClassifier(**{**QUICK, "method": "ce"}))
    scores = cross_val_score(pipeline, clouds.x, clouds.truth, cv=2)
    assert scores.mean() > 0.9


@pytest.mark.parametrize("method", available())
@pytest.mark.usefixtures("few_steps")
def test_every_method_learns_and_finds_wrong_labels(method: str, clouds: Noisy) -> None:
    settings = {**QUICK, "epochs": 5, "lr": 0.003}  # enough for two nets to learn both classes
    model = NoisyLabelClassifier(method=method, **settings).fit(clouds.x, clouds.observed)
    assert model.score(clouds.x, clouds.truth) > 0.9  # the classifier is the method's alone
    assert roc_auc_score(clouds.wrong, 1 - model.label_quality_) > 0.9
    assert (model.labels_ == clouds.truth).mean() >= (clouds.observed == clouds.truth).mean()
    p = model.predict_proba(clouds.x)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(model.classes_[p.argmax(1)], model.predict(clouds.x))


@pytest.mark.usefixtures("few_steps")
def test_variant_is_that_of_the_method(clouds: Noisy) -> None:
    paper = ColafierClassifier(variant="paper", **QUICK).fit(clouds.x, clouds.observed)
    hyper = {"variant": "paper"}
    same = NoisyLabelClassifier(hyper=hyper, **QUICK).fit(clouds.x, clouds.observed)
    pd.testing.assert_frame_equal(paper.issues_, same.issues_)
    with pytest.raises(ValueError, match="variant"):
        ColafierClassifier(variant="mine").fit(clouds.x, clouds.observed)


@pytest.mark.parametrize(
    ("missing", "dtype"), [(None, object), (np.nan, object), ("", "U3"), ("?", object)]
)
@pytest.mark.usefixtures("few_steps")
def test_rows_without_a_label(missing: Any, dtype: Any, clouds: Noisy) -> None:
    observed = clouds.observed.astype(dtype)
    observed[:5] = missing
    model = ColafierClassifier(missing_label=missing, **QUICK).fit(clouds.x, observed)
    assert list(model.classes_) == ["cat", "dog"]
    assert all(label is missing or label == missing for label in model.labels_[:5])
    np.testing.assert_array_equal(np.isnan(model.label_quality_), np.arange(80) < 5)
    assert model.issues_["lid"][:5].isna().all()  # never trained on
    assert not model.issues_["is_label_issue"][:5].any()
    assert set(model.issues_["predicted_label"][:5]) == {"cat"}
    assert model.issues_["original_label"][:5].isna().all()


@pytest.mark.usefixtures("few_steps")
def test_trusted_rows_are_never_changed(clouds: Noisy) -> None:
    free = ColafierClassifier(**QUICK).fit(clouds.x, clouds.observed)
    assert (free.labels_[clouds.wrong] != clouds.observed[clouds.wrong]).all()
    model = clone(free).fit(clouds.x, clouds.observed, trusted=clouds.wrong)
    np.testing.assert_array_equal(model.labels_, clouds.observed)
    assert (model.label_quality_[clouds.wrong] == 1).all()
    assert set(model.issues_["action"][clouds.wrong]) == {"keep"}


@pytest.mark.usefixtures("few_steps")
def test_equal_rows_with_different_labels(clouds: Noisy) -> None:
    x = clouds.x.copy()
    x[1], x[3] = x[0], x[2]  # rows 0 and 1 have different labels, rows 2 and 3 the same
    model = ColafierClassifier(**QUICK).fit(x, clouds.observed)
    assert (model.issues_["reason"] == "duplicate").to_numpy().nonzero()[0].tolist() == [0, 1]


@pytest.mark.usefixtures("few_steps")
def test_frames_keep_names_and_index(clouds: Noisy) -> None:
    frame = pd.DataFrame(clouds.x, columns=list("abcde"), index=range(100, 180))
    model = NoisyLabelClassifier(**TINY).fit(frame, clouds.observed)
    assert list(model.feature_names_in_) == list("abcde")
    assert list(model.issues_.index) == list(frame.index)
    assert len(model.issues_[frame["a"] > 3]) == (clouds.x[:, 0] > 3).sum()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("edcba")])


@pytest.mark.usefixtures("few_steps")
def test_a_class_of_one_row(clouds: Noisy) -> None:
    observed = clouds.observed.astype(object)
    observed[0] = "bird"
    model = ColafierClassifier(**QUICK).fit(clouds.x, observed)
    assert list(model.classes_) == ["bird", "cat", "dog"]
    assert (model.predict(clouds.x) == clouds.truth).mean() > 0.9


@pytest.mark.parametrize("layout", ["gray", "last", "first"])
def test_images_of_each_layout(layout: str, photos: Array) -> None:
    x = {"gray": photos[..., 0], "last": photos, "first": photos.transpose(0, 3, 1, 2)}[layout]
    y = np.arange(24) % 2
    model = NoisyLabelClassifier(**TINY).fit(x, y)
    assert model.n_features_in_ == x[0].size
    assert model.predict_proba(x[:3]).shape == (3, 2)
    same = NoisyLabelClassifier(**TINY).fit((x / 255).astype(np.float32), y)
    np.testing.assert_array_equal(same.predict_proba(x / 255), model.predict_proba(x))
    with pytest.raises(ValueError, match="shape"):
        model.predict(x[:, :2])
    with pytest.raises(ValueError, match="whole numbers"):
        model.predict(x / 255)


def test_colafier_learns_from_images() -> None:
    """Bright and dark images: wrong labels get the lowest quality."""
    rng = np.random.default_rng(0)
    truth = np.arange(120) % 2
    x = rng.integers(0, 100, (120, 8, 8)) + 120 * truth[:, None, None]
    observed = np.where(np.arange(120) < 6, 1 - truth, truth)
    model = ColafierClassifier(epochs=4, batch_size=24, random_state=0).fit(x, observed)
    assert average_precision_score(observed != truth, 1 - model.label_quality_) > 0.9
    assert (model.labels_ == truth).mean() >= (observed == truth).mean()


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((2, 8, 10), None), ((2, 8, 10, 3), 3), ((2, 3, 8, 10), 1), ((2, 1, 28, 28), 1)],
)
def test_axis_of_the_channels(shape: tuple[int, ...], axis: int | None) -> None:
    assert ImageLayout.of(np.full(shape, 200)).axis == axis


@pytest.mark.parametrize("shape", [(2, 3, 32, 3), (2, 4, 4, 1), (2, 8, 8, 8)])
def test_ambiguous_shapes_are_refused(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 200, dtype=np.uint8)
    with pytest.raises(ValueError, match="channels='first' or channels='last'"):
        NoisyLabelClassifier(**TINY).fit(x, [0, 1])
    assert ImageLayout.of(x, "first").bring(x).shape == shape
    assert ImageLayout.of(x, "last").bring(x).shape == (2, shape[3], *shape[1:3])
    with pytest.raises(ValueError, match="'first' or 'last'"):
        NoisyLabelClassifier(channels="middle", **TINY).fit(x, [0, 1])


@pytest.mark.parametrize(
    ("x", "first"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([0.0, 99.6, 255.0], [0, 100, 255]),
        ([0, 7, 255], [0, 7, 255]),
        ([False, True, True], [0, 255, 255]),
    ],
)
def test_pixels_become_bytes(x: list[Any], first: list[int]) -> None:
    images = np.array(x).reshape(1, 1, 3)
    found = ImageLayout.of(images).bring(images)
    assert found.dtype == torch.uint8
    assert found.flatten().tolist() == first


@pytest.mark.parametrize("value", [-0.1, 255.5, 256, -1])
def test_pixels_out_of_range_are_refused(value: float) -> None:
    x = np.full((2, 8, 8), 100, dtype=np.asarray(value).dtype)
    x[1, 2, 3] = value
    with pytest.raises(ValueError, match="from 0 to 255"):
        NoisyLabelClassifier(**TINY).fit(x, [0, 1])


def test_dark_images_raise_a_warning(photos: Array) -> None:
    with pytest.warns(UserWarning, match="whole range"):
        ImageLayout.of(photos // 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.repeat("cat", 80)}, "one class"),
        ({"y": np.repeat(None, 80)}, "no class"),
        ({"y": np.arange(79)}, "inconsistent numbers of samples"),
        ({"y": np.array([0, "a"] * 40, dtype=object)}, "texts and numbers"),
        ({"y": np.array([0, np.nan] * 40)}, "missing_label=np.nan"),
        ({"y": np.linspace(0, 1, 80)}, "continuous"),
        ({"X": np.full((80, 2), np.nan)}, "Input X contains NaN"),
        ({"X": np.full((80, 8, 8), np.inf)}, "Input X contains infinity"),
        ({"X": np.zeros((80, 0, 8))}, "empty"),
        ({"X": np.full((80, 8, 8), "a")}, "numbers"),
        ({"trusted": [0, 1]}, "trusted"),
        ({"trusted": np.ones(79, dtype=bool)}, "trusted"),
        ({"y": np.array([0, 1] * 39 + [0, None]), "trusted": np.ones(80, dtype=bool)}, "row 79"),
    ],
)
def test_bad_input_is_refused(change: dict[str, Any], message: str, clouds: Noisy) -> None:
    with pytest.raises(ValueError, match=message):
        NoisyLabelClassifier(**TINY).fit(**{"X": clouds.x, "y": clouds.observed, **change})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"method": "magic"}, "no method"),
        ({"hyper": {"nonsense": 1}}, "nonsense"),
        ({"min_confidence": 1.2}, "min_confidence"),
        ({"epochs": 0}, "epoch"),
        ({"net": "resnet10"}, "needs images"),
    ],
)
@pytest.mark.usefixtures("few_steps")
def test_bad_settings_are_refused(setting: dict[str, Any], message: str, clouds: Noisy) -> None:
    model = NoisyLabelClassifier(**{**TINY, **setting})
    with pytest.raises(ValueError, match=message):
        model.fit(clouds.x, clouds.observed)
    with pytest.raises(NotFittedError):
        model.predict(clouds.x)
