"""Whole runs of CoLafier: when labels may move, how it ends on vectors, resumed and continued."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from colafier.core import holdout_check
from colafier.evidence.config import EvidenceConfig
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import posterior
from colafier.evidence.out_of_fold import may_move, pooled
from colafier.methods import _holdout
from colafier.methods.colafier import CoLafier
from colafier.methods.contract import Batch, Engine, Method, Terms
from colafier.nets import net_factory
from colafier.training.trainer import fit
from colafier.training.training_set import TrainingSet

ROWS, CLASSES, EPOCHS = 60, 3, 5
SHORT = EvidenceConfig(head_epochs=3, head_warmup=1, head_min_steps=30)
PASSES_AFTER = 1  # the epoch after which the check has passed, where every look is good


def rows(kind: str, labels: Labels | None = None) -> TrainingSet:
    """Well separated classes; every tenth label is wrong."""
    g = torch.Generator().manual_seed(1)
    truth = torch.arange(ROWS) % CLASSES
    if kind == "vectors":
        x = 3 * torch.eye(CLASSES, 5)[truth] + torch.randn(ROWS, 5, generator=g)
    else:
        noise = torch.randint(0, 60, (ROWS, 1, 8, 8), generator=g)
        x = (noise + 90 * truth[:, None, None, None]).byte()
    wrong = torch.arange(ROWS) % 10 == 0
    observed = torch.where(wrong, (truth + 1) % CLASSES, truth)
    return TrainingSet(
        x,
        Labels(observed) if labels is None else labels,
        CLASSES,
        view_names=("weak", "strong"),
        batch_size=20,
        flip=False,
        evidence=SHORT,
    )


class Watched(CoLafier):
    """Keeps the rows of each epoch, its state, and what it predicts at the end of it."""

    def __init__(self, **choices: Any) -> None:
        super().__init__(**choices)
        self._rows: dict[int, set[int]] = {}
        self._states: list[dict[str, Tensor]] = []
        self._p: list[Tensor] = []

    def update(self, batch: Batch, engine: Engine) -> Terms:
        self._rows.setdefault(batch.epoch, set()).update(batch.index.tolist())
        return super().update(batch, engine)


def run(train: TrainingSet, stop: int | None = None, **settings: Any) -> Watched:
    """Train; `stop` is the epoch in which a person presses Ctrl-C."""
    method = Watched(warmup=1, ramp=1)

    def score(scored: Method, epoch: int) -> dict[str, float]:
        if epoch == stop:
            raise KeyboardInterrupt
        assert scored is method
        method._states.append(copy.deepcopy(method.state_dict()))
        method._p.append(train.predict(method.deployed()))
        return {}

    net = "mlp" if len(train.row_shape) == 1 else "convnet"
    make_net = net_factory(net, train.row_shape, CLASSES)
    known = {"epochs": EPOCHS, "seed": 3, "progress": False}
    fit(method, train, make_net, score=score, **known | settings)  # type: ignore[arg-type]
    return method


@pytest.fixture
def every_look_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdout_check, "MIN_DEVIATIONS", -1e9)


@pytest.mark.usefixtures("every_look_is_good")
def test_held_out_rows_join_the_training_when_the_check_has_passed() -> None:
    train = rows("images")
    held = set(_holdout.held_out(train, holdout_check.HoldoutCheck()).tolist())
    assert held
    method = run(train)
    for epoch in range(EPOCHS):
        trained = set(range(ROWS)) - (held if epoch <= PASSES_AFTER else set())
        assert method._rows[epoch] == trained, epoch
    assert method.guards.check.figures()["passed"] == 1


def test_no_label_moves_while_every_look_is_bad_but_all_rows_are_trained_on_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holdout_check, "MIN_DEVIATIONS", 1e9)
    train = rows("images")
    held = set(_holdout.held_out(train, holdout_check.HoldoutCheck()).tolist())
    method = run(train)
    assert torch.equal(method.labels.values, train.observed)
    purified = method.purify(train, train.predict(method.deployed()))
    assert torch.equal(purified.labels, train.observed)
    assert purified.diagnostics["passed"] == 0
    for epoch in range(EPOCHS):
        ended = epoch >= holdout_check.LAST_LOOK * EPOCHS
        assert method._rows[epoch] == set(range(ROWS)) - (set() if ended else held), epoch
    assert ended


def expected_posterior(train: TrainingSet, p: Tensor) -> tuple[Tensor, Tensor]:
    """The posterior (n, c), and the soft labels, where weak cases leave the label as it is."""
    labels = Labels(train.observed, train.original, train.trusted)
    unseen = train.out_of_fold()
    assert unseen is not None
    config = EvidenceConfig()
    found = posterior(pooled(p, unseen, labels, config.out_of_fold_weight), labels)
    allowed = may_move(found, p, unseen, labels, config)
    soft = found.probabilities.clone()
    for row in range(len(soft)):
        fixed = bool(labels.trusted[row]) or int(train.observed[row]) < 0
        if not fixed and not allowed[row] and int(soft[row].argmax()) != int(train.observed[row]):
            soft[row] = torch.eye(CLASSES)[train.observed[row]]
    return found.probabilities, soft


def changed(before: dict[str, Tensor], after: dict[str, Tensor], part: str) -> bool:
    names = [name for name in before if name.startswith(part)]
    assert names
    return any(not torch.equal(before[name], after[name]) for name in names)


def test_the_last_epochs_on_vectors_train_lid_gen_alone_on_the_posterior() -> None:
    train = rows("vectors")
    method = run(train)
    start = method.posterior_start
    assert start == 3
    states = method._states
    assert changed(states[start - 2], states[start - 1], "dis.")
    before = states[start - 1]
    assert not before["has_posterior"]
    assert not before["targets.values"].any()
    _, targets = expected_posterior(train, method._p[start - 1])
    for epoch in range(start, EPOCHS):
        assert not changed(before, states[epoch], "dis.")
        assert changed(states[epoch - 1], states[epoch], "gen.")
        assert torch.equal(states[epoch]["targets.values"], targets)
        assert torch.equal(states[epoch]["labels.values"], targets.argmax(1))
        assert method._rows[epoch] == set(range(ROWS))


def test_labels_at_the_end_are_the_likeliest_and_decided_rows_keep_theirs() -> None:
    original = rows("vectors").observed
    trusted = torch.arange(ROWS) % 6 == 1
    observed = torch.where(trusted, (original + 1) % CLASSES, original)  # a person said so
    observed[2] = -1
    train = rows("vectors", Labels(observed, original, trusted))
    method = run(train)
    p = train.predict(method.deployed())
    purified = method.purify(train, p)
    expected, soft = expected_posterior(train, p)
    assert (soft != expected).any()  # weak cases are there
    free = ~trusted & (observed >= 0)
    assert torch.equal(purified.labels[free], soft.argmax(1)[free])
    assert (purified.labels != observed)[free].any()
    assert torch.equal(purified.labels[~free], observed[~free])
    of_observed = expected.gather(1, observed.clamp(min=0)[:, None])[:, 0]
    torch.testing.assert_close(purified.quality[free], of_observed[free])
    targets = method.targets.values[trusted]
    assert torch.equal(targets, torch.eye(CLASSES)[observed[trusted]])


@pytest.mark.parametrize("kind", ["images", "vectors"])
@pytest.mark.parametrize("stop", [1, 2, 3, 4])
@pytest.mark.usefixtures("every_look_is_good")
def test_a_resumed_run_is_as_uninterrupted(kind: str, stop: int, tmp_path: Path) -> None:
    """Before and after the check has passed, and before and after the soft labels are made."""
    whole = run(rows(kind))
    with pytest.raises(KeyboardInterrupt):
        run(rows(kind), stop, folder=tmp_path)
    train = rows(kind)
    resumed = run(train, folder=tmp_path, resume=True)
    assert resumed._rows == {epoch: whole._rows[epoch] for epoch in range(stop, EPOCHS)}
    for state, expected in zip(resumed._states, whole._states[stop:], strict=True):
        assert state.keys() == expected.keys()
        for name, value in expected.items():
            assert torch.equal(state[name].nan_to_num(-1), value.nan_to_num(-1)), name
    ends = [m.purify(train, train.predict(m.deployed())) for m in (whole, resumed)]
    assert torch.equal(ends[0].labels, ends[1].labels)
    assert torch.equal(ends[0].quality, ends[1].quality)
    assert ends[0].diagnostics == ends[1].diagnostics


def test_a_run_that_continues_on_soft_labels_makes_them_with_the_decisions(tmp_path: Path) -> None:
    """With 10 epochs done of 15, all that are left are on soft labels."""
    original = rows("vectors").observed
    first = run(rows("vectors"), epochs=10, folder=tmp_path)
    trusted = torch.arange(ROWS) % 6 == 1
    decided = torch.where(trusted, (original + 1) % CLASSES, original)
    train = rows("vectors", Labels(decided, original, trusted))
    longer = run(train, epochs=15, warm_start=tmp_path / "checkpoint.pt")
    assert longer.posterior_start == 9
    assert len(longer._states) == 5
    before = train.predict(first.deployed())
    _, soft = expected_posterior(train, before)
    assert torch.equal(longer._states[0]["targets.values"], soft)
    assert torch.equal(longer.targets.values[trusted], torch.eye(CLASSES)[decided[trusted]])
    purified = longer.purify(train, train.predict(longer.deployed()))
    assert torch.equal(purified.labels[trusted], decided[trusted])
    assert purified.columns["lid"][~trusted].isfinite().all()  # from before
    assert purified.columns["lid"][trusted].isnan().all()


@pytest.mark.usefixtures("every_look_is_good")
def test_a_run_on_images_that_continues_holds_out_no_row_again(tmp_path: Path) -> None:
    run(rows("images"), folder=tmp_path)
    longer = run(rows("images"), epochs=7, warm_start=tmp_path / "checkpoint.pt")
    assert longer._rows == {epoch: set(range(ROWS)) for epoch in (5, 6)}
