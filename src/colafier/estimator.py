"""Classifiers for noisy labels with the interface of scikit-learn."""

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from colafier._surroundings import own_surroundings
from colafier.audit.config import AuditConfig
from colafier.audit.label_table import table
from colafier.audit.pipeline import AuditResult, configure, train_and_audit
from colafier.evidence.labels import Labels
from colafier.ingest.arrays import (
    Array,
    Channels,
    ImageLayout,
    as_tensor,
    same_rows,
    trusted_mask,
)
from colafier.ingest.labels import EncodedLabels
from colafier.nets import inference

Net = str | nn.Module | Callable[[], nn.Module]


class NoisyLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that learns from partly wrong labels, and finds the wrong ones.

    X holds vectors (n, d), which are used as features, or images (n, h, w), (n, h, w, c) or
    (n, c, h, w), on which nets are trained from scratch. The channel axis of an image is the first
    or the last one, whichever alone has length 1, 3 or 4; any other shape is refused unless
    `channels` is given. Pixels are whole numbers from 0 to 255, or floats. If no float is above 1,
    the range is 0 to 1, otherwise 0 to 255; floats are rounded to bytes. New images must have the
    shape and the range of those in `fit`.

    Args:
        method: A name from `colafier.methods.available()`.
        hyper: Hyper-parameters of the method by name.
        net: A name, a module, or a function that makes one, see `colafier.nets.net_factory`. The
            defaults of this and the next four depend on the shape and the number of rows.
        epochs: Training epochs.
        batch_size: Rows in one step.
        lr: Learning rate.
        weight_decay: Weight decay.
        min_confidence: Probability, 0 to 1, that a suggested class must have for a relabel.
        flip: Whether a mirrored image keeps its class.
        channels: `first` or `last`, for images whose shape leaves this open.
        missing_label: The value in y that means no label. Such a row is predicted, but never
            trained on. None also matches NaN and NA among texts and objects, as in pandas.
        random_state: Seed or generator; the same seed gives the same result.
        verbose: Whether to show a progress bar in a terminal.

    Attributes:
        classes_: The classes (c,), sorted.
        n_features_in_: Numbers in one row.
        feature_names_in_: Column names, if X was a DataFrame whose column names are texts.
        labels_: Purified labels (n,), of the type of y; rows without a label keep their value in y.
        label_quality_: Probability that the observed label is right (n,); NaN if there is none.
        issues_: Table with one line for each row, see `colafier.audit.label_table`; with X's index.
        noise_rate_: Estimated share of wrong labels.
        noise_rate_interval_: 95 % interval of this share.
        history_: Figures of each epoch.
        classifier_: The trained module, which maps normalized rows to logits.
    """

    def __init__(
        self,
        *,
        method: str = "colafier",
        hyper: Mapping[str, Any] | None = None,
        net: Net | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        min_confidence: float = AuditConfig.min_confidence,
        flip: bool = True,
        channels: Channels | None = None,
        missing_label: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.hyper = hyper
        self.net = net
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.min_confidence = min_confidence
        self.flip = flip
        self.channels = channels
        self.missing_label = missing_label
        self.random_state = random_state
        self.verbose = verbose

    @own_surroundings()
    def fit(self, X: Any, y: Any, *, trusted: Any = None) -> Self:
        """Train the classifier and audit the labels.

        Args:
            X: Vectors or images, one for each row.
            y: Observed labels (n,), numbers or texts.
            trusted: Boolean mask (n,) of rows whose label a person decided; these labels are never
                changed.
        """
        x = self._first_rows(X)
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        check_consistent_length(X, y)
        labels = EncodedLabels.of(y, self.missing_label)
        result = self._audited(x, labels, trusted)
        self._keep(labels, result, X.index if isinstance(X, pd.DataFrame) else None)
        return self

    def _audited(self, x: Tensor, encoded: EncodedLabels, trusted: Any) -> AuditResult:
        labels = Labels(encoded.numbers, trusted=trusted_mask(trusted, encoded.numbers))
        shape = tuple(x.shape[1:])
        train, judge = configure(shape, int(labels.labeled.sum()), *self._chosen())
        return train_and_audit(
            x,
            labels,
            len(encoded.classes),
            train,
            judge,
            groups=same_rows(x),
            progress=self.verbose,
        )

    def predict_proba(self, X: Any) -> Array:
        """Probabilities (n, c), in the order of `classes_`."""
        check_is_fitted(self, "classifier_")
        p = inference.predict(self.classifier_, self._rows(X), self._normalize).double()  # (n, c)
        return (p / p.sum(1, keepdim=True)).numpy()

    def predict(self, X: Any) -> Array:
        """The most probable class of each row (n,)."""
        p = self.predict_proba(X)
        predicted: Array = self.classes_[p.argmax(1)]
        return predicted

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _chosen_method(self) -> tuple[str, dict[str, Any]]:
        return self.method, dict(self.hyper or {})

    def _chosen(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters that belong to `TrainConfig`, and those of `AuditConfig`."""
        method, hyper = self._chosen_method()
        names = ("net", "epochs", "batch_size", "lr", "weight_decay", "flip")
        train = {name: getattr(self, name) for name in names}
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        train |= {"method": method, "hyper": hyper, "seed": seed}
        return train, {"min_confidence": self.min_confidence}

    def _first_rows(self, X: Any) -> Tensor:
        """The rows of `fit`; later rows must have the same layout."""
        self._layout: ImageLayout | None = None
        if _axes(X) in (3, 4):
            images = _images(X)
            self._layout = ImageLayout.of(images, self.channels)
            self.n_features_in_ = prod(self._layout.row_shape)
            if hasattr(self, "feature_names_in_"):  # from an earlier fit
                del self.feature_names_in_
            return self._layout.bring(images)
        return as_tensor(validate_data(self, X, dtype=np.float32))

    def _rows(self, X: Any) -> Tensor:
        if self._layout is not None:
            return self._layout.bring(_images(X))
        return as_tensor(validate_data(self, X, dtype=np.float32, reset=False))

    def _keep(self, labels: EncodedLabels, result: AuditResult, index: pd.Index | None) -> None:
        found = result.found
        self.classes_ = labels.classes
        self.labels_ = labels.written(result.decided.labels)
        self.issues_ = table(
            labels.classes.tolist(),
            labels.numbers,
            found,
            result.decided,
            predicted=result.predicted,
            lid=result.lid,
            method_labels=result.method_labels,
        ).infer_objects()
        if index is not None:
            self.issues_.index = index
        self.label_quality_ = self.issues_["label_quality"].to_numpy(copy=True)
        self.noise_rate_ = found.rate
        self.noise_rate_interval_ = found.interval
        self.history_ = result.history.epochs
        self.classifier_ = result.classifier
        self._normalize = result.normalize


class ColafierClassifier(NoisyLabelClassifier):
    """CoLafier as an estimator: a `NoisyLabelClassifier` with this method.

    The attributes, and the parameters from `net` on, are those of `NoisyLabelClassifier`.

    Args:
        variant: `adaptive` (the default of this package), `paper` or `authors` (as in their code);
            see `colafier.core.config`.
        hyper: More hyper-parameters of CoLafier by name.
    """

    def __init__(
        self,
        *,
        variant: str = "adaptive",
        hyper: Mapping[str, Any] | None = None,
        net: Net | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        min_confidence: float = AuditConfig.min_confidence,
        flip: bool = True,
        channels: Channels | None = None,
        missing_label: Any = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            hyper=hyper,
            net=net,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,
            weight_decay=weight_decay,
            min_confidence=min_confidence,
            flip=flip,
            channels=channels,
            missing_label=missing_label,
            random_state=random_state,
            verbose=verbose,
        )
        self.variant = variant

    def _chosen_method(self) -> tuple[str, dict[str, Any]]:
        return "colafier", {"variant": self.variant, **(self.hyper or {})}


def _axes(X: Any) -> int:
    shape = getattr(X, "shape", None)
    return np.asarray(X).ndim if shape is None else len(shape)


def _images(X: Any) -> Array:
    images: Array = check_array(X, dtype=None, allow_nd=True, input_name="X")
    if images.dtype.kind not in "biuf":
        raise ValueError(f"pixels must be numbers, not {images.dtype}")
    return images
