"""LID-dis alone: which LID it keeps for the study of section 3.2."""

import pytest
import torch
from one_batch import ROWS, ready

from colafier.core.lid import lid, neighbors
from colafier.methods.contract import Batch, RowTable
from colafier.methods.lid_dis import LidDisAlone


def after_a_step(method: LidDisAlone, batch: Batch) -> dict[str, torch.Tensor]:
    method.loss(batch)
    for table in method.modules():
        if isinstance(table, RowTable) and (staged := table.take_staged()):
            table.commit(*staged)
    return method.rows_now()


@pytest.mark.parametrize("k", [0, 7, 20])
def test_each_epoch_has_lid_by_the_chosen_k_and_by_those_of_the_study(k: int) -> None:
    method, batch = ready(LidDisAlone(neighbors=k))
    method.eval()  # the same z in both computations
    with torch.no_grad():
        z, _ = method.net.dis.judge(method.net.dis.encode(batch.x), batch.y)
    found = after_a_step(method, batch)
    for name, chosen in (("lid", k), ("lid_k20", 20), ("lid_by_labels", 0)):
        expected = torch.zeros(ROWS)
        expected[batch.index] = lid(z, neighbors(batch.y, batch.y, chosen))
        torch.testing.assert_close(found[name], expected)


def test_k_does_not_change_the_training() -> None:
    losses = [method.loss(batch)["dis"].item() for method, batch in map(ready_with, (0, 20))]
    assert losses[0] == losses[1]


def ready_with(k: int) -> tuple[LidDisAlone, Batch]:
    made = ready(LidDisAlone(neighbors=k))
    torch.manual_seed(3)  # of the random other labels
    return made
