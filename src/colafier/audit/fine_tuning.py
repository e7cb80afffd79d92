"""Soft-label fine-tuning: a classifier is trained further on P(true class | row, observed label)."""

from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from colafier import _seeds
from colafier._progress import progress_bar

DROPPED_INPUTS = 0.2


def fine_tune(
    classifier: nn.Module,
    x: Tensor,
    believed: Tensor,
    normalize: Callable[[Tensor], Tensor],
    *,
    epochs: int,
    batch_size: int,
    lr: float = 1e-3,
    weight_decay: float = 1e-2,
    frozen: Collection[str] = (),
    seed: int = 0,
    progress: bool = False,
) -> None:
    """Train a classifier further, in place, on P(true class | row, observed label).

    Args:
        classifier: Maps vectors to logits; on the CPU.
        x: Vectors (n, d).
        believed: Probabilities of the true classes (n, c).
        normalize: Applied to rows before the classifier sees them.
        epochs: Walks over the rows.
        batch_size: Rows in one step.
        lr: Where the learning rate starts; it falls to zero.
        weight_decay: Of AdamW.
        frozen: Ends of the names of parameters that stay as they are.
        seed: Of the order and of what is dropped.
        progress: Whether a terminal shows a bar.
    """
    classifier.train()
    for name, parameter in classifier.named_parameters():
        parameter.requires_grad_(not name.endswith(tuple(frozen)))
    learned = [parameter for parameter in classifier.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=lr, weight_decay=weight_decay)
    batches = -(-len(x) // batch_size)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, epochs * batches)
    with (
        torch.random.fork_rng(devices=[]),
        progress_bar("learning again", epochs, progress) as advance,
    ):
        torch.manual_seed(_seeds.derive(seed, "fine_tune"))
        for _ in range(epochs):
            for rows in torch.randperm(len(x)).tensor_split(batches):  # none with a single row
                # One mask for a whole batch costs next to nothing
                kept = (torch.rand(x.shape[1]) >= DROPPED_INPUTS) / (1 - DROPPED_INPUTS)  # (d,)
                logits = classifier(normalize(x[rows].float()) * kept)  # (b, c)
                loss = F.cross_entropy(logits, believed[rows])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
            advance(1)
    classifier.eval().requires_grad_(False)
