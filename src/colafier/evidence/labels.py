"""The labels of the rows: what training starts from, what came with the data, what is trusted."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, init=False, eq=False)  # tensors have no plain equality
class Labels:
    """The labels of n rows as class numbers, -1 where a row has none; on the CPU.

    Args:
        observed: What training starts from (n,).
        original: What came with the data (n,), where trusted rows hold something else in
            `observed`; None: nothing is known about what trusted rows had.
        trusted: Rows whose label a person decided, as a boolean mask; None: no row.
    """

    observed: Tensor  # (n,)
    original: Tensor | None  # (n,)
    trusted: Tensor  # (n,) bool

    def __init__(
        self, observed: Tensor, original: Tensor | None = None, trusted: Tensor | None = None
    ) -> None:
        nobody = torch.zeros(len(observed), dtype=torch.bool)
        object.__setattr__(self, "observed", observed.long().cpu())
        object.__setattr__(self, "original", None if original is None else original.long().cpu())
        object.__setattr__(self, "trusted", nobody if trusted is None else trusted.cpu())

    @property
    def labeled(self) -> Tensor:
        """Rows that have a label at all (n,)."""
        return self.observed >= 0

    @property
    def doubtful(self) -> Tensor:
        """Rows with a label that nobody decided (n,)."""
        return self.labeled & ~self.trusted

    def __len__(self) -> int:
        return len(self.observed)
