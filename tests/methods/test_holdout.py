"""Which rows the holdout check keeps out of training and compares predictions with."""

import torch

from colafier.core.holdout_check import IN_A_ROW, HoldoutCheck, NoHoldoutCheck
from colafier.evidence.labels import Labels
from colafier.methods import _holdout
from colafier.training.training_set import TrainingSet

N, CLASSES = 4500, 10


def rows(
    observed: torch.Tensor,
    trusted: torch.Tensor | None = None,
    original: torch.Tensor | None = None,
) -> TrainingSet:
    x = torch.zeros(len(observed), 2)
    return TrainingSet(
        x, Labels(observed, original=original, trusted=trusted), CLASSES, view_names=()
    )


def test_held_out_rows_are_not_trained_on() -> None:
    observed = torch.arange(N) % CLASSES
    observed[::9] = -1
    train = rows(observed)
    held, learned = (f(train, HoldoutCheck()) for f in (_holdout.held_out, _holdout.trained_on))
    assert len(held) == 300
    assert torch.equal(torch.cat([held, learned]).sort().values, (observed >= 0).nonzero()[:, 0])


def test_without_the_check_all_labeled_rows_are_trained_on() -> None:
    observed = torch.arange(N) % CLASSES
    observed[::9] = -1
    learned = _holdout.trained_on(rows(observed), NoHoldoutCheck())
    assert torch.equal(learned, (observed >= 0).nonzero()[:, 0])


def test_deciding_the_worst_rows_does_not_make_the_others_look_better() -> None:
    """With the original labels at hand, the evidence is what it was before the decisions."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(CLASSES, (N,), generator=generator)
    wrong = torch.rand(N, generator=generator) < 0.4
    observed = torch.where(wrong, (truth + 1) % CLASSES, truth)
    worst = wrong.nonzero()[:900, 0]
    decided, trusted = observed.clone(), torch.zeros(N, dtype=torch.bool)
    decided[worst], trusted[worst] = truth[worst], True
    before = _holdout.evidence(rows(observed), HoldoutCheck())
    after = _holdout.evidence(rows(decided, trusted, observed), HoldoutCheck())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert trusted[after[0]].any()
    held, labels = _holdout.evidence(rows(decided, trusted), HoldoutCheck())
    assert not trusted[held].any()
    assert torch.equal(labels, decided[held])


def test_nothing_is_held_out_once_the_check_has_passed() -> None:
    observed = torch.arange(N) % CLASSES
    observed[::9] = -1
    train, check = rows(observed), HoldoutCheck()
    check.in_a_row.fill_(IN_A_ROW)
    assert not len(_holdout.held_out(train, check))
    assert torch.equal(_holdout.trained_on(train, check), (observed >= 0).nonzero()[:, 0])
