"""Small backbones: a convolutional net for tiny images, an MLP and a linear map for vectors."""

from torch import nn


def convnet(channels: int, width: int = 32) -> nn.Module:
    """Four 3x3 convolutions, one of them with stride 2; for images of 8 to 32 pixels on a CPU."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in (
        (channels, width, 1),
        (width, width, 1),
        (width, 2 * width, 2),
        (2 * width, 2 * width, 1),
    ):
        layers += [
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)


def mlp(inputs: int, width: int) -> nn.Module:
    """One hidden layer, then a feature layer, both with ReLU; no batch normalization."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, width),
        nn.ReLU(inplace=True),
        nn.Linear(width, width),
        nn.ReLU(inplace=True),
    )


def linear(inputs: int, width: int) -> nn.Module:
    """One linear map to the feature space."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, width))
