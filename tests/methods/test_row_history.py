"""What is remembered of each row, in a few bytes."""

import pytest
import torch

from colafier.methods._row_history import PARTS, RowHistory
from colafier.methods.row_table import RowTable


def commit(history: RowHistory) -> None:
    for table in history.modules():
        if isinstance(table, RowTable) and (staged := table.take_staged()) is not None:
            table.begin_pass()
            table.commit(*staged)


def note(history: RowHistory, rows: list[int], done: float, observed: list[float]) -> None:
    votes = [torch.tensor([[0.2, 0.8]] * len(rows)), torch.tensor([[3.0, -1.0]] * len(rows))]
    history.note(torch.tensor(rows), done, torch.tensor(observed), votes)
    commit(history)


def test_course_of_rows_that_were_seen() -> None:
    history = RowHistory(torch.zeros(3, dtype=torch.long), votes=2)
    note(history, [0, 2], 0.0, [0.5, 1.0])
    note(history, [0, 2], 0.5, [0.25, 0.0])
    trajectory = history.trajectory()
    assert trajectory.shape == (3, 2)  # two parts of the training were seen
    assert trajectory[0].tolist() == pytest.approx([0.5, 0.25], abs=0.003)
    assert trajectory[2].tolist() == pytest.approx([1.0, 0.0])
    assert trajectory[1].isnan().all()


def test_later_epochs_of_a_part_win_and_the_last_part_holds_the_end() -> None:
    history = RowHistory(torch.zeros(1, dtype=torch.long), votes=2)
    for epoch in range(40):
        note(history, [0], epoch / 40, [epoch / 40])
    trajectory = history.trajectory()
    assert trajectory.shape == (1, PARTS)
    assert trajectory[0, 0] == pytest.approx(3 / 40, abs=0.003)
    assert trajectory[0, -1] == pytest.approx(39 / 40, abs=0.003)


def test_votes_are_classes() -> None:
    history = RowHistory(torch.zeros(2, dtype=torch.long), votes=2)
    note(history, [1], 0.0, [0.5])
    assert history.votes.values.tolist() == [[-1, -1], [1, 0]]


def test_a_row_takes_few_bytes() -> None:
    history = RowHistory(torch.zeros(1000, dtype=torch.long), votes=4)
    extra = [history.parts.values, history.votes.values]
    assert sum(t.element_size() * t[0].numel() for t in extra) <= 20


def test_some_rows_start_again_and_the_others_stay() -> None:
    observed = torch.tensor([0, 1, 1])
    history, fresh = RowHistory(observed, votes=2), RowHistory(observed, votes=2)
    for some in (history, fresh):
        note(some, [1, 2], 0.3, [0.5, 0.25])
    numbers = [torch.tensor([value]) for value in (1, 1.0, 2.0, 0.5)]
    history.write(torch.tensor([0]), *numbers)
    history.note(torch.tensor([0]), 0.1, torch.tensor([0.5]), [torch.eye(2)[:1]] * 2)
    commit(history)
    assert history.seen.tolist() == [True, False, False]
    history.forget(torch.tensor([True, False, False]), observed)
    for name, values in fresh.state_dict().items():
        assert torch.equal(history.state_dict()[name].nan_to_num(-9), values.nan_to_num(-9)), name
