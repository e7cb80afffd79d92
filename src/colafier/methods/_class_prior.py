"""Against trivial solutions: over a batch, all classes should be predicted equally often."""

from math import log

from torch import Tensor

from colafier.methods.contract import Method


def prior_loss(method: Method, p: Tensor) -> Tensor:
    """KL divergence from equal classes to the mean prediction of the batch, a scalar.

    Args:
        method: Knows the rows of other processes.
        p: Probabilities with their gradient (b, c).
    """
    everywhere = method.all_gather(p).mean(0)  # (c,)
    here = p.mean(0)  # (c,)
    # the value is that of the whole batch, the slope that of the rows of this process
    mean = (everywhere + here - here.detach()).clamp(min=1e-8)
    return -mean.log().mean() - log(p.shape[1])
