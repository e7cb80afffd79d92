"""What a classifier says about rows without augmentation, in chunks and without side effects."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

CHUNK = 512


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode without gradients inside; afterwards each submodule has the mode that it had."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def as_float(x: Tensor) -> Tensor:
    """Bytes of images become numbers from 0 to 1, other rows float32 as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x.float()


def predict(
    module: nn.Module,
    x: Tensor,
    normalize: Callable[[Tensor], Tensor],
    rows: Tensor | None = None,
    chunk: int = CHUNK,
) -> Tensor:
    """Probabilities (n or len(rows), c), float32 on the CPU, of a module that gives logits.

    Args:
        module: The classifier; its rows are sent to the device of its parameters.
        x: All rows, as stored.
        normalize: Applied to rows as floats.
        rows: Numbers of the rows wanted, at least one; None: all.
        chunk: How many rows are sent through at once.
    """
    rows = torch.arange(len(x)) if rows is None else rows.cpu()  # (m,)
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    with evaluating(module):
        parts = [
            module(normalize(as_float(x[some].to(device)))).float().softmax(1).cpu()
            for some in torch.split(rows, chunk)
        ]
    return torch.cat(parts)
