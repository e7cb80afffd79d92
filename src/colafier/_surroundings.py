"""Training in a program that has settings of its own, and leaves them as they were."""

import os
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def own_surroundings() -> Iterator[None]:
    """Work as in a fresh process, then put everything back; also as a decorator.

    Inside, gradients are on and new tensors are float32, whatever the caller has chosen. Afterwards
    random generators, warning filters and environment variables are as before: training seeds the
    first, and libraries that are imported on the way change the others.
    """
    dtype, of_python = torch.get_default_dtype(), random.getstate()
    of_numpy = np.random.get_state()  # noqa: NPY002 - the caller's, which scikit-learn may use
    variables = dict(os.environ)
    devices = range(torch.cuda.device_count())
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.random.fork_rng(devices),
        warnings.catch_warnings(),
    ):
        torch.set_default_dtype(torch.float32)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            random.setstate(of_python)
            np.random.set_state(of_numpy)  # noqa: NPY002
            for name in os.environ.keys() - variables.keys():
                del os.environ[name]
            os.environ.update(variables)
