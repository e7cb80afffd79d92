"""Metrics that need the true labels; no other module of the training loop is given them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from colafier.methods.contract import Method, Purified
from colafier.nets import inference


class Metrics:
    """Scores a method after each epoch, `metrics(method, epoch)`, and its labels at the end.

    Args:
        truth: True labels of the training rows, -1 where unknown; None: all are unknown.
        observed: Labels that came with the data, -1 where a row has none.
        test_x: Test rows, as stored; None: there is no test accuracy.
        test_labels: True labels of the test rows.
        normalize: The normalization of the training set.
    """

    def __init__(
        self,
        truth: Tensor | None,
        observed: Tensor,
        test_x: Tensor | None = None,
        test_labels: Tensor | None = None,
        normalize: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        if test_x is not None and (test_labels is None or normalize is None):
            raise ValueError("test rows need their labels and the training set's normalize")
        unknown = torch.full_like(observed, -1)
        self.truth = unknown if truth is None else truth.cpu()
        self.observed = observed.cpu()
        self.known = (self.truth >= 0) & (self.observed >= 0)
        self.test_x = test_x
        self.test_labels = test_labels
        self.normalize = normalize

    def __call__(self, method: Method, epoch: int) -> dict[str, float]:  # noqa: ARG002
        """Figures of an epoch."""
        figures = {}
        if self.test_x is not None:
            figures["test_accuracy"] = self.test_accuracy(method.deployed())
            if len(members := method.members()) > 1:  # what the papers of two nets report
                scores = [self.test_accuracy(net) for net in members]
                figures["members_accuracy"] = sum(scores) / len(scores)
        rows = {name: values.detach().cpu() for name, values in method.rows_now().items()}
        if (labels := rows.pop("labels", None)) is not None:
            figures["labels_changed"] = float((labels != self.observed).sum())
            if self.known.any():
                figures["label_accuracy"] = self._right(labels)
        judged = rows.pop("judged", self.observed)
        for name, values in rows.items():
            auroc = self._detection(values, judged)["auroc"]
            if auroc is not None:
                figures[f"{name}_auroc"] = auroc
        return figures

    def test_accuracy(self, classifier: nn.Module) -> float:
        """Accuracy of a classifier on the test rows."""
        if self.test_x is None or self.test_labels is None or self.normalize is None:
            raise ValueError("there are no test rows")
        p = inference.predict(classifier, self.test_x, self.normalize)  # (m, c)
        return float((p.argmax(1) == self.test_labels.cpu()).double().mean())

    def final(self, purified: Purified) -> dict[str, float | None]:
        """Scores of the purified labels, and how well the wrong labels were found.

        AUROC and average precision rank rows by 1 - quality. Each floating-point column of the
        result has its AUROC as well.
        """
        figures = self.labels(purified.labels)
        if not figures:
            return {}
        figures |= self._detection(1 - purified.quality, self.observed)
        for name, values in purified.columns.items():
            if values.is_floating_point() and values.dim() == 1:
                figures[f"{name}_auroc"] = self._detection(values, self.observed)["auroc"]
        return figures

    def labels(self, labels: Tensor) -> dict[str, float | None]:
        """How many labels (n,) are right, and how many were fixed and broken.

        For `precision` and `recall`, a changed label counts as the claim that the observed one is
        wrong.
        """
        if not self.known.any():
            return {}
        now = labels.cpu()[self.known]  # (m,)
        observed, truth = self.observed[self.known], self.truth[self.known]  # (m,), (m,)
        wrong, changed = observed != truth, now != observed  # (m,), (m,)
        caught = float((wrong & changed).sum())
        return {
            "labels_right_before": self._right(self.observed),
            "labels_right_after": self._right(labels.cpu()),
            "labels_changed": int(changed.sum()),
            "labels_fixed": int((wrong & (now == truth)).sum()),
            "labels_broken": int((~wrong & (now != truth)).sum()),
            "precision": caught / float(changed.sum()) if changed.any() else None,
            "recall": caught / float(wrong.sum()) if wrong.any() else None,
        }

    def _detection(self, values: Tensor, labels: Tensor) -> dict[str, float | None]:
        """How well a score ranks wrong labels first; None if all labels are right or all wrong."""
        from sklearn.metrics import average_precision_score, roc_auc_score  # takes seconds

        values = values.detach().cpu()
        usable = self.known & torch.isfinite(values)
        wrong = (labels != self.truth)[usable].numpy()
        if wrong.all() or not wrong.any():
            return {"auroc": None, "average_precision": None}
        scores = values[usable].double().numpy()
        return {
            "auroc": float(roc_auc_score(wrong, scores)),
            "average_precision": float(average_precision_score(wrong, scores)),
        }

    def _right(self, labels: Tensor) -> float:
        return float((labels == self.truth)[self.known].double().mean())
