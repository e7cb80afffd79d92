"""JoCoR: two nets train together, and toward agreement, on the rows with a small joint loss."""

from typing import Annotated

from torch import Tensor

from colafier.methods._small_loss import SmallLossPair
from colafier.methods.contract import Batch, Range, Terms


def disagreement(first: Tensor, second: Tensor) -> Tensor:
    """Symmetric Kullback-Leibler divergence of two predictions (b,), from logits (b, c).

    It is computed from log probabilities: a probability that underflows to 0 would make the
    gradient not a number, which ended runs of the authors' code.
    """
    a, b = first.log_softmax(1), second.log_softmax(1)  # (b, c), (b, c)
    return ((a.exp() - b.exp()) * (a - b)).sum(1)


class JoCoR(SmallLossPair):
    """Two nets as one model: both cross entropies and a term that makes the nets agree.

    The nets agree sooner on rows with a correct label, so the joint loss tells rows apart.

    Args:
        noise_rate: Final share of rows that are left out, tau. By default the true share of wrong
            labels if a run injects noise and so knows it, else 0.2.
        ramp: Epochs until that share is reached, T_k; by default 10, at most half of the run.
        agreement: Weight of the agreement, lambda; cross entropy has the rest.

    Note: The authors recommend 0.9 for CIFAR-10 (0.65 at 80 % noise, 0.85 for CIFAR-100); the
        default of their code, 0.1, is much worse. As for Co-teaching, they train without
        augmentation, with Adam.
    """

    reference = (
        "Wei et al.: Combating noisy labels by agreement: A joint training method with "
        "co-regularization, CVPR"
    )
    year = 2020

    def __init__(
        self,
        *,
        noise_rate: Annotated[float, Range(0, 1)] | None = None,
        ramp: Annotated[int, Range(1)] | None = None,
        agreement: Annotated[float, Range(0, 1)] = 0.9,
    ) -> None:
        super().__init__(noise_rate=noise_rate, ramp=ramp)
        self.agreement = agreement

    def loss(self, batch: Batch) -> Terms:
        """Joint loss over the rows where it is small; both nets have gradients of both terms."""
        logits, (first, second) = self.logits_and_losses(batch)
        labels = (1 - self.agreement) * (first + second)  # (b,)
        apart = self.agreement * disagreement(*logits)  # (b,)
        joint = labels + apart  # (b,)
        self.row_losses.write(batch.index, joint)
        chosen = self.small_loss_weights(joint, batch.progress)  # (b,)
        return {"labels": (chosen * labels).mean(), "agreement": (chosen * apart).mean()}
