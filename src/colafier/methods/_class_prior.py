"""A term against trivial solutions: a batch should predict all classes equally often."""

from math import log

from torch import Tensor

from colafier.methods.contract import Method


def prior_loss(method: Method, p: Tensor) -> Tensor:
    """KL divergence from the uniform distribution to the mean prediction of the batch, a scalar.

    Args:
        method: Gathers the rows of all processes.
        p: Probabilities with gradient (b, c).
    """
    everywhere = method.all_gather(p).mean(0)  # (c,)
    here = p.mean(0)  # (c,)
    # the value is that of the whole batch, the gradient that of this process's rows
    mean = (everywhere + here - here.detach()).clamp(min=1e-8)
    return -mean.log().mean() - log(p.shape[1])
