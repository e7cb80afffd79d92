"""The usable rows of a data set as numbers, with their labels as class numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colafier.embed.encode import EncodedData
from colafier.ingest.dataset import Dataset
from colafier.methods.contract import Labels
from colafier.review.decided import DecidedRows


@dataclass(frozen=True)
class LabeledData:
    """What a run is trained on; tensors have a place for each usable row."""

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
        """For each row its group of exact duplicates (n,), -1 for none."""
        return torch.tensor(self.dataset.duplicates())[self.rows.rows]


def with_labels(
    dataset: Dataset,
    rows: EncodedData,
    decided: DecidedRows | None,
    classes: Sequence[str] | None = None,
) -> LabeledData:
    """Rows with their labels, and with what a person decided about them.

    Args:
        dataset: As it was read.
        rows: Its usable rows.
        decided: Decisions of a person; None: there are none.
        classes: All classes in their order; None: those of the usable rows.
    """
    start = dataset if decided is None else decided.apply_to(dataset)
    names = _classes(start, rows) if classes is None else list(classes)
    observed = _as_numbers(start, rows, names)
    if decided is None:
        return LabeledData(dataset, rows, names, Labels(observed))
    original, trusted = _as_numbers(dataset, rows, names), decided.trusted(rows.rows)
    return LabeledData(dataset, rows, names, Labels(observed, original, trusted))


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
