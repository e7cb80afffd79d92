"""Witnesses answer only about rows that they did not learn from."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import one_hot

from colafier.audit import out_of_fold
from colafier.audit.out_of_fold import cross_fit
from colafier.methods.contract import Labels
from colafier.nets.normalize import Normalize


def digits(n: int, wrong: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors (n, 64), observed labels and true classes (n,)."""
    data = load_digits()
    x, truth = torch.tensor(data.data[:n]).float(), torch.tensor(data.target[:n])
    generator = torch.Generator().manual_seed(3)
    flip = torch.rand(n, generator=generator) < wrong
    drawn = torch.randint(10, (n,), generator=generator)
    return x, torch.where(flip, drawn, truth), truth


def ask(x: Tensor, observed: Tensor, c: int = 10, **options: Any) -> Tensor:
    return cross_fit(x, Labels(observed), c, Normalize.fit(x), **options)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little training, where the numbers do not matter."""
    monkeypatch.setattr(out_of_fold, "MIN_STEPS", 1)
    monkeypatch.setattr(out_of_fold, "EPOCHS", 3)


def numbered(n: int) -> Tensor:
    """Vectors whose first number is the row's own."""
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    x[:, 0] = torch.arange(n)
    return x


@pytest.mark.usefixtures("short")
def test_no_head_is_asked_about_a_row_that_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[int, set[int]] = {}
    asked: dict[int, set[int]] = {}
    learn, say = out_of_fold._Head.learn, out_of_fold._Head.say

    def learn_and_note(head: Any, x: Tensor, *rest: Any) -> None:
        seen.setdefault(id(head), set()).update(x[:, 0].long().tolist())
        learn(head, x / 100, *rest)

    def say_and_note(head: Any, x: Tensor) -> Tensor:
        asked.setdefault(id(head), set()).update(x[:, 0].long().tolist())
        return say(head, x / 100)

    monkeypatch.setattr(out_of_fold._Head, "learn", learn_and_note)
    monkeypatch.setattr(out_of_fold._Head, "say", say_and_note)
    observed = torch.arange(90) % 3
    observed[::10] = -1
    cross_fit(numbered(90), Labels(observed), 3, lambda x: x)
    assert seen.keys() == asked.keys()
    for head in seen:
        assert not seen[head] & asked[head]
    assert set.union(*asked.values()) == set(range(90))  # each row is asked about
    assert set.union(*seen.values()) == set((observed >= 0).nonzero()[:, 0].tolist())


@pytest.mark.usefixtures("short")
def test_a_row_is_judged_the_same_whatever_its_own_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """With parts and targets fixed, a label reaches the heads of the other parts alone."""
    part = torch.arange(80) % out_of_fold.PARTS
    monkeypatch.setattr(out_of_fold, "_parts", lambda *_: part)
    monkeypatch.setattr(
        out_of_fold, "soft_labels", lambda p, observed: one_hot(observed, p.shape[1])
    )
    x, observed, _ = digits(80)
    before = ask(x, observed)
    observed[12] = (observed[12] + 1) % 10
    after = ask(x, observed)
    own = part == part[12]
    assert torch.equal(before[own], after[own])
    assert not torch.equal(before[~own], after[~own])


def test_each_class_is_dealt_out_evenly() -> None:
    observed = torch.tensor([0] * 9 + [1] * 4 + [-1] * 7)
    part = out_of_fold._parts(observed, torch.Generator().manual_seed(0))
    for label in (0, 1, -1):
        counts = part[observed == label].bincount(minlength=out_of_fold.PARTS)
        assert counts.max() - counts.min() <= 1


def test_witnesses_are_better_than_the_labels() -> None:
    x, observed, truth = digits(300)
    said = ask(x, observed)
    assert said.sum(1).tolist() == pytest.approx([1.0] * 300, abs=1e-4)
    assert (said.argmax(1) == truth).double().mean() > (observed == truth).double().mean() + 0.05


@pytest.mark.usefixtures("short")
def test_seed_decides_and_global_random_numbers_stay() -> None:
    x, observed, _ = digits(60)
    before, of_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (ask(x, observed, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())
    assert (np.random.get_state()[1] == of_numpy).all()  # noqa: NPY002


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("n", [2, 3, 50])
def test_few_rows(n: int) -> None:
    x, observed, _ = digits(n)
    said = ask(x, observed)
    assert said.shape == (n, 10)
    assert said.isfinite().all()


@pytest.mark.usefixtures("short")
def test_class_with_one_row_and_rows_without_labels() -> None:
    x, observed, _ = digits(60)
    observed = observed % 3
    observed[observed == 2] = -1
    observed[5] = 2
    said = ask(x, observed, 3)
    assert said.isfinite().all()
    assert said.min() >= 0


@pytest.mark.usefixtures("short")
def test_trusted_targets_are_never_softened(monkeypatch: pytest.MonkeyPatch) -> None:
    doubted: list[int] = []

    def soft(p: Tensor, observed: Tensor) -> Tensor:
        doubted.append(len(observed))
        return one_hot(observed, p.shape[1])

    monkeypatch.setattr(out_of_fold, "soft_labels", soft)
    x, observed, _ = digits(60)
    ask(x, observed, trusted=torch.arange(60) < 25)
    assert set(doubted) == {35}


@pytest.mark.usefixtures("short")
def test_a_bar_shows_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    @contextmanager
    def noted(what: str, total: int, shown: bool) -> Iterator[Callable[[int], None]]:
        assert what
        assert shown
        yield done.append
        assert sum(done) == total == out_of_fold.PARTS * out_of_fold.EPOCHS

    monkeypatch.setattr(out_of_fold, "progress_bar", noted)
    x, observed, _ = digits(60)
    ask(x, observed, progress=True)
    assert done


@pytest.mark.usefixtures("short")
def test_noise_is_learned_from_decided_rows_with_the_labels_that_original(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def note(p: Tensor, observed: Tensor) -> Tensor:
        asked.append((p, observed))
        return p

    monkeypatch.setattr(out_of_fold, "soft_labels", note)
    observed, original = torch.arange(60) % 3, torch.arange(60) % 3
    trusted = torch.arange(60) < 25
    original[:25] = 2
    original[0] = observed[50] = -1  # decided, but it came without a label; and one without any
    ask(numbered(60) / 100, observed, 3, trusted=trusted, original=original)
    p, labels = asked[-1]
    there = (original >= 0) & (observed >= 0)
    assert torch.equal(labels, original[there])
    assert torch.equal(p[:24], one_hot(observed[1:25], 3).double())
