import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from colafier.evidence.labels import Labels
from colafier.methods.ce import CrossEntropy
from colafier.methods.contract import (
    Batch,
    Method,
    Pass,
    Passes,
    Terms,
    TrainSet,
)
from colafier.methods.row_table import RowTable
from colafier.nets import net_factory
from colafier.training.distributed import Processes, launch
from colafier.training.engine import Engine
from colafier.training.optimizers import OptimizerSettings
from colafier.training.trainer import fit
from colafier.training.training_set import TrainingSet


class Mean(Method):
    """Learns the mean of what it sees; a second parameter is used on request only."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(()))
        self.unused = nn.Parameter(torch.ones(()))
        self.norm = nn.BatchNorm1d(1, momentum=1.0)
        self.table = RowTable(torch.zeros(8))
        self.whole: Tensor | None = None

    def loss(self, batch: Batch) -> Terms:
        self.norm(batch.x)
        self.whole = self.all_gather(batch.x)
        self.table.write(batch.index, batch.x[:, 0])
        return {"error": (batch.x - self.mean).square().mean()}


def state(method: Mean) -> dict[str, Any]:
    return {key: value.tolist() for key, value in method.state_dict().items()}


def share(processes: Processes, x: list[float]) -> Batch:
    """Three rows on the first process, two on the second."""
    rows = torch.arange(5)
    if processes.size == 2:
        rows = rows[:3] if processes.first else rows[3:]
    view = torch.tensor(x)[rows][:, None]
    return Batch(rows, torch.zeros_like(rows), (view,), 0, 0.0)


def steps(processes: Processes) -> dict[str, Any]:
    """One good step and one that is poisoned on a single process; what is left after each."""
    method = Mean()
    method.distributed = processes
    engine = Engine(method, OptimizerSettings("sgd", 0.5, 0.0, 0.0), processes)
    engine.begin_pass(Pass())
    engine.minimize(method.loss, share(processes, [1.0, 2.0, 3.0, 10.0, 20.0]))
    engine.end_pass()
    found = {"good": state(method), "loss": engine.take_loss(), "whole": method.whole}
    found["unused gradient"] = method.unused.grad
    engine.begin_pass(Pass())
    engine.minimize(method.loss, share(processes, [1.0, 2.0, 3.0, 4.0, float("nan")]))
    found["poisoned"] = state(method)
    found["skipped"] = engine.skipped_steps

    def silent_elsewhere(batch: Batch) -> Terms:
        return {"mean": method.mean * 1.0} if processes.first else {"said": batch.x.mean()}

    engine.minimize(silent_elsewhere, share(processes, [0.0] * 5))
    found["one learns"] = method.mean.item()
    try:
        engine.minimize(lambda _: {"said": torch.zeros(())}, share(processes, [0.0] * 5))
    except RuntimeError as error:
        found["nobody learns"] = str(error)
    return found


def exchange(processes: Processes) -> dict[str, Any]:
    """Gathers of all kinds."""
    counts = [3, 1] if processes.size == 2 else [4]
    begin = sum(counts[: processes.rank])
    own = slice(begin, begin + counts[processes.rank])
    tensors = [
        torch.arange(4),
        torch.arange(24.0).view(4, 2, 3),
        torch.tensor([True, False, True, True]),
        torch.arange(4, dtype=torch.bfloat16),
    ]
    found: dict[str, Any] = {"right": [], "own": []}
    for t in tensors:
        gathered = processes.all_gather(t[own].clone().requires_grad_(t.is_floating_point()))
        found["right"].append(torch.equal(gathered, t) and not gathered.requires_grad)
        found["own"].append(torch.equal(processes.local_slice(gathered), t[own]))
    none = processes.all_gather(torch.arange(4)[: 4 if processes.first else 0])
    found["one has none"] = none.tolist()
    found["nobody has"] = processes.join(torch.empty(0, 2)).shape
    found["own after join"] = processes.local_slice(torch.arange(4)).tolist()
    try:
        processes.local_slice(torch.arange(3))
    except ValueError as error:
        found["error"] = str(error)
    return found


class Drawing(CrossEntropy):
    """Draws a number for each of its rows, and decides by another one between passes."""

    def __init__(self) -> None:
        super().__init__()
        self.decided: list[float] = []

    def passes(self, epoch: int, train: TrainSet) -> Passes:  # noqa: ARG002
        for _ in range(2):
            self.decided.append(torch.rand(()).item())
            yield Pass()
        self.decided.append(torch.rand(()).item())

    def loss(self, batch: Batch) -> Terms:
        torch.rand(len(batch))
        return super().loss(batch)


def decisions(processes: Processes) -> list[float]:
    """What a method decides where processes have shares of different sizes."""
    method = Drawing()
    rows = TrainingSet(torch.randn(5, 4), Labels(torch.arange(5) % 2), 2, view_names=("weak",))
    fit(
        method,
        rows,
        net_factory("linear", (4,), 2, "float32"),
        epochs=2,
        processes=processes,
        progress=False,
    )
    return method.decided


@dataclass(frozen=True)
class Wish:
    """An argument of a kind that Fabric itself refuses."""

    size: int


def job(processes: Processes, wish: Wish) -> dict[str, Any]:
    warnings.simplefilter("error")
    return {
        "steps": processes.all_gather_object(steps(processes)),
        "exchange": processes.all_gather_object(exchange(processes)),
        "decisions": processes.all_gather_object(decisions(processes)),
        "large": torch.zeros(wish.size),
    }


@pytest.fixture(scope="module")
def two() -> dict[str, Any]:
    return launch(job, Wish(100_000), devices=2, accelerator="cpu")


def test_two_processes_step_as_one(two: dict[str, Any]) -> None:
    """In one test, because starting processes takes seconds."""
    alone = steps(Processes())
    first, second = two["steps"]
    for found in (first, second):
        good = found["good"]
        assert good["mean"] == pytest.approx(alone["good"]["mean"])
        assert good["mean"] == pytest.approx(36 / 5)  # lr 0.5 leads right to the mean
        assert found["loss"] == pytest.approx(alone["loss"])
        assert good["table.values"] == alone["good"]["table.values"]
        assert good["norm.running_mean"] == [pytest.approx((2 + 15) / 2)]  # of both shares
        assert found["unused gradient"] is None
        assert torch.equal(found["whole"], torch.tensor([1.0, 2.0, 3.0, 10.0, 20.0])[:, None])
        assert found["skipped"] == alone["skipped"] == 1
        assert found["poisoned"] == good
        # three of five rows have a slope of 1
        assert found["one learns"] == pytest.approx(good["mean"] - 0.5 * 3 / 5)
        assert "no term of Mean" in found["nobody learns"]
    for found in two["exchange"]:
        assert all(found["right"])
        assert all(found["own"])
        assert found["one has none"] == [0, 1, 2, 3]
        assert found["nobody has"] == (0, 2)
        assert "3 rows, but the last gather gave 4" in found["error"]
    assert two["exchange"][0]["own after join"] == [0, 1, 2, 3]
    assert two["exchange"][1]["own after join"] == []
    assert two["decisions"][0] == two["decisions"][1] == decisions(Processes())
    assert two["large"].shape == (100_000,)


def test_one_process_needs_no_launcher() -> None:
    found = launch(exchange, accelerator="cpu")
    assert all(found["right"])
    assert all(found["own"])
