"""Predictions of a classifier on rows without augmentation, in chunks, without side effects."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

CHUNK = 512


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode without gradients; afterwards each submodule is back in its earlier mode."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def as_float(x: Tensor) -> Tensor:
    """Rows as float32; images stored as bytes are scaled to the range 0 to 1."""
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
        module: The classifier; rows are moved to the device of its parameters.
        x: All rows, as stored.
        normalize: The normalization, which is applied to rows as floats.
        rows: Numbers of the rows to predict, at least one; None: all rows.
        chunk: Rows in one forward pass.
    """
    rows = torch.arange(len(x)) if rows is None else rows.cpu()  # (m,)
    with evaluating(module):
        parts = [
            module(batch).float().softmax(1).cpu()
            for batch in batches(module, x, normalize, rows, chunk)
        ]
    return torch.cat(parts)


def batches(
    module: nn.Module,
    x: Tensor,
    normalize: Callable[[Tensor], Tensor],
    rows: Tensor,
    chunk: int = CHUNK,
) -> Iterator[Tensor]:
    """Normalized rows in chunks, on the device of a module; arguments as in `predict`."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    for some in torch.split(rows, chunk):
        yield normalize(as_float(x[some].to(device)))
