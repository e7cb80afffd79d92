"""What a run keeps about each row: running sums instead of a table of rows by epochs."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from colafier.methods.row_table import RowTable

PARTS = 10  # of the training, for the trajectory of a row
LEVELS = 250  # a probability in one byte
UNSEEN = 255


class RowHistory(nn.Module):
    """LID and the classifier's probability of the observed label, summed over the epochs.

    Args:
        observed: Observed labels of the rows (n,).
        votes: How many parts of the method predict a class in each epoch.
    """

    def __init__(self, observed: Tensor, votes: int = 0) -> None:
        super().__init__()
        n = len(observed)
        self.judged = RowTable(observed)  # the labels that `lid` is about
        self.lid = RowTable(torch.full((n,), torch.nan))  # of this epoch
        self.lid_sum = RowTable(torch.zeros(n))  # of the observed labels
        self.observed_sum = RowTable(torch.zeros(n))
        self.epochs = RowTable(torch.zeros(n))
        self.parts = RowTable(torch.full((n, PARTS), UNSEEN, dtype=torch.uint8))
        self.votes = RowTable(torch.full((n, votes), -1, dtype=torch.int16))

    def forget(self, rows: Tensor, observed: Tensor) -> None:
        """Start again with some rows, whose observed label is another one now.

        Args:
            rows: These rows, as a boolean mask (n,).
            observed: Observed labels of all rows (n,).
        """
        fresh = RowHistory(observed, self.votes.values.shape[1]).state_dict()
        for name, values in self.state_dict().items():  # they share memory with the buffers
            values[rows] = fresh[name][rows].to(values.device)

    def write(
        self, index: Tensor, labels: Tensor, lid: Tensor, observed_lid: Tensor, observed: Tensor
    ) -> None:
        """Stage what an epoch found about some rows.

        Args:
            index: Row numbers (b,).
            labels: Labels now (b,).
            lid: LID with these labels (b,).
            observed_lid: LID with the observed labels (b,).
            observed: Probability of the observed labels (b,).
        """
        self.judged.write(index, labels)
        self.lid.write(index, lid)
        self.lid_sum.write(index, self.lid_sum[index] + observed_lid)
        self.observed_sum.write(index, self.observed_sum[index] + observed)
        self.epochs.write(index, self.epochs[index] + 1)

    def note(self, index: Tensor, done: float, observed: Tensor, votes: Sequence[Tensor]) -> None:
        """Stage what the report shows about a row, in one or two bytes for each number.

        Args:
            index: Row numbers (b,).
            done: Share of the training that is over, below 1.
            observed: Probability of the observed labels (b,).
            votes: Predictions of each part of the method, as probabilities or logits (b, c).
        """
        parts = self.parts[index].clone()  # (b, PARTS)
        parts[:, min(int(done * PARTS), PARTS - 1)] = (observed * LEVELS).round().to(parts)
        self.parts.write(index, parts)
        self.votes.write(index, torch.stack([vote.argmax(1) for vote in votes], 1))

    def trajectory(self) -> Tensor:
        """Probability of the observed labels, part by part (n, t); not a number where not seen."""
        parts = self.parts.values
        level = torch.where(parts == UNSEEN, torch.nan, parts.float() / LEVELS)
        return level[:, (parts != UNSEEN).any(0)]  # a short run has fewer parts

    @property
    def seen(self) -> Tensor:
        """Rows that were trained on (n,)."""
        return self.epochs.values > 0

    def mean_lid(self) -> Tensor:
        """Mean LID of the observed labels (n,); not a number for rows never trained on."""
        return self.lid_sum.values / self.epochs.values

    def quality(self, of_observed: Tensor) -> Tensor:
        """Mean probability of the observed labels (n,), as the quality of these labels.

        Args:
            of_observed: What stands in for rows never trained on (n,).
        """
        mean = self.observed_sum.values / self.epochs.values
        return torch.where(self.seen, mean, of_observed.to(mean.device)).clamp(0, 1)
