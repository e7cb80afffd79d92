"""Checks that every method must pass, whatever its paper says."""

import copy
import math
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from colafier import methods
from colafier.core import mixing
from colafier.evidence.labels import Labels
from colafier.methods.contract import Method, Pass, Purified
from colafier.methods.row_table import RowTable
from colafier.nets import Classifier, net_factory
from colafier.training.distributed import Processes, launch
from colafier.training.engine import Engine
from colafier.training.metrics import Metrics
from colafier.training.optimizers import OptimizerSettings
from colafier.training.records import History
from colafier.training.trainer import fit
from colafier.training.training_set import TrainingSet

NAMES = methods.available()
EPOCHS = 3
WARM = [name for name in NAMES if methods.find(name).can_warm_start]
every_method = pytest.mark.parametrize("name", NAMES)


class Tiny:
    """Rows of well separated classes with some wrong labels, and test rows."""

    def __init__(
        self, kind: str = "vectors", n: int = 97, num_classes: int = 3, noise: float = 0.2
    ) -> None:
        g = torch.Generator().manual_seed(0)
        shape = (6,) if kind == "vectors" else (1, 8, 8)
        centers = torch.rand(num_classes, *shape, generator=g)
        self.truth = torch.arange(n + 50) % num_classes
        x = centers[self.truth] + 0.1 * torch.randn(n + 50, *shape, generator=g)
        x = x if kind == "vectors" else (x.clamp(0, 1) * 255).round().to(torch.uint8)
        other = (
            self.truth + torch.randint(1, num_classes, self.truth.shape, generator=g)
        ) % num_classes
        wrong = torch.rand(n + 50, generator=g) < noise
        self.observed = torch.where(wrong, other, self.truth)[:n]
        self.x, self.test_x = x[:n], x[n:]
        self.truth, self.test_labels = self.truth[:n], self.truth[n:]
        self.num_classes = num_classes
        self.net = "mlp" if kind == "vectors" else "convnet"

    def rows(self, name: str, **settings: object) -> TrainingSet:
        given = {k: settings.pop(k) for k in ("original", "trusted") if k in settings}
        labels = Labels(settings.pop("observed", self.observed), **given)  # type: ignore[arg-type]
        known = {"view_names": methods.build(name).views, "batch_size": 32, "flip": False}
        return TrainingSet(self.x, labels, self.num_classes, **known | settings)  # type: ignore[arg-type]

    def fit(
        self,
        name: str,
        rows: TrainingSet | None = None,
        *,
        epochs: int = EPOCHS,
        seed: int = 0,
        folder: Path | None = None,
        resume: bool = False,
        warm_start: Path | None = None,
        stop: int | None = None,
        precision: str = "float32",
        processes: Processes | None = None,
        **hyper: object,
    ) -> tuple[Method, TrainingSet, History]:
        """Train; `stop` is the epoch in which a person presses Ctrl-C."""
        rows = self.rows(name) if rows is None else rows
        method = methods.build(name, **hyper)
        metrics = Metrics(self.truth, rows.observed, self.test_x, self.test_labels, rows.normalize)

        def score(method: Method, epoch: int) -> dict[str, float]:
            if epoch == stop:
                raise KeyboardInterrupt
            return metrics(method, epoch)

        make_net = net_factory(self.net, rows.row_shape, self.num_classes, precision)
        history = fit(
            method,
            rows,
            make_net,
            epochs=epochs,
            seed=seed,
            folder=folder,
            resume=resume,
            warm_start=warm_start,
            score=score if processes is None else None,
            processes=processes,
            progress=False,
        )
        return method, rows, history


def purify(method: Method, rows: TrainingSet) -> Purified:
    """As the workflows do: the deployed classifier predicts all rows once."""
    return method.purify(rows, rows.predict(method.deployed()))


def assert_sound(method: Method, rows: TrainingSet, history: History) -> None:
    """Finite terms and state, and purified labels that make sense."""
    for epoch in history.epochs:
        assert "loss" in epoch
        assert all(math.isfinite(value) for value in epoch.values()), epoch
    assert history.skipped_steps == 0
    assert_finite(method)
    purified = purify(method, rows)
    assert purified.labels.shape == (rows.n,)
    assert purified.labels.dtype == torch.int64
    labeled = rows.labeled
    assert purified.labels[labeled].min() >= 0
    assert purified.labels.max() < rows.num_classes
    assert purified.quality.shape == (rows.n,)
    assert purified.quality[labeled].min() >= 0
    assert purified.quality[labeled].max() <= 1
    for name, column in purified.columns.items():
        assert len(column) == rows.n, name
    p = rows.predict(method.deployed())
    assert p.shape == (rows.n, rows.num_classes)
    torch.testing.assert_close(p.sum(1), torch.ones(rows.n))


def table_names(method: Method) -> set[str]:
    return {f"{n}.values" for n, m in method.named_modules() if isinstance(m, RowTable)}


def assert_finite(method: Method) -> None:
    """All that is learned is finite, with the statistics of networks.

    A limit of the method's own may be infinite (nothing passes it), but is never NaN; a score in a
    table may be NaN for a row that has none.
    """
    tables = table_names(method)
    for module in method.modules():
        if isinstance(module, Classifier | nn.modules.batchnorm._BatchNorm):
            assert all(torch.isfinite(value).all() for value in module.state_dict().values())
    for key, value in method.named_parameters():
        assert torch.isfinite(value).all(), key
    for key, value in method.named_buffers():
        assert key in tables or not value.isnan().any(), key


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor], what: str = "") -> None:
    """Equal bit for bit, where NaN equals NaN."""
    assert list(one) == list(other)
    for key, value in one.items():
        same = torch.equal(value.nan_to_num(-1), other[key].nan_to_num(-1))
        assert same, f"{what} {key}"


def figures(history: History) -> list[dict[str, object]]:
    clocks = {"seconds", "scoring_seconds"}
    return [{k: v for k, v in epoch.items() if k not in clocks} for epoch in history.epochs]


@every_method
def test_says_what_it_is(name: str) -> None:
    method = methods.build(name)
    assert method.reference
    assert method.year > 1950
    assert method.views
    defaults = {key: default for key, (default, _) in methods.hyper_parameters(name).items()}
    assert methods.REQUIRED not in defaults.values()
    assert ("noise_rate" in defaults) == method.needs_noise_rate
    assert defaults.get("noise_rate") is None  # a run fills in the true rate


@every_method
@pytest.mark.parametrize("kind", ["vectors", "images"])
def test_trains_and_purifies(name: str, kind: str) -> None:
    tiny = Tiny(kind, n=97)  # batches of 32, 32 and 33: the last row joins the third
    method, rows, history = tiny.fit(name, epochs=2 if kind == "images" else EPOCHS)
    assert_sound(method, rows, history)
    assert not any(isinstance(m, RowTable) for m in method.deployed().modules())


@every_method
def test_beats_chance(name: str) -> None:
    tiny = Tiny(n=240)
    method, rows, history = tiny.fit(name, epochs=8)
    assert history.series("test_accuracy")[-1] > 0.7  # chance is 1/3
    purified = purify(method, rows)
    wrong = tiny.observed != tiny.truth
    assert roc_auc_score(wrong, 1 - purified.quality) > 0.7  # chance is 1/2
    right = (purified.labels == tiny.truth).float().mean()
    assert right >= (~wrong).float().mean()


@every_method
def test_same_seed_gives_the_same(name: str) -> None:
    tiny = Tiny()
    first, rows, history = tiny.fit(name, seed=5)
    second, _, again = tiny.fit(name, seed=5)
    assert_same(first.state_dict(), second.state_dict())
    assert figures(history) == figures(again)
    assert torch.equal(
        purify(first, rows).quality,
        purify(second, rows).quality,
    )
    other, _, _ = tiny.fit(name, seed=6)
    assert any(
        not torch.equal(value, other.state_dict()[key]) for key, value in first.state_dict().items()
    )


@every_method
def test_resumed_is_uninterrupted(name: str, tmp_path: Path) -> None:
    tiny = Tiny("images", n=48)
    whole, rows, history = tiny.fit(name)
    expected = purify(whole, rows)
    with pytest.raises(KeyboardInterrupt, match=r"after 1 whole epochs.*resume"):
        tiny.fit(name, folder=tmp_path, stop=1)
    method, rows, resumed = tiny.fit(name, folder=tmp_path, resume=True)
    assert_same(whole.state_dict(), method.state_dict())
    assert figures(history) == figures(resumed)
    purified = purify(method, rows)
    assert torch.equal(expected.labels, purified.labels)
    assert torch.equal(expected.quality, purified.quality)


@every_method
def test_a_longer_run_can_load_a_shorter_one_unless_the_method_says_no(name: str) -> None:
    rows = Tiny(n=40).rows(name)
    short, long = methods.build(name), methods.build(name)
    for method, epochs in ((short, 96), (long, 144)):
        method.setup(net_factory("mlp", rows.row_shape, 3), rows, epochs)
    shapes = [{k: v.shape for k, v in m.state_dict().items()} for m in (short, long)]
    assert (shapes[0] == shapes[1]) == (name in WARM)


def test_all_but_one_method_can_train_further() -> None:
    """JointOptim averages over a window of epochs that grows with the length of the run."""
    assert set(NAMES) - set(WARM) == {"joint_optim"}


@pytest.mark.parametrize("name", WARM)
@pytest.mark.parametrize("epochs", [2, 24])  # the second is long enough for tables by epoch
def test_a_finished_run_trains_further_with_decisions(
    name: str, epochs: int, tmp_path: Path
) -> None:
    tiny = Tiny(n=40)
    tiny.fit(name, folder=tmp_path, epochs=epochs)
    decided = torch.where(torch.arange(40) < 6, tiny.truth, tiny.observed)
    decided[7] = -1  # excluded
    trusted = torch.arange(40) < 6
    rows = tiny.rows(name, observed=decided, trusted=trusted, original=tiny.observed)
    longer = {"warm_start": tmp_path / "checkpoint.pt", "epochs": epochs * 3 // 2}
    method, rows, history = tiny.fit(name, rows, **longer)
    assert len(history.epochs) == epochs * 3 // 2
    assert_sound(method, rows, history)
    assert torch.equal(purify(method, rows).labels[trusted], tiny.truth[trusted])


@every_method
@pytest.mark.parametrize(
    ("tiny", "batch_size"),
    [
        pytest.param(Tiny(noise=0.0), 32, id="clean"),
        pytest.param(Tiny(num_classes=2), 32, id="two classes"),
        pytest.param(Tiny(n=45), 32, id="odd last batch"),
        pytest.param(Tiny(n=20), 32, id="one short batch"),
        pytest.param(Tiny(n=7), 1, id="batches of one row"),
        pytest.param(Tiny(n=1), 32, id="one row"),
    ],
)
def test_unusual_data(name: str, tiny: Tiny, batch_size: int) -> None:
    assert_sound(*tiny.fit(name, tiny.rows(name, batch_size=batch_size)))


@every_method
def test_rows_without_label(name: str) -> None:
    tiny = Tiny()
    observed = torch.where(torch.arange(97) % 4 == 0, -1, tiny.observed)
    assert_sound(*tiny.fit(name, tiny.rows(name, observed=observed)))


@every_method
def test_trusted_rows_never_change(name: str) -> None:
    tiny = Tiny(noise=0.5)
    trusted = torch.arange(97) < 40
    rows = tiny.rows(name, trusted=trusted)
    method, _, _ = tiny.fit(name, rows, epochs=6)
    assert torch.equal(purify(method, rows).labels[trusted], tiny.observed[trusted])
    believed = method.rows_now().get("labels", tiny.observed)
    assert torch.equal(believed[trusted], tiny.observed[trusted])


@every_method
def test_bf16_backbone(name: str) -> None:
    assert_sound(*Tiny("images", n=48).fit(name, epochs=2, precision="bf16"))


@every_method
def test_a_step_that_is_not_finite_loses_nothing(name: str) -> None:
    tiny = Tiny("images")
    rows = tiny.rows(name)
    method = methods.build(name)
    method.setup(net_factory(tiny.net, rows.row_shape, 3, "float32"), rows, EPOCHS)
    engine = Engine(method, OptimizerSettings(), Processes())
    part = next(method.passes(0, rows))
    engine.begin_pass(part)
    first, second, third = rows.batches(part, 0, 0)
    method.update(first, engine)
    before = copy.deepcopy(method.state_dict())
    kept = {n for n, p in method.named_parameters() if p.requires_grad} | table_names(method)
    poisoned = replace(second, views=tuple(view * math.nan for view in second.views))
    method.update(poisoned, engine)
    skipped = engine.skipped_steps  # some methods take two steps for a batch
    assert skipped >= 1
    assert_finite(method)
    after = method.state_dict()
    assert_same({k: after[k] for k in kept}, {k: before[k] for k in kept})
    assert all(torch.isfinite(term) for term in method.update(third, engine).values())
    assert engine.skipped_steps == skipped


def state_on(processes: Processes, name: str, kind: str, **hyper: object) -> dict[str, Tensor]:
    """Train a method; its state and figures on this process."""
    # batches of 32, 32 and 5 rows: shares of different sizes
    method, rows, history = Tiny(kind, n=69).fit(name, epochs=2, processes=processes, **hyper)
    state = dict(method.state_dict()) | {"purified quality": purify(method, rows).quality}
    return state | {"loss over epochs": torch.tensor(history.series("loss"))}


# Without batch statistics and mixing, which are within a process, all is exactly as on one process
BARE: dict[str, dict[str, object]] = {
    "colafier": {"noisy_loss": False, "warmup": 1},
    "co_teaching_plus": {"warmup": 1},
}


def bare_state_on(processes: Processes, name: str) -> dict[str, Tensor]:
    """The state of a method with what is exact only: no row is mixed with another one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixing, "_beta", lambda _: 1.0)
        return state_on(processes, name, "vectors", **BARE.get(name, {}))


def states_on(processes: Processes) -> dict[str, list[dict[str, Tensor]]]:
    """What all processes have after training each method."""
    warnings.simplefilter("error")
    runs = {
        f"{name} {kind}": processes.all_gather_object(state_on(processes, name, kind))
        for name in NAMES
        for kind in ("vectors", "images")
    }
    return runs | {
        f"{name} bare": processes.all_gather_object(bare_state_on(processes, name))
        for name in NAMES
    }


def test_two_processes_agree() -> None:
    """All methods in one go, because starting processes takes seconds."""
    together = launch(states_on, devices=2, accelerator="cpu")
    for run, (first, second) in together.items():
        assert_same(first, second, run)
    for name in NAMES:
        alone = bare_state_on(Processes(), name)
        for key, value in together[f"{name} bare"][0].items():
            difference = f"{name} {key}"
            torch.testing.assert_close(
                value, alone[key], rtol=0, atol=1e-4, equal_nan=True, msg=difference
            )


def test_an_empty_pass_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    class Picky(methods.find("ce")):  # type: ignore[misc]
        def passes(self, epoch: int, train: object) -> object:  # noqa: ARG002
            yield Pass(rows=torch.empty(0, dtype=torch.long), tag="nobody")
            yield Pass()

    tiny = Tiny()
    method = Picky()
    history = fit(
        method,
        tiny.rows("ce"),
        net_factory("mlp", (6,), 3, "float32"),
        epochs=1,
        progress=False,
    )
    assert "'nobody' has no rows" in caplog.text
    assert history.epochs[0]["loss"] > 0
