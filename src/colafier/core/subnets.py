"""The two subnets: LID-gen, which proposes labels, and LID-dis, which judges a row with a label."""

import copy
from typing import Self

import torch
from torch import Tensor, nn

from colafier.nets import Backbone, Classifier


class LidGen(nn.Module):
    """LID-gen, f_GE: an ordinary classifier. It proposes labels and is what gets deployed."""

    def __init__(self, net: Classifier) -> None:
        super().__init__()
        self.backbone = net.backbone
        self.head = net.head

    def forward(self, x: Tensor) -> Tensor:
        """Logits (b, c)."""
        logits: Tensor = self.head(self.backbone(x))
        return logits

    @torch.no_grad()
    def lifted(self, bias: Tensor) -> Self:
        """A copy that adds this bias (c,) to its logits, in its last layer.

        A last layer without a bias gets one.
        """
        net = copy.deepcopy(self)
        own = torch.zeros_like(bias) if net.head.bias is None else net.head.bias  # (c,)
        net.head.bias = nn.Parameter(own + bias, requires_grad=net.head.weight.requires_grad)
        return net


class LidDis(nn.Module):
    """LID-dis, f_LD: predicts a row's label from its features and a label.

    The features do not depend on the label, so `encode` runs the backbone once for each view and
    `judge` then takes as many labels as one likes.

    Args:
        backbone: g_LD.
        num_classes: Number of classes.
        embedding_scale: Standard deviation of the label embedding at the start.

    Note: The authors' code starts the embedding at N(0, 1), where it outweighs the features; a
        smaller start makes LID tell wrong labels better (docs/variants.md has the numbers).
    """

    def __init__(self, backbone: Backbone, num_classes: int, embedding_scale: float = 1.0) -> None:
        super().__init__()
        width = backbone.num_features
        self.num_classes = num_classes
        self.backbone = backbone
        self.embedding = nn.Linear(num_classes, width, bias=False)  # g_LE on one-hot or soft labels
        nn.init.normal_(self.embedding.weight, std=embedding_scale)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)  # h_LD

    def encode(self, x: Tensor) -> Tensor:
        """Features g_LD(x), (b, d)."""
        features: Tensor = self.backbone(x)
        return features

    def judge(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Eq. 3.1: the enhanced representation z (b, d), and h_LD's logits (b, c) for it.

        Args:
            features: What `encode` gave.
            labels: Class numbers (b,), or probabilities (b, c).
        """
        embedded = self.embedding(labels) if labels.dim() == 2 else self.embedding.weight.T[labels]
        z: Tensor = self.norm(features + embedded)
        return z, self.head(z)

    def forward(self, x: Tensor) -> Tensor:
        """What LID-dis predicts without a label: logarithms of its mean over all labels (b, c)."""
        features = self.encode(x)  # (b, d)
        every = torch.arange(self.num_classes, device=x.device)
        of_labels = [self.judge(features, label.expand(len(x)))[1].softmax(1) for label in every]
        return torch.stack(of_labels).mean(0).clamp(min=1e-12).log()
