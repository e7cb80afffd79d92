"""LID-dis alone, the study of the paper's section 3.2: does LID tell wrong labels from right ones?

It trains on the observed labels throughout, with other_weight 1, and records LID.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor, nn

from colafier.core import losses
from colafier.core.functional import draw_other
from colafier.core.lid import neighbors
from colafier.core.subnets import LidDis
from colafier.core.weights import view_scores
from colafier.methods.contract import (
    Batch,
    MakeNet,
    Method,
    Purified,
    Range,
    RowTable,
    Terms,
    TrainSet,
)

# k of LID that the study compares, by the name of the score; 0: by the label counts of the batch.
# Training does not depend on k, so one run has both.
STUDIED = {"lid_k20": 20, "lid_by_labels": 0}


class WithoutLabel(nn.Module):
    """LID-dis as a classifier: it judges each row with all labels at once, equally likely."""

    def __init__(self, dis: LidDis) -> None:
        super().__init__()
        self.dis = dis

    def forward(self, x: Tensor) -> Tensor:
        """Logits (b, c)."""
        c = self.dis.num_classes
        anything = torch.full((len(x), c), 1 / c, device=x.device)  # (b, c)
        _, logits = self.dis.judge(self.dis.encode(x), anything)
        return logits


class LidDisAlone(Method):
    """LID-dis trained on the observed labels; its LID scores are the result.

    Args:
        neighbors: k of the LID that ranks the labels; 0: one for each row, just past the rows that
            share its label. LID with k = 20 and with 0 is recorded in any case.
        embedding_scale: Start of the label embedding.
        other_weight: Weight of the term with a random other label; 0.5 in the whole method.
    """

    reference = "Zhang, Hu, Rundensteiner: CoLafier, section 3.2, SDM"
    year = 2024

    def __init__(
        self,
        *,
        neighbors: Literal[0] | Annotated[int, Range(2)] = 20,
        embedding_scale: Annotated[float, Range(0)] = 1.0,
        other_weight: Annotated[float, Range(0)] = 1.0,
    ) -> None:
        super().__init__()
        self.neighbors = neighbors
        self.embedding_scale = embedding_scale
        self.other_weight = other_weight

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """LID-dis, and the LID of each row: those of this epoch, and the sum of all epochs."""
        dis = LidDis(make_net().backbone, train.num_classes, self.embedding_scale)
        self.net = WithoutLabel(dis)
        self.lid = RowTable(torch.full((train.n,), torch.nan))
        self.lid_sum = RowTable(torch.zeros(train.n))
        self.epochs_seen = RowTable(torch.zeros(train.n))
        self.studied = RowTable(torch.full((train.n, len(STUDIED)), torch.nan))

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy with the observed and with a random other label as input."""
        labels = self.all_gather(batch.y)  # (all b,)
        other = self.local_slice(draw_other(labels, self.net.dis.num_classes))  # (b,)
        features = self.net.dis.encode(batch.x)  # (b, d)
        z, logits = self.net.dis.judge(features, batch.y)
        _, other_logits = self.net.dis.judge(features, other)
        all_z = self.all_gather(z)  # (all b, d)
        lid = self._lid(all_z, labels, self.neighbors)  # (b,)
        self.lid.write(batch.index, lid)
        self.lid_sum.write(batch.index, self.lid_sum[batch.index] + lid)
        self.epochs_seen.write(batch.index, self.epochs_seen[batch.index] + 1)
        studied = [self._lid(all_z, labels, k) for k in STUDIED.values()]
        self.studied.write(batch.index, torch.stack(studied, 1))
        whole = torch.ones_like(lid)
        return {"dis": losses.clean(whole, [logits], batch.y, [other_logits], self.other_weight)}

    def _lid(self, all_z: Tensor, labels: Tensor, k: int) -> Tensor:
        """LID of this process's rows (b,)."""
        scores = view_scores([all_z], neighbors(labels, labels, k))[0]  # (all b,)
        return self.local_slice(scores)

    def rows_now(self) -> dict[str, Tensor]:
        """LID of the observed labels in this epoch: by the chosen k, and by those of the study."""
        return {"lid": self.lid.values, **dict(zip(STUDIED, self.studied.values.T, strict=True))}

    def purify(self, train: TrainSet, probabilities: Tensor) -> Purified:
        """The observed labels, ranked by their mean LID."""
        lid = self.lid_sum.values / self.epochs_seen.values  # (n,) not a number where unseen
        rank = torch.nan_to_num(lid, nan=torch.inf).argsort().argsort()
        quality = 1 - rank / max(train.n - 1, 1)
        return Purified(train.observed.clone(), quality, {"lid": lid})
