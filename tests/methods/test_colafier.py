"""What CoLafier keeps from step to step: labels, streaks, history, and what is deployed."""

from typing import Any

import torch
from torch import Tensor, nn

from colafier.core.subnets import LidGen
from colafier.evidence.labels import Labels
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
    method, _, batch = ready(patience=2, class_prior_floor=0.0, threshold=-1.0, holdout=False)
    method.gen = Stubborn(1)  # type: ignore[assignment]
    after_one, after_two = wanted(method, batch, 6), wanted(method, batch, 7)
    assert torch.equal(after_one, batch.y)
    assert (after_two != batch.y).any()
    assert set(after_two[after_two != batch.y].tolist()) == {1}


def test_a_label_moves_only_to_the_class_that_the_holdout_check_allows() -> None:
    method, _, batch = ready(patience=1, class_prior_floor=0.0, threshold=-1.0)
    method.gen = Stubborn(1)  # type: ignore[assignment]
    assert torch.equal(wanted(method, batch, 7), batch.y)
    method.allowed.values.fill_(1)
    assert (wanted(method, batch, 8) != batch.y).any()


def test_trusted_rows_keep_their_label_whatever_is_predicted() -> None:
    method, train, batch = ready(patience=1, class_prior_floor=0.0, threshold=-1.0, holdout=False)
    method.labels = RowTable(train.observed, trusted=torch.ones(ROWS, dtype=torch.bool))
    method.gen = Stubborn(1)  # type: ignore[assignment]
    assert torch.equal(wanted(method, batch, 7), batch.y)


def test_held_out_rows_are_never_trained_on_and_come_out() -> None:
    method, train, _ = ready()
    (part,) = method.passes(0, train)
    assert part.rows is not None
    assert 0 < len(part.rows) < train.n
    method.loss(next(iter(train.batches(part, 0, 0))))
    purified = method.purify(train, train.predict(method.deployed()))
    assert purified.labels.shape == purified.quality.shape == (train.n,)
    assert torch.equal(purified.labels, train.observed)  # too few rows to be evidence


def test_a_resumed_run_believes_the_observed_labels_again() -> None:
    method, train, _ = ready()
    weight = next(method.parameters()).clone()
    method.labels.values.copy_((train.observed + 1) % train.num_classes)
    method.history.epochs.values += 1
    method.reset_beliefs(train)
    assert torch.equal(method.labels.values, train.observed)
    assert not method.history.seen.any()
    assert torch.equal(next(method.parameters()), weight)


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
