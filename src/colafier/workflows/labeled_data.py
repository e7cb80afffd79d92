"""The usable rows of a data set as numbers, with their labels as class numbers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from colafier.embed.encode import EncodedData
from colafier.ingest.dataset import Dataset
from colafier.ingest.labels import check_two_classes, class_numbers
from colafier.review.decisions import Decided


@dataclass(frozen=True)
class LabeledData:
    """What a run learns from; tensors have one entry for each usable row."""

    dataset: Dataset  # as it was read
    rows: EncodedData
    classes: list[str]
    observed: Tensor  # (n,) what a person decided, else what came with the data; -1: no label
    original: Tensor | None = None  # (n,) what came with the data; None: nothing was decided
    trusted: Tensor | None = None  # (n,) bool: a person decided

    @property
    def groups(self) -> Tensor:
        """For each row its group of exact duplicates (n,), -1 for none."""
        return torch.tensor(self.dataset.duplicates())[self.rows.rows]


def with_labels(dataset: Dataset, rows: EncodedData, decided: Decided | None) -> LabeledData:
    """The usable rows with their labels, and with what a person decided about them."""
    after = dataset if decided is None else decided.told(dataset)
    labels = [after.original[row] for row in rows.rows]
    classes = [name for name in after.classes if name in set(labels)]  # nothing to learn of others
    check_two_classes(classes, "the labels of all usable rows")
    observed = class_numbers(labels, classes)
    if decided is None:
        return LabeledData(dataset, rows, classes, observed)
    original = class_numbers((dataset.original[row] for row in rows.rows), classes)
    return LabeledData(dataset, rows, classes, observed, original, decided.trusted(rows.rows))
