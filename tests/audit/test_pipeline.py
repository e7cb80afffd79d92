"""How much a label must be doubted to move, and what the classifier learns at the end."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from colafier.audit import pipeline
from colafier.audit.fine_tuning import fine_tune
from colafier.audit.noise_model import posterior
from colafier.audit.policy import decide
from colafier.methods.contract import Labels
from colafier.nets import inference

N, C = 400, 4


def votes(truth: Tensor, sureness: Tensor) -> Tensor:
    """Probabilities (n, c) with so much on the true class and the rest spread evenly."""
    spread = ((1 - sureness) / (C - 1))[:, None].expand(-1, C)
    return torch.where(one_hot(truth, C).bool(), sureness[:, None], spread)


def crowd(wrong: float) -> tuple[Tensor, Tensor, Tensor]:
    """Truth, observed labels with a share of wrong ones, and what the witnesses say."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(N) % C
    flipped = torch.rand(N, generator=generator) < wrong
    sureness = 0.4 + 0.59 * torch.rand(N, generator=generator)
    return truth, torch.where(flipped, (truth + 1) % C, truth), votes(truth, sureness)


def by_heart(observed: Tensor) -> Tensor:
    """A classifier that likes every label."""
    return one_hot(observed.clamp(min=0), C).float()


def test_a_case_may_be_weaker_where_the_surest_rows_have_wrong_labels() -> None:
    for wrong in (0.0, 0.1, 0.3):
        truth, observed, said = crowd(wrong)
        found = posterior(said, Labels(observed))
        sureness = found.probabilities.max(1).values
        surest = said.max(1).values.argsort(descending=True)[: round(pipeline.SUREST * N)]
        doubted = float((truth != observed)[surest].double().mean())
        may_move = pipeline._may_move(found, by_heart(observed), said, observed)
        assert torch.equal(may_move, sureness >= 1 - pipeline.LENIENCE * doubted)
        if wrong == 0:  # nothing is so sure
            assert not may_move[sureness < 1].any()


def test_a_label_may_move_where_the_classifier_objects_too() -> None:
    truth, observed, said = crowd(0.02)
    found = posterior(said, Labels(observed))
    may_move = pipeline._may_move(found, by_heart(truth), said, observed)
    assert may_move[truth != observed].all()
    assert not may_move[(truth == observed) & (found.probabilities.max(1).values < 0.9)].any()


def test_witnesses_that_never_see_a_class_cannot_take_its_labels_away() -> None:
    truth, observed, said = crowd(0.3)
    blind = said.clone()
    blind[truth == 3] = said[truth == 3].roll(1, 1)  # they see class 0 instead
    found = posterior(blind, Labels(observed))
    may_move = pipeline._may_move(found, by_heart(observed), blind, observed)
    assert not may_move[observed == 3].any()
    assert may_move[observed != 3].any()


def test_rows_without_a_label_say_nothing_about_the_labels() -> None:
    _, observed, said = crowd(0.3)
    found = posterior(said, Labels(observed))
    below = found.probabilities.max(1).values < 1
    nothing = torch.full_like(observed, -1)
    p = by_heart(observed)
    assert pipeline._may_move(found, p, said, observed)[below].any()
    unlabelled = pipeline._may_move(found, p, said, nothing)
    assert unlabelled.all()  # no label, none to protect


def test_a_label_that_is_kept_is_learned_as_right() -> None:
    _, observed, said = crowd(0.3)
    observed[0] = -1
    found = posterior(said, Labels(observed))
    none = torch.zeros(N, dtype=torch.bool)
    decided = decide(found, found.plausible, observed, may_move=none)
    targets = pipeline._soft_targets(found, decided, observed)
    doubted = (decided.suggested != observed) & (observed >= 0)
    assert doubted.any()
    assert torch.equal(targets[doubted], one_hot(observed[doubted], C).float())
    assert torch.equal(targets[~doubted], found.probabilities[~doubted])
    moved = pipeline._soft_targets(found, decide(found, found.plausible, observed), observed)
    assert torch.equal(moved.argmax(1), found.probabilities.argmax(1))


def test_relearning_follows_what_is_believed_and_repeats_itself() -> None:
    generator = torch.Generator().manual_seed(1)
    truth = torch.arange(N) % C
    x = 3 * one_hot(truth, 8).float() + torch.randn(N, 8, generator=generator)
    results = []
    for _ in range(2):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, C)).eval()
        before = inference.predict(net, x, lambda v: v)
        state = torch.get_rng_state()
        fine_tune(net, x, one_hot(truth, C).float(), lambda v: v, epochs=20, batch_size=50, lr=0.01)
        assert torch.equal(state, torch.get_rng_state())  # nobody else's numbers are used up
        results.append(inference.predict(net, x, lambda v: v))
    assert (before.argmax(1) == truth).float().mean() < 0.6
    assert (results[0].argmax(1) == truth).float().mean() > 0.9
    assert torch.equal(*results)
    assert not net.training
    assert not any(p.requires_grad for p in net.parameters())


def test_relearning_takes_nets_that_need_more_than_one_row() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, C))
    x, believed = torch.rand(17, 8), torch.full((17, C), 1 / C)
    fine_tune(net, x, believed, lambda v: v, epochs=1, batch_size=16)
    assert all(p.isfinite().all() for p in net.parameters())


def test_frozen_parts_of_a_net_stay_as_they_are() -> None:
    frozen = nn.Linear(6, 5).requires_grad_(False)
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
    own = pipeline.recipe(
        (6,),
        60,
        net=lambda: nn.Sequential(copy.deepcopy(frozen), nn.Tanh()),
        epochs=2,
        fine_tune_epochs=2,
    )
    judged = pipeline.judge(x, torch.arange(60) % 2, 2, own)
    state = judged.classifier.state_dict()
    kept = [value for value in state.values() if value.shape == frozen.weight.shape]
    assert torch.equal(kept[0], frozen.weight)


def test_only_colafier_on_vectors_learns_again() -> None:
    assert pipeline.recipe((8,), 500).fine_tune_epochs == pipeline.recipe((8,), 500).epochs
    assert pipeline.recipe((8,), 500, method="ce").fine_tune_epochs == 0
    assert pipeline.recipe((3, 32, 32), 500).fine_tune_epochs == 0
