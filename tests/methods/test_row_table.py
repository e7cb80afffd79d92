import pytest
import torch
from torch import Tensor

from colafier.methods.row_table import RowTable


def index(*numbers: int) -> Tensor:
    return torch.tensor(numbers, dtype=torch.long)


def commit(table: RowTable) -> None:
    staged = table.take_staged()
    assert staged is not None
    table.commit(*staged)


def test_writes_are_seen_after_commit_only() -> None:
    table = RowTable(torch.arange(5))
    table.write(index(3, 1), torch.tensor([30, 10]))
    assert table[index(1, 3)].tolist() == [1, 3]
    commit(table)
    assert table.values.tolist() == [0, 10, 2, 30, 4]
    assert table.take_staged() is None


def test_several_writes_are_staged_together() -> None:
    table = RowTable(torch.zeros(4))
    table.write(index(0), torch.tensor([1.0]))
    table.write(index(2, 3), torch.tensor([2.0, 3.0]))
    commit(table)
    assert table.values.tolist() == [1, 0, 2, 3]


def test_trusted_rows_refuse_writes() -> None:
    table = RowTable(torch.arange(4), trusted=torch.tensor([False, True, False, True]))
    table.write(index(0, 1, 2, 3), torch.full((4,), 9))
    commit(table)
    assert table.values.tolist() == [9, 1, 9, 3]


def test_a_row_written_twice_in_a_pass_is_an_error() -> None:
    table = RowTable(torch.zeros(4))
    table.write(index(1), torch.ones(1))
    commit(table)
    table.write(index(2, 1), torch.ones(2))
    with pytest.raises(RuntimeError, match="repeats=True"):
        commit(table)
    assert table.values.tolist() == [0, 1, 0, 0]


def test_a_row_written_twice_at_once_is_an_error() -> None:
    table = RowTable(torch.zeros(4))
    table.write(index(1, 2, 1), torch.ones(3))
    with pytest.raises(RuntimeError, match="repeats=True"):
        commit(table)


def test_repeats_are_allowed_where_asked_for() -> None:
    table = RowTable(torch.zeros(4), repeats=True)
    for value in (1.0, 2.0):
        table.write(index(1), torch.tensor([value]))
        commit(table)
    assert table.values.tolist() == [0, 2, 0, 0]


def test_a_new_pass_may_write_again_and_drops_what_was_left() -> None:
    table = RowTable(torch.zeros(4))
    table.write(index(1), torch.ones(1))
    commit(table)
    table.write(index(2), torch.ones(1))
    table.begin_pass()
    assert table.take_staged() is None
    table.write(index(1), torch.full((1,), 5.0))
    commit(table)
    assert table.values.tolist() == [0, 5, 0, 0]


def test_an_empty_write_changes_nothing() -> None:
    table = RowTable(torch.arange(3), trusted=torch.zeros(3, dtype=torch.bool))
    table.write(index(), torch.zeros(0))
    commit(table)
    assert table.values.tolist() == [0, 1, 2]


def test_values_keep_their_type_and_lose_their_gradient() -> None:
    table = RowTable(torch.zeros(3))
    table.write(index(0), torch.ones(1, dtype=torch.float64, requires_grad=True))
    commit(table)
    assert table.values.dtype == torch.float32
    assert not table.values.requires_grad


def test_rows_may_be_vectors() -> None:
    table = RowTable(torch.zeros(3, 2))
    table.write(index(2), torch.tensor([[1.0, 2.0]]))
    commit(table)
    assert table[index(2, 0)].tolist() == [[1, 2], [0, 0]]
    assert len(table) == 3


def test_the_start_values_are_copied() -> None:
    start, trusted = torch.arange(3), torch.zeros(3, dtype=torch.bool)
    table = RowTable(start, trusted)
    start += 1
    trusted[:] = True
    table.write(index(0), torch.tensor([7]))
    commit(table)
    assert table.values.tolist() == [7, 1, 2]


def test_only_values_are_saved() -> None:
    table = RowTable(torch.arange(3), trusted=torch.zeros(3, dtype=torch.bool))
    assert set(table.state_dict()) == {"values"}
    other = RowTable(torch.zeros(3, dtype=torch.long))
    other.load_state_dict(table.state_dict())
    assert torch.equal(other.values, table.values)


def test_an_older_checkpoint_does_not_move_what_was_decided_since() -> None:
    older = RowTable(torch.tensor([5, 6, 7]))
    table = RowTable(torch.tensor([0, 1, 2]), trusted=torch.tensor([False, True, False]))
    table.load_state_dict(older.state_dict())
    assert table.values.tolist() == [5, 1, 7]
