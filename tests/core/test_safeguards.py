"""Our safeguards: floor, patience, average and holdout check; their null versions do nothing."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from colafier.core.config import ADAPTIVE, AUTHORS, PAPER, CoLafierConfig
from colafier.core.holdout_check import IN_A_ROW
from colafier.core.safeguards import (
    ClassPriorFloor,
    NoPatience,
    RelabelPatience,
    Safeguards,
    StepAverage,
    no_streak,
)
from colafier.core.subnets import LidGen
from colafier.nets import net_factory

OBSERVED = torch.arange(3).repeat(100)
X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))


def lid_gen() -> LidGen:
    torch.manual_seed(0)
    return LidGen(net_factory("mlp", (4,), 3)()).eval()


def seldom_the_second() -> Tensor:
    """Logits (300, 3) with the second class hardly ever predicted."""
    noise = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
    return noise - torch.tensor([0.0, 2.0, 0.0])


def test_no_class_vanishes_from_the_predictions() -> None:
    floor, logits = ClassPriorFloor(OBSERVED, 3, 0.7), seldom_the_second()
    assert int((logits.argmax(1) == 1).sum()) < 50
    floor.fit(logits)
    assert int(((logits + floor.bias).argmax(1) == 1).sum()) == pytest.approx(70, abs=3)
    assert floor.bias[[0, 2]].max() == 0


def test_a_class_with_too_many_labels_need_not_be_predicted_more_often_than_others() -> None:
    """Half of the labels are the second class; a third of the rows is an equal part."""
    observed = torch.cat([OBSERVED, torch.ones(100, dtype=torch.long)])
    floor, logits = ClassPriorFloor(observed, 3, 0.7), seldom_the_second()
    floor.fit(logits)
    assert int(((logits + floor.bias).argmax(1) == 1).sum()) == pytest.approx(70, abs=3)
    assert floor.floor[0] == pytest.approx(0.7 / 4)


def test_the_bias_depends_on_the_last_logits_only() -> None:
    floor, again = ClassPriorFloor(OBSERVED, 3, 0.7), ClassPriorFloor(OBSERVED, 3, 0.7)
    floor.fit(seldom_the_second().flip(1).roll(1, 1))
    for some in (floor, again):
        some.fit(seldom_the_second())
    assert torch.equal(floor.bias, again.bias)


def test_a_class_that_is_frequent_enough_is_not_lifted() -> None:
    floor = ClassPriorFloor(OBSERVED, 3, 0.7)
    floor.fit(4 * nn.functional.one_hot(OBSERVED, 3).float())
    assert floor.bias.max() == 0


@pytest.mark.parametrize("has_bias", [True, False])
def test_the_bias_is_folded_into_the_last_layer_of_a_copy(has_bias: bool) -> None:
    gen, floor = lid_gen(), ClassPriorFloor(OBSERVED, 3, 0.7)
    if not has_bias:
        gen.head.bias = None
    floor.bias[1] = 2.5
    before = gen(X)
    deployed = floor.deploy(gen)
    torch.testing.assert_close(deployed(X), before + floor.bias)
    assert torch.equal(gen(X), before)
    assert {type(part) for part in deployed.modules()} == {type(part) for part in gen.modules()}
    parameters, own = dict(deployed.named_parameters()), dict(gen.named_parameters())
    assert parameters.keys() == own.keys() | {"head.bias"}
    assert all(p.requires_grad for p in parameters.values())
    assert not {p.data_ptr() for p in parameters.values()} & {p.data_ptr() for p in own.values()}


def test_folding_draws_no_random_numbers() -> None:
    gen, floor = lid_gen(), ClassPriorFloor(OBSERVED, 3, 0.7)
    state = torch.get_rng_state()
    floor.deploy(gen)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("epochs", [2, 3])
def test_a_label_moves_after_the_same_proposal_in_several_epochs_in_a_row(epochs: int) -> None:
    """Against a loop over rows and epochs that looks back at the proposals themselves."""
    generator = torch.Generator().manual_seed(0)
    patience = RelabelPatience(epochs)
    labels = torch.zeros(200, dtype=torch.long)
    streak = no_streak(labels)
    # since its last move, a row has these proposals behind it
    behind: list[list[int]] = [[] for _ in labels]
    for _ in range(8):
        proposed = torch.randint(3, (200,), generator=generator)
        new, streak = patience.settle(labels, proposed, streak)
        for i, wish in enumerate(proposed.tolist()):
            behind[i].append(wish)
            last = behind[i][-epochs:]
            moves = wish != int(labels[i]) and last == [wish] * epochs
            assert int(new[i]) == (wish if moves else int(labels[i]))
            behind[i] = [] if moves else behind[i]
        labels = new
    assert (labels != 0).any()


def test_without_patience_a_label_moves_at_once() -> None:
    labels, proposed = torch.tensor([0, 1]), torch.tensor([2, 1])
    for patience in (NoPatience(), RelabelPatience(1)):
        assert patience.settle(labels, proposed, no_streak(labels))[0].tolist() == [2, 1]


def test_the_average_covers_so_many_epochs() -> None:
    """With 10 steps an epoch and a length of 2 epochs, an old step weighs 1 / 20 less each step."""
    gen = lid_gen()
    average = StepAverage(gen, epochs=2.0)
    for step in range(100):
        average.follow(gen, step / 10)
    with torch.no_grad():
        gen.head.bias += 1.0
    before = average.deploy(gen).head.bias.clone()
    average.follow(gen, 10.0)
    torch.testing.assert_close(average.deploy(gen).head.bias, before + 0.05, rtol=0, atol=1e-4)


LABELS, PROPOSED = torch.tensor([0, 1]), torch.tensor([1, 2])


@pytest.mark.parametrize("config", [PAPER, AUTHORS])
def test_the_published_variants_have_no_safeguards(config: CoLafierConfig) -> None:
    gen = lid_gen()
    guards = Safeguards(config, gen, OBSERVED, 3, config.holdout)
    assert not guards.floor.surveys
    assert guards.check.share(1000) == 0
    assert guards.deploy(gen) is gen
    assert torch.equal(guards.relabel(LABELS, PROPOSED, no_streak(LABELS))[0], PROPOSED)
    assert not guards.floor.bias.any()
    guards.average.follow(gen, 0.5)
    assert not list(guards.parameters())


def test_each_safeguard_can_be_chosen_alone() -> None:
    gen = lid_gen()
    floor = Safeguards(replace(PAPER, class_prior_floor=0.5), gen, OBSERVED, 3)
    assert floor.floor.surveys
    assert floor.deploy(gen) is not gen
    patient = Safeguards(replace(PAPER, patience=2), gen, OBSERVED, 3)
    assert torch.equal(patient.relabel(LABELS, PROPOSED, no_streak(LABELS))[0], LABELS)
    averaged = Safeguards(replace(PAPER, average=1.0), gen, OBSERVED, 3)
    assert not averaged.floor.surveys
    assert averaged.deploy(gen) is not gen
    everything = Safeguards(ADAPTIVE, gen, OBSERVED, 3, holdout=True)
    assert isinstance(everything.deploy(gen), LidGen)


def test_no_label_moves_before_the_holdout_check_has_passed() -> None:
    guards = Safeguards(PAPER, lid_gen(), OBSERVED, 3, holdout=True)
    assert torch.equal(guards.relabel(LABELS, PROPOSED, no_streak(LABELS))[0], LABELS)
    guards.check.load_state_dict(guards.check.state_dict() | {"in_a_row": torch.tensor(IN_A_ROW)})
    assert torch.equal(guards.relabel(LABELS, PROPOSED, no_streak(LABELS))[0], PROPOSED)


def test_proposals_count_for_patience_only_after_the_check_has_passed() -> None:
    guards = Safeguards(replace(PAPER, patience=2), lid_gen(), OBSERVED, 3, holdout=True)
    labels, streak = guards.relabel(LABELS, PROPOSED, no_streak(LABELS))
    guards.check.load_state_dict(guards.check.state_dict() | {"in_a_row": torch.tensor(IN_A_ROW)})
    labels, streak = guards.relabel(labels, PROPOSED, streak)
    assert torch.equal(labels, LABELS)
    labels, streak = guards.relabel(labels, PROPOSED, streak)
    assert torch.equal(labels, PROPOSED)
