"""Whatever the caller has chosen, training works, and leaves it as it was."""

import os
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
import torch

from colafier import ColafierClassifier, resolve, run
from colafier._surroundings import own_surroundings

X = np.random.default_rng(0).normal(size=(80, 4)).astype("float32")
Y = (X[:, 0] > 0).astype(int)


@contextmanager
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def fitted() -> list[list[float]]:
    classifier = ColafierClassifier(epochs=2, random_state=0).fit(X, Y)
    probabilities: list[list[float]] = classifier.predict_proba(X).tolist()
    return probabilities


@pytest.mark.parametrize("caller", [torch.no_grad, torch.inference_mode, float64])
def test_fit_gives_the_same_wherever_it_is_called(
    caller: Callable[[], AbstractContextManager[None]],
) -> None:
    usual = fitted()
    with caller():
        dtype, gradients = torch.get_default_dtype(), torch.is_grad_enabled()
        assert fitted() == usual
        assert (torch.get_default_dtype(), torch.is_grad_enabled()) == (dtype, gradients)


def test_generators_filters_and_variables_are_as_before() -> None:
    @own_surroundings()
    def careless() -> None:
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.manual_seed(1)
        warnings.simplefilter("once")  # not as in the tests, which make errors of warnings
        os.environ["CARELESS"] = "1"
        os.environ.pop("HOME", None)
        raise RuntimeError

    def surroundings() -> tuple[object, ...]:
        of_numpy = np.random.get_state()[1].tolist()  # type: ignore[index] # noqa: NPY002
        of_torch = torch.get_rng_state().tolist()
        return random.getstate(), of_numpy, of_torch, [*warnings.filters], dict(os.environ)

    before = surroundings()
    with pytest.raises(RuntimeError):
        careless()
    assert surroundings() == before


def test_a_run_leaves_the_generator_of_torch_alone() -> None:
    settings = resolve("digits", {"epochs": 1, "limit": 60})
    before = torch.get_rng_state()
    run(settings, progress=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_importing_every_public_name_draws_no_random_number() -> None:
    code = (
        "import random; before = random.getstate(); from colafier import *; "
        "assert random.getstate() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
