"""The usable rows of a data set as numbers, with their labels as numbers of classes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colafier.embed.encode import EncodedData
from colafier.ingest.read import Dataset
from colafier.review.decided import DecidedRows


@dataclass(frozen=True)
class LabeledData:
    """What a run learns from; tensors have a place for each usable row."""

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


def with_labels(dataset: Dataset, rows: EncodedData, decided: DecidedRows | None) -> LabeledData:
    """Rows with their labels, and with what a person decided of them."""
    if decided is None:
        classes = _classes(dataset, rows)
        return LabeledData(dataset, rows, classes, _as_numbers(dataset, rows, classes))
    relabeled = decided.apply_to(dataset)
    classes = _classes(relabeled, rows)
    observed, original = (_as_numbers(some, rows, classes) for some in (relabeled, dataset))
    return LabeledData(dataset, rows, classes, observed, original, decided.trusted(rows.rows))


def _classes(dataset: Dataset, rows: EncodedData) -> list[str]:
    """Those of the usable rows; of others nothing can be learned."""
    there = {dataset.original[row] for row in rows.rows}
    classes = [name for name in dataset.classes if name in there]
    if len(classes) < 2:
        raise ValueError("the labels of all usable rows are of one class: nothing to learn")
    return classes


def _as_numbers(dataset: Dataset, rows: EncodedData, classes: Sequence[str]) -> Tensor:
    """-1 where there is no label, or one of a class that no usable row has any more."""
    place: dict[str | None, int] = {name: number for number, name in enumerate(classes)}
    return torch.tensor([place.get(dataset.original[row], -1) for row in rows.rows])
