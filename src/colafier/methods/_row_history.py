"""What a run remembers of each row: running sums instead of a table of rows by epochs."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from colafier.methods.row_table import RowTable

PARTS = 10  # of the training, for the course of a row
LEVELS = 250  # a probability in one byte
UNSEEN = 255


class RowHistory(nn.Module):
    """LID and the classifier's probability of the given label, summed over the epochs.

    Args:
        given: Given labels of the rows (n,).
        votes: How many parts of the method say each epoch what class they see.
    """

    def __init__(self, given: Tensor, votes: int = 0) -> None:
        super().__init__()
        n = len(given)
        self.judged = RowTable(given)  # the labels that `lid` is about
        self.lid = RowTable(torch.full((n,), torch.nan))  # of this epoch
        self.lid_sum = RowTable(torch.zeros(n))  # of the given labels
        self.given_sum = RowTable(torch.zeros(n))
        self.epochs = RowTable(torch.zeros(n))
        self.parts = RowTable(torch.full((n, PARTS), UNSEEN, dtype=torch.uint8))
        self.votes = RowTable(torch.full((n, votes), -1, dtype=torch.int16))

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

    def note(self, index: Tensor, done: float, given: Tensor, votes: Sequence[Tensor]) -> None:
        """Stage what a person may ask of a row later: two bytes or one for each number.

        Args:
            index: Row numbers (b,).
            done: Share of the training that is over, below 1.
            given: Probability of the given labels (b,).
            votes: What each part of the method says, as probabilities or logits (b, c).
        """
        parts = self.parts[index].clone()  # (b, PARTS)
        parts[:, min(int(done * PARTS), PARTS - 1)] = (given * LEVELS).round().to(parts)
        self.parts.write(index, parts)
        self.votes.write(index, torch.stack([vote.argmax(1) for vote in votes], 1))

    def course(self) -> Tensor:
        """Probability of the given labels, part by part (n, t); not a number where not seen."""
        parts = self.parts.values
        level = torch.where(parts == UNSEEN, torch.nan, parts.float() / LEVELS)
        return level[:, (parts != UNSEEN).any(0)]  # a short run has fewer parts

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
