"""Rows that are learned from, and rows that are not."""

import torch
from in_phases import OBSERVED, ROWS, ready

from colafier.methods._selection import held_out, trained_on
from colafier.methods.ce import CrossEntropy


def test_held_out_and_trained_rows_are_all_labeled_ones() -> None:
    observed = OBSERVED.clone()
    observed[:10] = -1
    _, rows = ready(CrossEntropy(), observed=observed)
    held, trained = held_out(rows, 0.2), trained_on(rows, 0.2)
    assert 0 < len(held) < 15
    assert sorted([*held.tolist(), *trained.tolist()]) == list(range(10, ROWS))


def test_trusted_rows_are_trained_on() -> None:
    _, rows = ready(CrossEntropy(), trusted=torch.ones(ROWS, dtype=torch.bool))
    assert len(held_out(rows, 0.2)) == 0
    assert len(trained_on(rows, 0.2)) == ROWS
