"""What a run remembers of each row: running sums instead of a table of rows by epochs."""

import torch
from torch import Tensor, nn

from colafier.rows import RowTable


class RowHistory(nn.Module):
    """LID and the classifier's probability of the given label, summed over the epochs.

    Args:
        given: Given labels of the rows (n,).
    """

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        n = len(given)
        self.judged = RowTable(given)  # the labels that `lid` is about
        self.lid = RowTable(torch.full((n,), torch.nan))  # of this epoch
        self.lid_sum = RowTable(torch.zeros(n))  # of the given labels
        self.given_sum = RowTable(torch.zeros(n))
        self.epochs = RowTable(torch.zeros(n))

    def write(
        self, index: Tensor, labels: Tensor, lid: Tensor, given_lid: Tensor, given: Tensor
    ) -> None:
        """Stage what an epoch saw of some rows.

        Args:
            index: Row numbers (b,).
            labels: Labels of now (b,).
            lid: LID with these labels (b,).
            given_lid: LID with the given labels (b,).
            given: Probability of the given labels (b,).
        """
        self.judged.write(index, labels)
        self.lid.write(index, lid)
        self.lid_sum.write(index, self.lid_sum[index] + given_lid)
        self.given_sum.write(index, self.given_sum[index] + given)
        self.epochs.write(index, self.epochs[index] + 1)

    @property
    def seen(self) -> Tensor:
        """Rows that were trained on (n,)."""
        return self.epochs.values > 0

    def mean_lid(self) -> Tensor:
        """Mean LID of the given labels (n,); not a number for rows never trained on."""
        return self.lid_sum.values / self.epochs.values

    def mean_given(self) -> Tensor:
        """Mean probability of the given labels (n,); not a number for rows never trained on."""
        return self.given_sum.values / self.epochs.values
