"""Per-row state of a method: staged writes, so that a failed step loses nothing."""

from typing import Any

import torch
from torch import Tensor, nn


class RowTable(nn.Module):
    """A value for each row of the training set: `table[index]` reads, `table.write(...)` stages.

    The engine commits staged writes after an optimizer step with finite loss and gradients. The
    values are a buffer, so they are saved, resumed and moved to a device with the method. Trusted
    rows keep their initial values, even if a checkpoint from before the decision is loaded.

    Args:
        values: Initial values, one for each row.
        trusted: Mask of the rows that a person decided; writes to them are ignored.
        repeats: Whether a row may be written several times in one pass, as paired rows are.
    """

    values: Tensor
    trusted: Tensor | None
    _written: Tensor

    def __init__(
        self, values: Tensor, trusted: Tensor | None = None, repeats: bool = False
    ) -> None:
        super().__init__()
        self.repeats = repeats
        self.register_buffer("values", values.clone())
        trusted = None if trusted is None else trusted.clone()
        self.register_buffer("trusted", trusted, persistent=False)
        written = torch.zeros(len(values), dtype=torch.bool)
        self.register_buffer("_written", written, persistent=False)
        self._staged: list[tuple[Tensor, Tensor]] = []

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: Tensor) -> Tensor:
        return self.values[index]

    def write(self, index: Tensor, values: Tensor) -> None:
        """Stage new values for these rows; they can be read after `commit`."""
        self._staged.append((index, values.detach().to(self.values.dtype)))

    def take_staged(self) -> tuple[Tensor, Tensor] | None:
        """Remove and return all staged writes as (index, values); None if there are none."""
        if not self._staged:
            return None
        index = torch.cat([i for i, _ in self._staged])
        values = torch.cat([v for _, v in self._staged])
        self._staged.clear()
        return index, values

    def commit(self, index: Tensor, values: Tensor) -> None:
        """Store values, except in trusted rows."""
        if not self.repeats:
            if self._written[index].any() or len(torch.unique(index)) < len(index):
                raise RuntimeError(
                    "a row was written twice in one pass; create the RowTable with repeats=True "
                    "if the pass draws rows repeatedly"
                )
            self._written[index] = True
        if self.trusted is not None:
            free = ~self.trusted[index]
            index, values = index[free], values[free]
        self.values[index] = values

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        start = self.values.clone()
        super()._load_from_state_dict(*args, **kwargs)
        if self.trusted is not None:
            self.values[self.trusted] = start[self.trusted]

    def begin_pass(self) -> None:
        """Forget staged writes, and which rows were written in the last pass."""
        self._written.zero_()
        self._staged.clear()
