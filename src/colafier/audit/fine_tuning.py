"""Soft-label fine-tuning: a classifier is trained further on what the audit believes."""

from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn

from colafier import _seeds
from colafier._progress import progress_bar
from colafier.audit.heads import SoftLabelTrainer, WithDroppedInputs


def fine_tune(
    classifier: nn.Module,
    x: Tensor,
    targets: Tensor,
    normalize: Callable[[Tensor], Tensor],
    *,
    epochs: int,
    batch_size: int,
    lr: float = 1e-3,
    frozen: Collection[str] = (),
    seed: int = 0,
    progress: bool = False,
) -> None:
    """Train a classifier further, in place, on P(true class | row, observed label).

    Args:
        classifier: Maps vectors to logits; on the CPU.
        x: Vectors (n, d).
        targets: Probabilities of the true classes (n, c).
        normalize: Applied to rows before the classifier sees them.
        epochs: Passes over the rows.
        batch_size: Rows in one step.
        lr: The learning rate at the start; it falls to zero.
        frozen: Endings of the names of parameters that stay as they are.
        seed: Of the order and of the dropped inputs.
        progress: Whether a terminal shows a bar.
    """
    for name, parameter in classifier.named_parameters():
        parameter.requires_grad_(not name.endswith(tuple(frozen)))
    trainer = SoftLabelTrainer(WithDroppedInputs(classifier), lr)
    batches = -(-len(x) // batch_size)
    with (
        torch.random.fork_rng(devices=[]),
        progress_bar("fine-tuning", epochs, progress) as advance,
    ):
        torch.manual_seed(_seeds.derive(seed, "relearn"))
        for epoch in range(epochs):
            split = torch.randperm(len(x)).tensor_split(batches)  # no batch has a single row
            for number, rows in enumerate(split):
                done = (epoch + number / batches) / epochs
                trainer.step(normalize(x[rows].float()), targets[rows], done)
            advance(1)
    classifier.eval().requires_grad_(False)
