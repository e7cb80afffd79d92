"""Rows of a label table that a person has decided, and what later runs make of them."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from colafier.audit.policy import EXCLUDE
from colafier.ingest.dataset import Dataset

REVIEW_COLUMNS = ("reviewed_at", "reviewed_from", "reviewed_to", "reviewed_why")
REVIEWED_AT, REVIEWED_FROM, REVIEWED_TO, REVIEWED_WHY = REVIEW_COLUMNS
CARRIED_OVER = ("original_label", "label", "action", "reason")


def undecided(lines: pd.DataFrame) -> pd.Series:
    """Which rows of a label table nobody has decided yet, as a boolean mask."""
    if REVIEWED_AT not in lines:
        return pd.Series(True, index=lines.index)
    return lines[REVIEWED_AT].eq("")


@dataclass(frozen=True, eq=False)  # tables have no plain equality
class DecidedRows:
    """The rows that a person decided: other runs train on these labels and never change them."""

    fingerprint: str  # of the data set
    lines: pd.DataFrame  # as text, these rows alone, by row number

    @classmethod
    def from_table(cls, lines: pd.DataFrame, fingerprint: str) -> "DecidedRows":
        """The decided rows of a label table."""
        return cls(fingerprint, lines[~undecided(lines)])

    def __len__(self) -> int:
        return len(self.lines)

    def labels(self) -> dict[int, str | None]:
        """The decided label of each row; None if the row is excluded."""
        excluded = self.lines["action"] == EXCLUDE
        found = self.lines["label"].where(~excluded, "")
        return {int(row): label or None for row, label in found.items()}

    def apply_to(self, dataset: Dataset) -> Dataset:
        """The data set with the decided labels in place of the original ones."""
        found = dataset.fingerprint()
        if found != self.fingerprint:
            raise ValueError(
                f"{dataset.source} was changed since the decisions were made: its fingerprint is "
                f"now {found!r} and was {self.fingerprint!r}; restore the data, or purify it again"
            )
        labels = self.labels()
        original = [labels.get(row, label) for row, label in enumerate(dataset.original)]
        return replace(dataset, original=original)

    def trusted(self, rows: Iterable[int]) -> Tensor:
        """Which of these rows have a label that a person decided, as a boolean mask."""
        labels = self.labels()
        return torch.tensor([labels.get(row) is not None for row in rows])

    def digest(self) -> str:
        """A hash that is the same only for the same decisions."""
        content = json.dumps(sorted(self.labels().items()))
        return hashlib.sha256(content.encode()).hexdigest()

    def carry_over(self, lines: pd.DataFrame) -> pd.DataFrame:
        """The label table of a later run, with the decided rows as they were decided."""
        rows, old = self.lines.index, self.lines
        carried = lines.astype({**dict.fromkeys(CARRIED_OVER, object), "label_quality": float})
        for name in CARRIED_OVER:
            empty = None if name in ("original_label", "label") else ""
            carried.loc[rows, name] = pd.Series(
                [cell or empty for cell in old[name]], index=rows, dtype=object
            )
        known = (old["original_label"] != "") & (old["action"] != EXCLUDE)
        right = old["label"] == old["original_label"]
        carried.loc[rows, "label_quality"] = right.astype(float).where(known, np.nan)
        carried.loc[rows, "is_label_issue"] = known & ~right
        # the later run measured LID with the decided label, not with the original one
        carried.loc[rows[~right], "lid"] = np.nan
        for name in REVIEW_COLUMNS:
            carried[name] = self.lines[name].reindex(carried.index, fill_value="")
        return carried
