"""The classifier that every method builds its networks from: a backbone and a linear head."""

import torch
from torch import Tensor, nn

from colafier.nets.dtype import backbone_dtype


class Backbone(nn.Module):
    """Maps rows to float32 features (b, num_features), whatever precision is used inside.

    Args:
        module: Any module that gives a vector for each row, or a feature map, which is averaged.
        num_features: Width of the features.
        dtype: `auto`, `float32` or `bf16`.
    """

    def __init__(self, module: nn.Module, num_features: int, dtype: str = "auto") -> None:
        super().__init__()
        # Twice as fast on CPUs. Torch's annotations lack this argument.
        self.module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.num_features = num_features
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        """Features (b, num_features)."""
        dtype = backbone_dtype(self.dtype, x.device)
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, dtype, enabled=dtype != torch.float32):
            features: Tensor = self.module(x)
        if features.dim() > 2:
            features = features.mean(dim=tuple(range(2, features.dim())))
        return features.float()


class Classifier(nn.Module):
    """Backbone and linear head; `classifier(x)` gives logits (b, num_classes)."""

    def __init__(self, backbone: Backbone, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.num_features, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (b, num_classes)."""
        logits: Tensor = self.head(self.backbone(x))
        return logits
