"""A method that is set up on a few rows, with a batch of them: what tests of single steps need."""

from typing import TypeVar

import torch
from torch import Tensor

from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch, Method
from colafier.nets import net_factory
from colafier.training.training_set import TrainingSet

ROWS, CLASSES = 40, 4
Kind = TypeVar("Kind", bound=Method)


def ready(method: Kind, epoch: int = 0, epochs: int = 200) -> tuple[Kind, Batch]:
    """The method after `setup`, and all rows as a batch at the start of an epoch."""
    g = torch.Generator().manual_seed(1)
    observed = torch.arange(ROWS) % CLASSES
    x = torch.randn(ROWS, 5, generator=g) + observed[:, None]
    rows = TrainingSet(x, Labels(observed), CLASSES, view_names=method.views, batch_size=ROWS)
    torch.manual_seed(0)
    method.setup(net_factory("mlp", rows.row_shape, CLASSES), rows, epochs)
    part = next(iter(method.passes(0, rows)))
    return method, next(iter(rows.batches(part, epoch, 0)))


def row_losses(logits: Tensor, labels: Tensor) -> list[float]:
    """Cross entropy row by row, from its definition."""
    p = logits.detach().exp() / logits.detach().exp().sum(1, keepdim=True)
    return [-float(p[i, y].log()) for i, y in enumerate(labels.tolist())]


def smallest(losses: list[float], rows: list[int], drop: float) -> list[int]:
    """The rows that are kept when a share of them with the largest losses is dropped."""
    return sorted(rows, key=lambda i: losses[i])[: int((1 - drop) * len(rows))]
