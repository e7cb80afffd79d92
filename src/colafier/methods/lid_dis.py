"""LID-dis alone, the study of the paper's section 3.2: does LID tell wrong labels from right ones?

It trains on the observed labels throughout, the other label's term at weight 1, and records LID.
"""

from typing import Annotated

import torch
from torch import Tensor, nn

from colafier.core import losses
from colafier.core.functional import draw_other
from colafier.core.lid import reach
from colafier.core.subnets import LidDis
from colafier.core.weights import view_scores
from colafier.methods.contract import (
    Batch,
    MakeNet,
    Method,
    Purified,
    Range,
    Terms,
    TrainSet,
)
from colafier.methods.row_table import RowTable


class WithoutLabel(nn.Module):
    """LID-dis as a classifier: it judges each row with all labels at once, equally likely."""

    def __init__(self, dis: LidDis, num_classes: int) -> None:
        super().__init__()
        self.dis = dis
        self.num_classes = num_classes

    def forward(self, x: Tensor) -> Tensor:
        """Logits (b, c)."""
        anything = torch.full((len(x), self.num_classes), 1 / self.num_classes, device=x.device)
        _, logits = self.dis.judge(self.dis.encode(x), anything)
        return logits


class LidDisAlone(Method):
    """LID-dis trained on the observed labels; its LID scores are the result.

    Args:
        neighbors: k of LID; 0: one for each row, just past the rows that share its label.
        embedding_scale: Start of the label embedding.
        other_weight: Weight of the wrong-label term; the study has 1, the whole method 0.5.
    """

    reference = "Zhang, Hu, Rundensteiner: CoLafier, section 3.2, SDM"
    year = 2024

    def __init__(
        self,
        *,
        neighbors: Annotated[int, Range(0)] = 20,
        embedding_scale: Annotated[float, Range(0)] = 1.0,
        other_weight: Annotated[float, Range(0)] = 1.0,
    ) -> None:
        super().__init__()
        self.neighbors = neighbors
        self.embedding_scale = embedding_scale
        self.other_weight = other_weight

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """LID-dis, and the LID of each row: this epoch's and the sum of all."""
        self.num_classes = train.num_classes
        dis = LidDis(make_net().backbone, train.num_classes, self.embedding_scale)
        self.net = WithoutLabel(dis, train.num_classes)
        self.lid = RowTable(torch.full((train.n,), torch.nan))
        self.lid_sum = RowTable(torch.zeros(train.n))
        self.epochs_seen = RowTable(torch.zeros(train.n))

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy with the given and with the wrong label as input."""
        wrong = self.local_slice(draw_other(self.all_gather(batch.y), self.num_classes))  # (b,)
        features = self.net.dis.encode(batch.x)  # (b, d)
        z, logits = self.net.dis.judge(features, batch.y)
        _, wrong_logits = self.net.dis.judge(features, wrong)
        labels = self.all_gather(batch.y)
        k = self.neighbors or reach(labels, labels)
        lid = self.local_slice(view_scores([self.all_gather(z)], k)[0])  # (b,)
        self.lid.write(batch.index, lid)
        self.lid_sum.write(batch.index, self.lid_sum[batch.index] + lid)
        self.epochs_seen.write(batch.index, self.epochs_seen[batch.index] + 1)
        whole = torch.ones_like(lid)
        return {"dis": losses.clean(whole, [logits], batch.y, [wrong_logits], self.other_weight)}

    def rows_now(self) -> dict[str, Tensor]:
        """LID of the observed labels in this epoch."""
        return {"lid": self.lid.values}

    def purify(self, train: TrainSet, probabilities: Tensor) -> Purified:
        """The observed labels, ranked by their mean LID."""
        lid = self.lid_sum.values / self.epochs_seen.values  # (n,) not a number where unseen
        rank = torch.nan_to_num(lid, nan=torch.inf).argsort().argsort()
        quality = 1 - rank / max(train.n - 1, 1)
        return Purified(train.observed.clone(), quality, {"lid": lid})
