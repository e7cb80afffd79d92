"""How the weights of a new backbone start: as torch has it, or as the authors of CoLafier do."""

from torch import nn

INITS = ("torch", "kaiming-fan-out")


def check_init(init: str) -> None:
    """Refuse a name that is not in `INITS`."""
    if init not in INITS:
        raise ValueError(f"init must be one of {', '.join(INITS)}, not {init!r}")


def initialize(module: nn.Module, init: str) -> None:
    """Start the convolutions of a new module again, from a normal distribution if so chosen.

    `kaiming-fan-out` is what ResNets of torchvision and of the authors have: variance 2 / (outputs
    x kernel size). Torch's default for convolutions is uniform, with variance 1 / (3 x inputs x
    kernel size). BatchNorm (weight 1, bias 0) and linear layers start the same in both.

    Args:
        module: A backbone, changed in place.
        init: A name in `INITS`.
    """
    check_init(init)
    if init == "torch":
        return
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
