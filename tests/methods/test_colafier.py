"""What CoLafier keeps from step to step: labels, streaks, history, and what is deployed."""

from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from colafier.core.holdout_check import IN_A_ROW, sureness, weigh
from colafier.core.safeguards import no_streak
from colafier.core.subnets import LidGen
from colafier.evidence.labels import Labels
from colafier.methods import _holdout
from colafier.methods.colafier import CoLafier
from colafier.methods.contract import Batch
from colafier.methods.row_table import RowTable
from colafier.nets import net_factory
from colafier.training.training_set import TrainingSet

ROWS, CLASSES = 48, 3


def rows(kind: str = "vectors", views: tuple[str, ...] = ("weak", "strong")) -> TrainingSet:
    g = torch.Generator().manual_seed(1)
    observed = torch.arange(ROWS) % CLASSES
    if kind == "vectors":
        x = torch.randn(ROWS, 5, generator=g) + observed[:, None]
    else:
        x = torch.randint(0, 256, (ROWS, 1, 8, 8), generator=g).to(torch.uint8)
    return TrainingSet(x, Labels(observed), CLASSES, view_names=views, batch_size=ROWS)


def ready(
    kind: str = "vectors", epochs: int = 10, **settings: Any
) -> tuple[CoLafier, TrainingSet, Batch]:
    """A method set up for these rows, and its first batch."""
    torch.manual_seed(0)
    method = CoLafier(warmup=2, ramp=3, **settings)
    train = rows(kind, method.views)
    net = "mlp" if kind == "vectors" else "convnet"
    method.setup(net_factory(net, train.row_shape, CLASSES), train, epochs)
    (part,) = method.passes(0, train)
    return method, train, next(iter(train.batches(part, 0, 0)))


def at(batch: Batch, epoch: int) -> Batch:
    return Batch(batch.index, batch.y, batch.views, epoch, float(epoch))


def test_a_step_of_warm_up_stages_no_label() -> None:
    method, _, batch = ready()
    terms = method.loss(batch)
    assert set(terms) == {"clean_gen", "clean_dis"}
    for table in (method.labels, method.streak):
        assert table.take_staged() is None


def test_terms_and_mean_weights_are_logged_after_it() -> None:
    method, _, batch = ready()
    terms = method.loss(at(batch, 4))
    kinds = {name.partition("_")[0] for name in terms}
    assert kinds == {"clean", "hard", "noisy", "weight"}
    assert {n for n, t in terms.items() if not t.requires_grad} == {"weight_clean", "weight_noisy"}


def test_single_view_adds_the_plain_rows() -> None:
    method, _, batch = ready(single_view=True)
    assert method.views == ("weak", "strong", "plain")
    assert float(method.loss(at(batch, 4))["hard_gen"].detach()) == 0


class Stubborn(nn.Module):
    """Predicts the same class with certainty for every row."""

    def __init__(self, answer: int) -> None:
        super().__init__()
        self.answer = answer
        self.anchor = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        logits = torch.zeros(len(x), CLASSES)
        logits[:, self.answer] = 9.0
        return logits + self.anchor


def wanted(method: CoLafier, batch: Batch, epoch: int) -> Tensor:
    """Labels after one batch whose staged rows are committed."""
    method.loss(at(batch, epoch))
    for table in method.modules():
        if isinstance(table, RowTable):
            table.begin_pass() if (staged := table.take_staged()) is None else table.commit(*staged)
            table.begin_pass()
    return method.labels[batch.index]


def test_a_move_must_be_wanted_in_as_many_epochs_as_patience_says() -> None:
    method, _, batch = ready(patience=2, class_prior_floor=0.0, threshold=-1.0, posterior_share=0.0)
    method.gen = Stubborn(1)  # type: ignore[assignment]
    after_one, after_two = wanted(method, batch, 6), wanted(method, batch, 7)
    assert torch.equal(after_one, batch.y)
    assert (after_two != batch.y).any()
    assert set(after_two[after_two != batch.y].tolist()) == {1}


def test_no_label_moves_before_the_holdout_check_has_passed() -> None:
    choices = {"patience": 1, "class_prior_floor": 0.0, "threshold": -1.0}
    method, _, batch = ready("images", **choices)
    method.gen = Stubborn(1)  # type: ignore[assignment]
    assert torch.equal(wanted(method, batch, 7), batch.y)
    method.guards.check.in_a_row.fill_(IN_A_ROW)
    assert (wanted(method, batch, 8) != batch.y).any()


def test_trusted_rows_keep_their_label_whatever_is_predicted() -> None:
    method, train, batch = ready(
        patience=1, class_prior_floor=0.0, threshold=-1.0, posterior_share=0.0
    )
    method.labels = RowTable(train.observed, trusted=torch.ones(ROWS, dtype=torch.bool))
    method.gen = Stubborn(1)  # type: ignore[assignment]
    assert torch.equal(wanted(method, batch, 7), batch.y)


def test_held_out_rows_are_trained_on_once_the_check_has_passed() -> None:
    method, train, _ = ready("images")
    (part,) = method.passes(0, train)
    assert part.rows is not None
    held = _holdout.held_out(train, method.guards.check)
    assert 0 < len(held) < train.n
    assert torch.equal(torch.cat([part.rows, held]).sort().values, torch.arange(train.n))
    method.guards.check.in_a_row.fill_(IN_A_ROW)
    (part,) = method.passes(5, train)
    assert part.rows is not None
    assert torch.equal(part.rows, torch.arange(train.n))


def test_the_averaged_net_has_batch_norm_of_plain_rows() -> None:
    method, train, batch = ready("images")
    averaged = method.guards.average.deploy(method.gen)
    norm = next(part for part in averaged.modules() if isinstance(part, nn.BatchNorm2d))
    first = next(part for part in averaged.modules() if isinstance(part, nn.Conv2d))
    method.loss(batch)  # moves the statistics of LID-gen
    method.guards.average.follow(method.gen, 1.0)
    list(method.passes(1, train))
    plain = first(train.normalize(train.x.float() / 255))
    assert torch.allclose(norm.running_mean, plain.mean((0, 2, 3)), atol=1e-5)


def test_without_an_average_lid_gen_keeps_its_statistics() -> None:
    method, train, _ = ready("images", average=0.0)
    before = {name: value.clone() for name, value in method.gen.named_buffers()}
    list(method.passes(1, train))
    assert before
    assert all(torch.equal(value, before[name]) for name, value in method.gen.named_buffers())


def test_the_check_looks_at_both_subnets_on_held_out_rows_from_the_end_of_warm_up() -> None:
    method, train, _ = ready("images")  # two epochs of warm-up
    held = _holdout.held_out(train, method.guards.check)
    list(method.passes(0, train))
    assert method.guards.check.figures()["rows"] == 0
    list(method.passes(1, train))
    averaged = method.guards.average.deploy(method.gen)
    gen, dis = (train.predict(net, held) for net in (averaged, method.dis))
    seen = (gen.argmax(1), dis.argmax(1), sureness(gen, dis), train.observed[held])
    expected = asdict(weigh(*seen))
    assert method.guards.check.figures() == pytest.approx(expected | {"passed": 0})
    purified = method.purify(train, train.predict(method.deployed()))
    assert torch.equal(purified.labels, train.observed)
    assert purified.diagnostics["rows"] == len(held)


def test_vectors_have_no_holdout_check_and_images_no_soft_labels() -> None:
    method, train, _ = ready("vectors")
    (part,) = method.passes(0, train)
    assert part.rows is not None
    assert len(part.rows) == train.n
    assert (method.posterior_start, len(method.targets)) == (6, train.n)
    method, _, _ = ready("images")
    assert (method.posterior_start, len(method.targets)) == (10, 0)
    method, _, _ = ready("vectors", variant="paper")
    assert (method.posterior_start, len(method.targets)) == (10, 0)


def test_a_step_on_soft_labels_is_of_lid_gen_alone_and_stages_nothing() -> None:
    method, _, batch = ready()
    targets = torch.rand(ROWS, CLASSES, generator=torch.Generator().manual_seed(3)).softmax(1)
    method.targets.values.copy_(targets)
    method.train()
    (term,) = (terms := method.loss(at(batch, 8))).values()
    assert list(terms) == ["soft_gen"]
    p = method.gen(torch.cat(batch.views)).detach().softmax(1).reshape(2, ROWS, CLASSES)
    expected = 0.0
    for row, index in enumerate(batch.index.tolist()):
        for view in range(2):
            expected -= float((targets[index] * p[view, row].log()).sum()) / ROWS
    assert float(term.detach()) == pytest.approx(expected, rel=1e-4)
    term.backward()
    assert all(parameter.grad is None for parameter in method.dis.parameters())
    tables = [part for part in method.modules() if isinstance(part, RowTable)]
    assert all(table.take_staged() is None for table in tables)


def test_a_continued_run_believes_the_observed_labels_again() -> None:
    method, train, _ = ready("images")
    weight = next(method.parameters()).clone()
    method.labels.values.copy_((train.observed + 1) % train.num_classes)
    method.has_posterior.fill_(True)
    method.guards.check.in_a_row.fill_(IN_A_ROW)
    method.reset_beliefs(train)
    assert torch.equal(method.labels.values, train.observed)
    assert torch.equal(method.streak.values, no_streak(train.observed))
    assert not method.has_posterior
    assert method.guards.check.passed  # its rows have been trained on
    assert torch.equal(next(method.parameters()), weight)


def test_a_continued_run_forgets_the_history_of_rows_with_another_label() -> None:
    method, train, _ = ready()
    method.history.epochs.values += 1
    original = train.observed.clone()
    train.observed[:4] = (original[:4] + 1) % CLASSES
    train.observed[4] = -1  # excluded
    train.trusted[:8] = True  # rows 5 to 7 keep their label
    train.original = original
    method.reset_beliefs(train)
    assert method.history.seen.tolist() == [row > 4 for row in range(ROWS)]
    train.original = None
    method.reset_beliefs(train)
    assert method.history.seen.tolist() == [row > 7 for row in range(ROWS)]


def test_the_deployed_classifier_has_the_lift_and_is_a_plain_net() -> None:
    method, train, _ = ready(class_prior_floor=0.7)
    plain = train.predict(method.guards.average.deploy(method.gen))
    method.guards.floor.bias[1] = 50.0
    deployed = method.deployed()
    assert isinstance(deployed, LidGen)
    assert not [part for part in deployed.modules() if isinstance(part, RowTable)]
    assert deployed.state_dict().keys() == method.gen.state_dict().keys()
    assert (train.predict(deployed).argmax(1) == 1).all()
    assert not (plain.argmax(1) == 1).all()


def test_the_survey_sees_the_logits_without_the_lift() -> None:
    """So the lift of one epoch does not depend on that of the epoch before."""
    lifts = []
    for before in (0.0, 50.0):
        method, train, _ = ready(class_prior_floor=0.9)
        with torch.no_grad():
            method.guards.average.deploy(method.gen).head.bias[1] -= 20.0
            method.guards.floor.bias[1] = before
        list(method.passes(5, train))
        lifts.append(method.guards.floor.bias.clone())
    assert torch.equal(*lifts)
    assert lifts[0][1] > 0


def test_what_is_deployed_can_be_trained_on_without_the_method() -> None:
    method, train, _ = ready()
    before = train.predict(method.deployed())
    deployed = method.deployed()
    with torch.no_grad():
        for parameter in deployed.parameters():
            parameter.zero_()
    assert torch.equal(train.predict(method.deployed()), before)


def test_the_resolved_config_has_warm_up_and_ramp_in_epochs() -> None:
    method = CoLafier(variant="paper", patience=3)
    train = rows("vectors", method.views)
    method.setup(net_factory("mlp", train.row_shape, CLASSES), train, 40)
    resolved = method.resolved()
    assert (resolved["warmup"], resolved["ramp"], resolved["patience"]) == (3, 6, 3)
    assert resolved["neighbors"] == 20
