"""Labeled data, ready for training: encoded rows, and labels as class numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colafier.embed.encode import EncodedData
from colafier.evidence.labels import Labels
from colafier.ingest.dataset import Dataset
from colafier.ingest.labels import check_two_classes, class_numbers
from colafier.review.decided import DecidedRows


@dataclass(frozen=True)
class LabeledData:
    """The data that a run is trained on; tensors hold the usable rows only."""

    dataset: Dataset  # as it was read
    rows: EncodedData
    classes: list[str]
    labels: Labels

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.rows.x.shape[1:])

    @property
    def groups(self) -> Tensor:
        """The group of exact duplicates that each row belongs to (n,), -1 for none."""
        return torch.tensor(self.dataset.duplicates())[self.rows.rows]


def with_labels(
    dataset: Dataset,
    rows: EncodedData,
    decided: DecidedRows | None,
    classes: Sequence[str] | None = None,
) -> LabeledData:
    """Join encoded rows with their labels, and with the decisions of a person.

    Args:
        dataset: The data set, as it was read.
        rows: Its usable rows.
        decided: Decisions of a person; None: there are none.
        classes: All classes in their order; None: the classes of the usable rows.
    """
    start = dataset if decided is None else decided.apply_to(dataset)
    texts = [start.original[row] for row in rows.rows]
    if classes is None:
        classes = [name for name in start.classes if name in set(texts)]
        check_two_classes(classes, "the labels of all usable rows")
    observed = class_numbers(texts, classes)
    if decided is None:
        return LabeledData(dataset, rows, list(classes), Labels(observed))
    original = class_numbers((dataset.original[row] for row in rows.rows), classes)
    labels = Labels(observed, original, decided.trusted(rows.rows))
    return LabeledData(dataset, rows, list(classes), labels)
