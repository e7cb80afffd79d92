"""Residual networks with the CIFAR stem: a 3x3 convolution of stride 1, no pooling after it.

He et al., Deep Residual Learning for Image Recognition, CVPR 2016 (post-activation, as the authors
of CoLafier used, although their paper cites the pre-activation one).
"""

from torch import Tensor, nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The output feature map, at half the size if the stride is 2."""
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = self.norm2(self.conv2(out))
        return F.relu(out + self.shortcut(x), inplace=True)


def resnet(channels: int, widths: tuple[int, ...], blocks: tuple[int, ...]) -> nn.Module:
    """A stem and one stage per width; each stage after the first halves the map."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels, widths[0], 3, 1, 1, bias=False),
        nn.BatchNorm2d(widths[0]),
        nn.ReLU(inplace=True),
    ]
    inputs = widths[0]
    for stage, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        for block in range(count):
            layers.append(Block(inputs, width, stride=2 if stage > 0 and block == 0 else 1))
            inputs = width
    return nn.Sequential(*layers)


_WIDE = (64, 128, 256, 512)
RESNETS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "resnet8": ((16, 32, 64), (1, 1, 1)),
    "resnet10": (_WIDE, (1, 1, 1, 1)),
    "resnet18": (_WIDE, (2, 2, 2, 2)),
    "resnet34": (_WIDE, (3, 4, 6, 3)),
}
