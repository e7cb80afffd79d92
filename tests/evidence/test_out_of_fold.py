"""Every row is predicted by a head that never saw its label."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import one_hot

from colafier.evidence import out_of_fold
from colafier.evidence.config import EvidenceConfig
from colafier.evidence.heads import Head, SoftLabelTrainer
from colafier.evidence.labels import Labels
from colafier.evidence.out_of_fold import cross_fit
from colafier.nets.normalize import Normalize

SHORT = EvidenceConfig(head_epochs=3, head_warmup=1, head_min_steps=1)


def digits(n: int, wrong: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors (n, 64), observed labels and true classes (n,)."""
    data = load_digits()
    x, truth = torch.tensor(data.data[:n]).float(), torch.tensor(data.target[:n])
    generator = torch.Generator().manual_seed(3)
    flip = torch.rand(n, generator=generator) < wrong
    drawn = torch.randint(10, (n,), generator=generator)
    return x, torch.where(flip, drawn, truth), truth


def clouds(n: int, c: int = 3) -> tuple[Tensor, Tensor]:
    """Vectors (n, 4) around a center for each class, and their classes (n,)."""
    truth = torch.arange(n) % c
    noise = torch.randn(n, 4, generator=torch.Generator().manual_seed(2))
    return 4 * torch.eye(c, 4)[truth] + 0.5 * noise, truth


def predict(x: Tensor, observed: Tensor, c: int = 10, **options: Any) -> Tensor:
    return cross_fit(x, Labels(observed), c, Normalize.fit(x), **{"config": SHORT, **options})


def as_it_is(x: Tensor) -> Tensor:
    return x


def test_no_head_predicts_a_row_that_it_was_trained_on() -> None:
    """Each row has a feature of its own: only a head that saw the row can know its label."""
    n, c = 100, 5
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    x, observed = 10 * torch.eye(n), shuffled % c
    longer = EvidenceConfig(head_epochs=12, head_warmup=3, head_min_steps=1)
    p = cross_fit(x, Labels(observed), c, as_it_is, config=longer)
    agree = float((p.argmax(1) == observed).float().mean())
    assert agree < 0.35  # chance is 0.2; a single head that saw its fold would give 0.4

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        seen = SoftLabelTrainer(Head(n, c))
        for epoch in range(20):
            for rows in torch.randperm(n).split(5):
                seen.step(x[rows], one_hot(observed[rows], c).float(), epoch / 20)
    assert (seen.predict(x).argmax(1) == observed).all()  # so the trap works


@pytest.mark.parametrize("seed", range(3))
def test_the_rows_of_a_rare_class_are_in_different_folds(seed: int) -> None:
    """Two rows and two folds: each is known to the head that predicts the other."""
    x, observed = clouds(60)
    x[:2], observed[:2] = torch.tensor([0.0, 0.0, 0.0, 8.0]), 3
    config = EvidenceConfig(folds=2, head_epochs=30, head_warmup=1, head_min_steps=1)
    labels = Labels(observed, trusted=torch.arange(60) < 2)
    p = cross_fit(x, labels, 4, as_it_is, config=config, seed=seed)
    assert p[:2].argmax(1).tolist() == [3, 3]


def test_predictions_are_better_than_the_labels() -> None:
    x, observed, truth = digits(300)
    p = predict(x, observed, config=EvidenceConfig())
    assert p.sum(1).tolist() == pytest.approx([1.0] * 300, abs=1e-4)
    assert (p.argmax(1) == truth).double().mean() > (observed == truth).double().mean() + 0.05


def test_rows_without_a_label_are_predicted_and_not_trained_on() -> None:
    x, truth = clouds(90)
    observed = truth.clone()
    observed[::3] = -1  # all rows of a class
    p = predict(x, observed, 3, config=EvidenceConfig(head_min_steps=60))
    assert p.isfinite().all()
    assert (p[:, 0] < 0.4).all()  # nobody said that there is such a class
    assert (p.argmax(1) == truth)[observed >= 0].all()


def test_seed_decides_and_global_random_numbers_stay() -> None:
    x, observed, _ = digits(60)
    before, of_numpy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (predict(x, observed, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())
    assert (np.random.get_state()[1] == of_numpy).all()  # noqa: NPY002


@pytest.mark.parametrize("n", [2, 3, 50])
def test_few_rows(n: int) -> None:
    x, observed, _ = digits(n)
    p = predict(x, observed)
    assert p.shape == (n, 10)
    assert p.isfinite().all()


def test_class_with_one_row_and_rows_without_labels() -> None:
    x, observed, _ = digits(60)
    observed = observed % 3
    observed[observed == 2] = -1
    observed[5] = 2
    p = predict(x, observed, 3)
    assert p.isfinite().all()
    assert p.min() >= 0


@pytest.mark.parametrize("numbers", [0, 2**27])
def test_features_that_are_too_many_are_normalized_in_parts(
    numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, observed, _ = digits(60)
    whole = predict(x, observed)
    monkeypatch.setattr(out_of_fold, "NORMALIZED_AT_ONCE", numbers)
    assert torch.allclose(predict(x, observed), whole, atol=1e-6)


def test_decided_rows_teach_the_heads() -> None:
    """Most labels of class 2 say 1, which nobody can see; a person has decided 12 rows."""
    x, truth = clouds(180)
    flip = torch.rand(180, generator=torch.Generator().manual_seed(2)) < 0.6
    original = torch.where(flip & (truth == 2), 1, truth)
    trusted = torch.zeros(180, dtype=torch.bool)
    trusted[(truth == 2).nonzero()[:12, 0]] = True
    observed = torch.where(trusted, truth, original)
    rest = ~trusted & (truth == 2)

    def of_the_rest(labels: Labels) -> float:
        config = EvidenceConfig(head_min_steps=100)
        return float(cross_fit(x, labels, 3, as_it_is, config=config)[rest, 2].mean())

    nothing = of_the_rest(Labels(original))
    corrected = of_the_rest(Labels(observed))  # twelve labels more, as doubtful as the others
    certain = of_the_rest(Labels(observed, trusted=trusted))
    with_noise = of_the_rest(Labels(observed, original, trusted))  # shows how labels go wrong
    assert nothing < corrected < certain < with_noise
    assert nothing < 0.4
    assert with_noise > 0.5


def test_a_bar_shows_the_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # rich takes the test for a terminal
    x, observed, _ = digits(60)
    config = EvidenceConfig(folds=2, head_epochs=5, head_min_steps=1)
    predict(x, observed, config=config, progress=True)
    shown = capsys.readouterr().err
    assert "out-of-fold predictions" in shown
    assert "10/10" in shown
    predict(x, observed, config=config)
    assert capsys.readouterr().err == ""


def test_small_data_sets_are_trained_for_enough_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[float] = []
    step = SoftLabelTrainer.step

    def noted(self: SoftLabelTrainer, x: Tensor, targets: Tensor, done: float, loss: Any) -> None:
        steps.append(done)
        step(self, x, targets, done, loss)

    monkeypatch.setattr(SoftLabelTrainer, "step", noted)
    x, observed, _ = digits(60)
    config = EvidenceConfig(folds=3, head_epochs=1, head_warmup=1, head_min_steps=50)
    predict(x, observed, config=config)
    assert 3 * 50 <= len(steps) < 3 * 80
    assert steps == sorted(steps)
