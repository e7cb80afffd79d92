"""The usable rows of a data set as numbers, with their labels as numbers of classes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colafier.embed.encode import Numbers
from colafier.ingest.read import Collection
from colafier.review.decisions import Decided


@dataclass(frozen=True)
class Labelled:
    """What a run learns from; tensors have a place for each usable row."""

    collection: Collection  # as it was read
    rows: Numbers
    classes: list[str]
    given: Tensor  # (n,) what a person decided, else what came with the data; -1: no label
    came: Tensor | None = None  # (n,) what came with the data; None: nothing was decided
    trusted: Tensor | None = None  # (n,) bool: a person decided

    @property
    def groups(self) -> Tensor:
        """For each row its group of exact duplicates (n,), -1 for none."""
        return torch.tensor(self.collection.duplicates())[self.rows.rows]


def with_labels(collection: Collection, rows: Numbers, decided: Decided | None) -> Labelled:
    """Rows with their labels, and with what a person decided of them."""
    if decided is None:
        classes = _classes(collection, rows)
        return Labelled(collection, rows, classes, _as_numbers(collection, rows, classes))
    told = decided.told(collection)
    classes = _classes(told, rows)
    given, came = (_as_numbers(some, rows, classes) for some in (told, collection))
    return Labelled(collection, rows, classes, given, came, decided.trusted(rows.rows))


def _classes(collection: Collection, rows: Numbers) -> list[str]:
    """Those of the usable rows; of others nothing can be learned."""
    there = {collection.given[row] for row in rows.rows}
    classes = [name for name in collection.classes if name in there]
    if len(classes) < 2:
        raise ValueError("the labels of all usable rows are of one class: nothing to learn")
    return classes


def _as_numbers(collection: Collection, rows: Numbers, classes: Sequence[str]) -> Tensor:
    """-1 where there is no label, or one of a class that no usable row has any more."""
    place: dict[str | None, int] = {name: number for number, name in enumerate(classes)}
    return torch.tensor([place.get(collection.given[row], -1) for row in rows.rows])
