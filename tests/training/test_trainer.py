import io
import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import Tensor

from colafier._progress import EpochBar
from colafier.evidence.labels import Labels
from colafier.methods.ce import CrossEntropy
from colafier.methods.contract import (
    Batch,
    Engine,
    MakeNet,
    Method,
    Pass,
    Passes,
    Terms,
    TrainSet,
)
from colafier.nets import net_factory
from colafier.training import loggers
from colafier.training.checkpoint import CheckpointError
from colafier.training.optimizers import OptimizerSettings
from colafier.training.records import History
from colafier.training.trainer import fit
from colafier.training.training_set import TrainingSet


def rows(n: int = 21, **settings: Any) -> TrainingSet:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    known = {"view_names": ("weak",), "batch_size": 8} | settings
    return TrainingSet(x, Labels((x[:, 0] > 0).long()), 2, **known)


def train(method: Method | None = None, net: str = "linear", **settings: Any) -> History:
    known: dict[str, Any] = {"epochs": 3, "progress": False} | settings
    make_net = net_factory(net, (4,), 2, "float32")
    data = known.pop("train", None)
    return fit(method or CrossEntropy(), data or rows(), make_net, **known)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def ctrl_c_in(epoch: int) -> Any:
    def score(method: Method, now: int) -> dict[str, float]:  # noqa: ARG001
        if now == epoch:
            raise KeyboardInterrupt
        return {"test_accuracy": 0.5 + now / 10}

    return score


class Phases(CrossEntropy):
    """Writes down what happens."""

    def __init__(self, *, depth: int = 1) -> None:
        super().__init__()
        self.depth = depth
        self.said: list[Any] = []

    def passes(self, epoch: int, train: TrainSet) -> Passes:  # noqa: ARG002
        self.said.append(("begin", epoch, torch.rand(()).item()))
        yield Pass(rows=torch.arange(10), tag="warm", lr_scale=0.5)
        self.said.append(("between", epoch, torch.rand(()).item()))
        yield Pass()
        self.said.append(("end", epoch, torch.rand(()).item()))

    def loss(self, batch: Batch) -> Terms:
        assert self.training
        terms = super().loss(batch)
        self.said.append((batch.tag, len(batch), terms["ce"].item()))
        return terms | {"rows": torch.tensor(float(len(batch)))}


def test_an_epoch_is_its_passes_in_order() -> None:
    method = Phases()
    history = train(method, epochs=2)
    tags = [said[0] for said in method.said]
    assert tags == 2 * ["begin", "warm", "warm", "between", *3 * ["train"], "end"]
    assert [epoch["epoch"] for epoch in history.epochs] == [0, 1]
    draws = [said[2] for said in method.said if said[0] in ("begin", "between", "end")]
    assert len(set(draws)) == 6


class Rates(Phases):
    """Writes down the learning rate of each step."""

    def update(self, batch: Batch, engine: Engine) -> Terms:
        terms = super().update(batch, engine)
        (optimizer,) = engine.optimizers.values()  # type: ignore[attr-defined]
        self.said.append((f"rate of {batch.tag}", optimizer.param_groups[0]["lr"]))
        return terms

    def rates(self, tag: str) -> list[float]:
        return list(dict.fromkeys(said[1] for said in self.said if said[0] == f"rate of {tag}"))


@pytest.mark.parametrize(("floor", "expected"), [(1.0, [0.2]), (0.1, [0.2, 0.155, 0.065])])
def test_the_rate_falls_where_the_pass_has_none(floor: float, expected: list[float]) -> None:
    method = Rates()
    train(method, optimizer=OptimizerSettings(lr=0.2, lr_floor=floor))
    assert method.rates("train") == pytest.approx(expected)
    assert method.rates("warm") == [0.1]


def test_a_fresh_net_has_a_span_of_its_own() -> None:
    class Fresh(Rates):
        def passes(self, epoch: int, train: TrainSet) -> Passes:  # noqa: ARG002
            yield Pass(lr_span=(0, 1) if epoch == 0 else (1, 3))

    method = Fresh()
    train(method, optimizer=OptimizerSettings(lr=0.2, lr_floor=0.1))
    assert method.rates("train") == pytest.approx([0.2, 0.11])  # 0.2 in epochs 0 and 1


def test_terms_are_means_over_rows() -> None:
    method = Phases()
    epoch = train(method, epochs=1).epochs[0]
    for tag, prefix in (("train", ""), ("warm", "warm/")):
        steps = [(n, value) for name, n, value in method.said if name == tag]
        total = sum(n for n, _ in steps)
        ce = sum(n * value for n, value in steps) / total
        assert epoch[f"{prefix}ce"] == pytest.approx(ce)
        assert epoch[f"{prefix}loss"] == pytest.approx(ce)
        assert epoch[f"{prefix}rows"] == pytest.approx(sum(n * n for n, _ in steps) / total)
    assert epoch["skipped_steps"] == 0
    assert epoch["seconds"] > 0


def test_files_of_a_run(tmp_path: Path) -> None:
    history = train(folder=tmp_path / "new" / "run", score=ctrl_c_in(-1))
    assert lines(tmp_path / "new" / "run") == history.epochs
    assert history.series("test_accuracy") == [0.5, 0.6, 0.7]
    names = {path.name for path in (tmp_path / "new" / "run").iterdir()}
    assert names == {"metrics.jsonl", "checkpoint.pt"}


def test_ctrl_c_and_resume(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"2 whole epochs.*checkpoint\.pt.*resume"):
        train(folder=tmp_path, score=ctrl_c_in(2))
    assert [line["epoch"] for line in lines(tmp_path)] == [0, 1]
    # as if the line had been written and the machine had stopped before the checkpoint
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2}\n')
    method = Phases()
    history = train(folder=tmp_path, score=ctrl_c_in(-1), resume=True)
    assert [line["epoch"] for line in lines(tmp_path)] == [0, 1, 2]
    assert lines(tmp_path) == history.epochs
    again = train(folder=tmp_path, score=ctrl_c_in(0), resume=True)  # there is nothing left to do
    assert again.epochs == history.epochs
    assert not method.said


def test_ctrl_c_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt, match="no checkpoint"):
        train(folder=tmp_path, score=ctrl_c_in(0))
    with pytest.raises(KeyboardInterrupt, match="no checkpoint"):
        train(score=ctrl_c_in(1))


def test_starting_over_forgets_the_older_run(tmp_path: Path) -> None:
    train(folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(folder=tmp_path, score=ctrl_c_in(0))
    assert lines(tmp_path) == []
    assert len(train(folder=tmp_path, resume=True, epochs=1).epochs) == 1


class Reopened(CrossEntropy):
    """Counts how often it goes on."""

    times = 0

    def reset_beliefs(self, train: TrainSet) -> None:  # noqa: ARG002
        self.times += 1


def test_a_finished_run_is_trained_on(tmp_path: Path) -> None:
    first, longer = tmp_path / "first", tmp_path / "longer"
    first.mkdir()
    longer.mkdir()
    begun = train(Reopened(), folder=first).epochs
    on: dict[str, Any] = {"warm_start": first / "checkpoint.pt", "epochs": 5}
    method, stopped = Reopened(), Reopened()
    whole = train(method, **on).epochs
    assert whole[:3] == begun
    assert whole[3]["loss"] < begun[0]["loss"]
    with pytest.raises(KeyboardInterrupt, match="4 whole epochs"):
        train(Reopened(), folder=longer, score=ctrl_c_in(4), **on)
    resumed = train(stopped, folder=longer, resume=True, **on).epochs
    assert [epoch["loss"] for epoch in resumed] == [epoch["loss"] for epoch in whole]
    assert (method.times, stopped.times) == (1, 0)  # a stopped run has its own checkpoint
    with pytest.raises(ValueError, match="seed: 0 then, 1 now"):
        train(Reopened(), seed=1, **on)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 4}, "epochs: 3 then, 4 now"),
        ({"seed": 1}, "seed: 0 then, 1 now"),
        ({"optimizer": OptimizerSettings(lr=0.1)}, "optimizer lr: 0.001 then, 0.1 now"),
        ({"method": Phases(depth=2)}, "depth: 1 then, 2 now"),
        ({"train": rows(batch_size=4)}, "batch size: 8 then, 4 now"),
        ({"train": rows(20)}, "rows: 21 then, 20 now"),
    ],
)
def test_other_settings_are_not_resumed(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    train(Phases(), folder=tmp_path)
    method = settings.pop("method", Phases())
    with pytest.raises(ValueError, match=message):
        train(method, folder=tmp_path, resume=True, **settings)


def test_another_net_is_not_resumed(tmp_path: Path) -> None:
    train(folder=tmp_path)
    with pytest.raises(CheckpointError, match=r"does not fit CrossEntropy with this net"):
        train(folder=tmp_path, net="mlp", resume=True)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    train(folder=tmp_path)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt is damaged"):
        train(folder=tmp_path, resume=True)


class Fragile(CrossEntropy):
    """Gives what is no number in the second step of each epoch."""

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        super().setup(make_net, train, epochs)
        self.steps = 0

    def update(self, batch: Batch, engine: Engine) -> Terms:
        self.steps += 1
        poison = torch.nan if self.steps % 3 == 2 else 1.0
        return engine.minimize(lambda b: {"ce": self.loss(b)["ce"] * poison}, batch)


def test_skipped_steps_are_counted_and_left_out(tmp_path: Path) -> None:
    history = train(Fragile(), folder=tmp_path)
    assert [epoch["skipped_steps"] for epoch in history.epochs] == [1, 1, 1]
    assert history.skipped_steps == 3
    assert all(torch.isfinite(torch.tensor(epoch["ce"])) for epoch in history.epochs)


def test_what_is_not_finite_is_null_in_the_file(tmp_path: Path) -> None:
    train(folder=tmp_path, epochs=1, score=lambda *_: {"odd": float("nan")})
    assert lines(tmp_path)[0]["odd"] is None


def test_a_run_needs_an_epoch() -> None:
    with pytest.raises(ValueError, match="at least one epoch"):
        train(epochs=0)


def test_bar_shows_what_matters_on_a_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    def draw(terminal: bool, shown: bool = True) -> str:
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=terminal, width=120)
        with EpochBar(4, 1, shown, console) as bar:
            bar.step(1, "train", 2, 5, 0.123)
            bar.epoch(1, {"loss": 0.5, "labels_changed": 12.0, "test_accuracy": 0.875})
            bar.step(2, "train", 1, 5, 0.25)
        return screen.getvalue()

    text = draw(terminal=True)
    # two epochs of four, and one step of five of the third
    for part in ("epoch 3/4 train 1/5", "55%", "loss 0.250", "labels changed 12", "accuracy 0.875"):
        assert part in text
    assert draw(terminal=True, shown=False) == ""
    assert draw(terminal=False) == ""
    train(progress=True)
    assert capsys.readouterr().err == ""


class Heard:
    """Stands for wandb's run and for mlflow at once."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.config = self

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> "Heard":
            self.calls.append((name, (*args, *kwargs.values())))
            return self

        return call


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_loggers_get_the_figures(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    heard = Heard()
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    for function in ("init", "log_metrics", "log_params", "end_run", "set_experiment", "start_run"):
        setattr(module, function, getattr(heard, function))
    monkeypatch.setitem(sys.modules, name, module)
    made = loggers.make([name], tmp_path, {"lr": 0.1})
    train(epochs=2, loggers=made, score=lambda *_: {"test_accuracy": 0.5})
    settings = "update" if name == "wandb" else "log_params"
    assert (settings, ({"lr": 0.1},)) in heard.calls
    figures = [c[1] for c in heard.calls if c[0] == ("log" if name == "wandb" else "log_metrics")]
    assert [step for _, step in figures] == [0, 1]
    assert figures[0][0]["test_accuracy"] == 0.5
    assert heard.calls[-1] == (("finish", (0,)) if name == "wandb" else ("end_run", ("FINISHED",)))


def test_a_logger_that_is_not_installed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'colafier\[wandb\]'"):
        loggers.check(["wandb"], tmp_path)
    with pytest.raises(ValueError, match="no logger 'paper'; there are tensorboard, wandb, mlflow"):
        loggers.check(["paper"], tmp_path)
    with pytest.raises(ValueError, match="need the folder"):
        loggers.check(["wandb"], None)


def test_the_checkpoint_runs_no_code(tmp_path: Path) -> None:
    train(folder=tmp_path)
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert isinstance(state["random"]["cpu"], Tensor)
    assert len(state["epochs"]) == 3
