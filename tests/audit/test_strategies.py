"""Which labels may move: what the evidence of each kind of rows allows."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from colafier.audit.config import AuditConfig
from colafier.audit.pipeline import AuditResult, Trained, audit
from colafier.audit.strategies import END_TO_END, FEATURES, MIN_STEPS, STRATEGIES, mode_of
from colafier.evidence.labels import Labels
from colafier.methods.contract import Purified
from colafier.nets.normalize import Normalize
from colafier.training.config import TrainConfig
from colafier.training.records import History

N, C = 400, 4


def spread(truth: Tensor, sureness: Tensor) -> Tensor:
    """Probabilities (n, c) with so much on the true class and the rest spread evenly."""
    others = ((1 - sureness) / (C - 1))[:, None].expand(-1, C)
    return torch.where(one_hot(truth, C).bool(), sureness[:, None], others)


def crowd(wrong: float) -> tuple[Tensor, Tensor, Tensor]:
    """Truth, observed labels with a share of wrong ones, and out-of-fold predictions."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(N) % C
    flipped = torch.rand(N, generator=generator) < wrong
    sureness = 0.4 + 0.59 * torch.rand(N, generator=generator)
    return truth, torch.where(flipped, (truth + 1) % C, truth), spread(truth, sureness)


def memorized(observed: Tensor) -> Tensor:
    """A classifier that agrees with every label."""
    return 0.97 * one_hot(observed.clamp(min=0), C).float() + 0.01


def judged(
    x: Tensor, observed: Tensor, classifier: Tensor, purified: Purified, **config: Any
) -> AuditResult:
    trained = Trained(
        classifier=nn.Identity(),
        normalize=Normalize(torch.zeros(2), torch.ones(2)),
        probabilities=classifier,
        purified=purified,
        history=History([]),
        resolved={},
    )
    # no rule of the policy stops a label that may move
    free = AuditConfig(max_class_shrinkage=1.0, **config)
    return audit(trained, x, Labels(observed), TrainConfig(), free)


@pytest.fixture
def of_features(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The audit of features with given out-of-fold predictions, without training heads."""

    def make(observed: Tensor, classifier: Tensor, unseen: Tensor, **config: Any) -> AuditResult:
        monkeypatch.setattr("colafier.evidence.out_of_fold.cross_fit", lambda *_, **__: unseen)
        purified = Purified(classifier.argmax(1), torch.ones(N))
        return judged(torch.zeros(N, 2), observed, classifier, purified, **config)

    return make


def of_images(
    observed: Tensor, classifier: Tensor, believed: Tensor, **diagnostics: Any
) -> AuditResult:
    purified = Purified(believed, torch.ones(N), diagnostics=diagnostics)
    x = torch.zeros(N, 1, 2, 2, dtype=torch.uint8)
    return judged(x, observed, classifier, purified)


def moved(result: AuditResult, observed: Tensor) -> Tensor:
    """Rows that were relabeled; the others with a likelier class go to a person."""
    wanted = (result.decided.suggested != observed) & (observed >= 0)
    moved = torch.tensor((result.decided.action == "relabel").tolist())
    assert not moved[~wanted].any()
    assert set(result.decided.action[(wanted & ~moved).numpy()].tolist()) <= {"review"}
    return moved


def test_vectors_are_features_and_images_are_trained_end_to_end() -> None:
    assert [mode_of(shape) for shape in ((8,), (1, 8, 8), (3, 32, 32))] == [
        FEATURES, END_TO_END, END_TO_END,
    ]  # fmt: skip


# features: labels that the classifier agrees with


@pytest.mark.parametrize("n", [1, 2, 15, 16, 100, 1_000])
def test_small_data_sets_get_epochs_for_enough_steps_and_not_many_more(n: int) -> None:
    """Two rows once got 6,400 epochs of one step each."""
    found = STRATEGIES[FEATURES].train_defaults((3,), n)
    steps = found["epochs"] * -(-n // found["batch_size"])
    assert MIN_STEPS <= steps <= 1.2 * MIN_STEPS


@pytest.mark.parametrize("wrong", [0.1, 0.3])
@pytest.mark.parametrize("options", [{}, {"leniency": 0.5, "confident_fraction": 0.5}])
def test_a_case_may_be_weaker_where_the_surest_rows_have_wrong_labels(
    wrong: float, options: dict[str, float], of_features: Any
) -> None:
    truth, observed, unseen = crowd(wrong)
    result = of_features(observed, memorized(observed), unseen, **options)
    config = AuditConfig(**options)
    surest = sorted(range(N), key=lambda row: -float(unseen[row].max()))
    surest = surest[: round(config.confident_fraction * N)]
    contradicted = sum(int(truth[row] != observed[row]) for row in surest) / len(surest)
    found = moved(result, observed)
    for row in range(N):
        p = result.found.probabilities[row]
        strong = float(p.max()) >= 1 - config.leniency * contradicted
        assert bool(found[row]) == (strong and int(p.argmax()) != int(observed[row])), row
    assert found.any()


def test_no_label_of_a_clean_set_moves_against_the_classifier(of_features: Any) -> None:
    """The out-of-fold predictions are wrong about some rows, but not where they are confident."""
    truth, observed, unseen = crowd(0.0)
    mistaken = unseen.max(1).values < 0.5
    unseen[mistaken] = unseen[mistaken].roll(1, 1)
    result = of_features(observed, memorized(observed), unseen)
    assert (result.decided.suggested != truth).any()
    assert not moved(result, observed).any()


def test_a_label_moves_where_the_classifier_contradicts_it_too(of_features: Any) -> None:
    truth, observed, unseen = crowd(0.02)
    found = moved(of_features(observed, memorized(truth), unseen), observed)
    assert torch.equal(found, truth != observed)


def test_heads_that_never_predict_a_class_cannot_take_its_labels_away(of_features: Any) -> None:
    truth, observed, unseen = crowd(0.3)
    blind = unseen.clone()
    blind[truth == 3] = unseen[truth == 3].roll(1, 1)  # class 0 instead
    found = moved(of_features(observed, memorized(observed), blind), observed)
    assert not found[observed == 3].any()
    assert found[observed != 3].any()
    bold = of_features(observed, memorized(observed), blind, familiar_ratio=0.0)
    assert moved(bold, observed)[observed == 3].any()


@pytest.mark.parametrize("rows", [4, 5])
def test_no_label_leaves_a_class_of_a_handful_of_rows(rows: int, of_features: Any) -> None:
    truth, observed, _ = crowd(0.0)
    rare = (observed == 0).nonzero()[:, 0][:rows]
    observed[observed == 0] = 1
    observed[rare] = 0
    truth[rare] = 2
    found = moved(of_features(observed, memorized(truth), memorized(truth)), observed)
    assert found[rare].any() == (rows == 5)


# features: what the noise model starts from


def slow_pool(a: list[float], b: list[float], weight: float) -> list[float]:
    """A weighted geometric mean of two distributions."""
    raw = [max(p, 1e-6) ** (1 - weight) * max(q, 1e-6) ** weight for p, q in zip(a, b, strict=True)]
    return [value / sum(raw) for value in raw]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_classifier_counts_less_the_more_labels_it_has_memorized(
    share: float, of_features: Any
) -> None:
    """It contradicts a share of the wrong labels; the out-of-fold predictions, all of them."""
    truth, observed, unseen = crowd(0.2)
    wrong = (truth != observed).nonzero()[:, 0]
    contradicted = wrong[: round(share * len(wrong))]
    seen = observed.clone()
    seen[contradicted] = truth[contradicted]
    classifier = memorized(seen)
    options = {"out_of_fold_weight": 0.6, "inverse_temperatures": (1.0,)}
    pooled = of_features(observed, classifier, unseen, **options).found.plausible
    weight = 1 - 0.4 * len(contradicted) / len(wrong)
    for row in range(0, N, 7):
        expected = slow_pool(classifier[row].tolist(), unseen[row].tolist(), weight)
        assert pooled[row].tolist() == pytest.approx(expected, abs=1e-4), row


def test_agreement_is_with_the_labels_of_labeled_rows(of_features: Any) -> None:
    truth, observed, unseen = crowd(0.25)
    observed[::10] = -1
    result = of_features(observed, memorized(truth), unseen)
    labeled = observed >= 0
    assert result.agreement == pytest.approx(float((truth == observed)[labeled].float().mean()))
    assert torch.equal(result.votes["out-of-fold heads"], truth)
    assert torch.equal(result.votes["classifier"], truth)


# nets trained end to end


def test_end_to_end_a_label_moves_only_to_the_class_that_the_method_believes() -> None:
    truth, observed, p = crowd(0.3)
    even = torch.arange(N) % 2 == 0
    result = of_images(observed, p, torch.where(even, truth, observed))
    found, wanted = moved(result, observed), result.decided.suggested != observed
    assert torch.equal(found, wanted & even & (result.decided.suggested == truth))
    assert found.any()
    assert (wanted & ~even).any()


def test_end_to_end_agreement_comes_from_the_method_if_it_has_one() -> None:
    truth, observed, p = crowd(0.3)
    assert of_images(observed, p, truth, agreement=0.65).agreement == 0.65
    assert of_images(observed, p, truth).agreement is None
