from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from colafier.methods.contract import Batch, MakeOptimizer, Method, Pass, Terms
from colafier.methods.row_table import RowTable
from colafier.training.distributed import Processes
from colafier.training.engine import Engine, _check_shapes
from colafier.training.optimizers import OptimizerSettings


class Two(Method):
    """Two parameters with an optimizer each, statistics, and a table."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.ones(2))
        self.b = nn.Parameter(torch.ones(2))
        self.norm = nn.BatchNorm1d(2)
        self.table = RowTable(torch.zeros(6))

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        return {"a": make([self.a]), "b": make([self.b], lr=0.5)}

    def loss(self, batch: Batch) -> Terms:
        self.norm(batch.x)
        self.table.write(batch.index, batch.x[:, 0])
        return {
            "a": (batch.x * self.a).sum(1).mean(),
            "b": (batch.x * self.b).square().sum(1).mean(),
            "said": torch.tensor(7.0),
        }


def start(name: str = "sgd") -> tuple[Two, Engine]:
    method = Two()
    engine = Engine(method, OptimizerSettings(name, 0.1, 0.01, 0.9), Processes())
    engine.begin_pass(Pass())
    return method, engine


def batch(rows: tuple[int, ...] = (0, 3, 4), x: Tensor | None = None) -> Batch:
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]]) if x is None else x
    return Batch(torch.tensor(rows), torch.zeros(3, dtype=torch.long), (x,), 0, 0.0)


def test_the_step_is_what_torch_does_by_hand() -> None:
    method, engine = start()
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    one = torch.optim.SGD([a], 0.1, 0.9, weight_decay=0.01)
    other = torch.optim.SGD([b], 0.5, 0.9, weight_decay=0.01)
    for _ in range(3):
        engine.begin_pass(Pass())
        x = batch().x
        loss = (x * a).sum(1).mean() + (x * b).square().sum(1).mean()
        for optimizer in (one, other):
            optimizer.zero_grad()
        loss.backward()
        one.step()
        other.step()
        terms = engine.minimize(method.loss, batch())
        assert engine.take_loss() == pytest.approx(loss.item())
        assert not any(term.requires_grad for term in terms.values())
        assert terms["said"] == 7
    assert engine.take_loss() == 0
    torch.testing.assert_close(method.a, a)
    torch.testing.assert_close(method.b, b)


def moved(method: Two) -> set[str]:
    return {n for n in ("a", "b") if not torch.equal(getattr(method, n), torch.ones(2))}


@pytest.mark.parametrize(
    ("part", "only", "expected"),
    [
        (Pass(), (), {"a", "b"}),
        (Pass(), ("b",), {"b"}),
        (Pass(optimizers=("a",)), (), {"a"}),
        (Pass(optimizers=("a",)), ("a", "b"), {"a"}),
    ],
)
def test_only_chosen_optimizers_step(part: Pass, only: tuple[str, ...], expected: set[str]) -> None:
    method, engine = start()
    engine.begin_pass(part)
    engine.minimize(method.loss, batch(), only)
    assert moved(method) == expected


def test_gradients_of_resting_optimizers_do_not_pile_up() -> None:
    method, engine = start()
    engine.minimize(method.loss, batch(), ("a",))
    engine.begin_pass(Pass())
    engine.minimize(method.loss, batch(), ("b",))
    fresh, other = start()
    other.minimize(fresh.loss, batch(), ("b",))
    assert torch.equal(method.b, fresh.b)


def test_a_pass_scales_rates_from_their_base() -> None:
    method, engine = start("adamw")
    for scale in (0.5, 0.5, 1.0):
        engine.begin_pass(Pass(lr_scale=scale))
        rates = [o.param_groups[0]["lr"] for o in engine.optimizers.values()]
        assert rates == [0.1 * scale, 0.5 * scale]
    engine.minimize(method.loss, batch())
    assert engine.optimizers["a"].state
    engine.begin_pass(Pass(restart=("a",)))
    assert not engine.optimizers["a"].state
    assert engine.optimizers["b"].state


def test_rows_are_committed_after_the_step() -> None:
    method, engine = start()
    seen = []

    def loss(some: Batch) -> Terms:
        terms = method.loss(some)
        seen.append(method.table.values.clone())
        return terms

    engine.minimize(loss, batch())
    assert torch.equal(seen[0], torch.zeros(6))
    assert method.table.values.tolist() == [1, 0, 0, 3, 0.5, 0]
    with pytest.raises(RuntimeError, match="written twice"):
        engine.minimize(loss, batch())
    engine.begin_pass(Pass())
    engine.minimize(loss, batch())


def infinite_gradient(method: Two) -> Callable[[Batch], Terms]:
    def loss(some: Batch) -> Terms:
        method.loss(some)
        return {"root": (method.a - method.a.detach()).sqrt().sum()}  # finite, unlike its slope

    return loss


@pytest.mark.parametrize("kind", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_skipped(kind: str) -> None:
    method, engine = start()
    before = {k: v.clone() for k, v in method.state_dict().items()}
    if kind == "loss":
        engine.minimize(method.loss, batch(x=torch.full((3, 2), torch.nan)))
    else:
        engine.minimize(infinite_gradient(method), batch())
    assert engine.skipped_steps == 1
    for key, value in method.state_dict().items():
        assert torch.equal(value, before[key]), key
    assert method.table.take_staged() is None
    engine.minimize(method.loss, batch())  # the same rows may still be written
    assert engine.skipped_steps == 1
    assert moved(method) == {"a", "b"}


def test_nothing_to_learn_is_an_error() -> None:
    method, engine = start()
    with pytest.raises(RuntimeError, match=r"no term of Two \(said\) has a gradient"):
        engine.minimize(lambda _: {"said": torch.tensor(1.0)}, batch())
    with pytest.raises(RuntimeError, match="no term of Two"):
        engine.minimize(lambda _: {"a": method.a.sum()}, batch(), ("b",))


def test_unknown_names_are_errors() -> None:
    method, engine = start()
    for part in (Pass(optimizers=("c",)), Pass(restart=("c",))):
        with pytest.raises(ValueError, match="no optimizer 'c' in this method; there are a, b"):
            engine.begin_pass(part)
    with pytest.raises(ValueError, match="no optimizer 'c'"):
        engine.minimize(method.loss, batch(), ("c",))
    params = [nn.Parameter(torch.ones(1))]
    with pytest.raises(ValueError, match="no optimizer 'lion'; there are adamw, adam, sgd"):
        OptimizerSettings("lion").make(params)
    with pytest.raises(ValueError, match="no optimizer setting 'rate'; there are name, lr"):
        OptimizerSettings().make(params, rate=1)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)],
)
def test_optimizers_by_name(name: str, kind: type) -> None:
    optimizer = OptimizerSettings(name).make([nn.Parameter(torch.ones(1))], weight_decay=0.5)
    assert type(optimizer) is kind
    assert optimizer.param_groups[0]["lr"] == 1e-3
    assert optimizer.param_groups[0]["weight_decay"] == 0.5


def test_a_stored_state_that_fits_no_parameter_is_refused() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3, 2))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(3, 2)
    optimizer.step()
    _check_shapes(optimizer)
    optimizer.state[parameter]["exp_avg"] = torch.zeros(7)
    with pytest.raises(ValueError, match="exp_avg of an optimizer does not fit"):
        _check_shapes(optimizer)
