"""Which labels may move: what the evidence of each kind of rows allows."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from colafier.audit.config import AuditConfig
from colafier.audit.noise_model import NoiseModel, Posterior, posterior
from colafier.audit.strategies import (
    END_TO_END,
    FEATURES,
    EndToEndEvidence,
    OutOfFoldEvidence,
    TrainedRows,
    mode_of,
)
from colafier.methods.contract import Labels, Purified
from colafier.nets.normalize import Normalize

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


def trained_rows(
    labels: Labels, classifier: Tensor, believed: Tensor | None = None, **diagnostics: Any
) -> TrainedRows:
    n = len(labels)
    quality = torch.ones(n)
    purified = Purified(labels.observed if believed is None else believed, quality)
    purified.diagnostics.update(diagnostics)
    normalize = Normalize(torch.zeros(2), torch.ones(2))
    return TrainedRows(torch.zeros(n, 2), labels, normalize, classifier, purified)


@pytest.fixture
def evidence(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the evidence from given out-of-fold predictions, without training heads."""

    def make(
        observed: Tensor, classifier: Tensor, unseen: Tensor, **config: Any
    ) -> OutOfFoldEvidence:
        monkeypatch.setattr("colafier.audit.out_of_fold.cross_fit", lambda *_, **__: unseen)
        rows = trained_rows(Labels(observed), classifier)
        return OutOfFoldEvidence(rows, AuditConfig(**config), seed=0)

    return make


def test_vectors_are_features_and_images_are_trained_end_to_end() -> None:
    assert [mode_of(shape) for shape in ((8,), (1, 8, 8), (3, 32, 32))] == [
        FEATURES, END_TO_END, END_TO_END,
    ]  # fmt: skip


# out-of-fold evidence: labels that the classifier agrees with


@pytest.mark.parametrize("wrong", [0.1, 0.3])
@pytest.mark.parametrize("options", [{}, {"leniency": 0.5, "confident_fraction": 0.5}])
def test_a_case_may_be_weaker_where_the_surest_rows_have_wrong_labels(
    wrong: float, options: dict[str, float], evidence: Any
) -> None:
    truth, observed, unseen = crowd(wrong)
    found = posterior(unseen, Labels(observed))
    config = AuditConfig(**options)
    surest = sorted(range(N), key=lambda row: -float(unseen[row].max()))
    surest = surest[: round(config.confident_fraction * N)]
    contradicted = sum(int(truth[row] != observed[row]) for row in surest) / len(surest)
    may_move = evidence(observed, memorized(observed), unseen, **options).may_move(found)
    for row in range(N):
        strong = float(found.probabilities[row].max()) >= 1 - config.leniency * contradicted
        assert bool(may_move[row]) == strong, row
    assert may_move.any()


def test_no_label_of_a_clean_set_moves_against_the_classifier(evidence: Any) -> None:
    _, observed, unseen = crowd(0.0)
    found = posterior(unseen, Labels(observed))
    may_move = evidence(observed, memorized(observed), unseen).may_move(found)
    assert not may_move[found.probabilities.max(1).values < 1].any()


def test_a_label_may_move_where_the_classifier_contradicts_it_too(evidence: Any) -> None:
    truth, observed, unseen = crowd(0.02)
    found = posterior(unseen, Labels(observed))
    may_move = evidence(observed, memorized(truth), unseen).may_move(found)
    assert may_move[truth != observed].all()
    assert not may_move[(truth == observed) & (found.probabilities.max(1).values < 0.9)].any()


def test_heads_that_never_predict_a_class_cannot_take_its_labels_away(evidence: Any) -> None:
    truth, observed, unseen = crowd(0.3)
    blind = unseen.clone()
    blind[truth == 3] = unseen[truth == 3].roll(1, 1)  # class 0 instead
    found = posterior(blind, Labels(observed))
    may_move = evidence(observed, memorized(observed), blind).may_move(found)
    assert not may_move[observed == 3].any()
    assert may_move[observed != 3].any()
    bold = evidence(observed, memorized(observed), blind, familiar_ratio=0.0)
    assert bold.may_move(found)[observed == 3].any()


def test_rows_without_a_label_have_none_to_protect(evidence: Any) -> None:
    _, observed, unseen = crowd(0.3)
    found = posterior(unseen, Labels(observed))
    nothing = torch.full_like(observed, -1)
    assert evidence(nothing, memorized(observed), unseen).may_move(found).all()


# out-of-fold evidence: what the noise model starts from


def slow_pool(a: list[float], b: list[float], weight: float) -> list[float]:
    """A weighted geometric mean of two distributions."""
    raw = [max(p, 1e-6) ** (1 - weight) * max(q, 1e-6) ** weight for p, q in zip(a, b, strict=True)]
    return [value / sum(raw) for value in raw]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_classifier_counts_less_the_more_labels_it_has_memorized(
    share: float, evidence: Any
) -> None:
    """It contradicts a share of the wrong labels; the out-of-fold predictions, all of them."""
    truth, observed, unseen = crowd(0.2)
    wrong = (truth != observed).nonzero()[:, 0]
    contradicted = wrong[: round(share * len(wrong))]
    seen = observed.clone()
    seen[contradicted] = truth[contradicted]
    classifier = memorized(seen)
    made = evidence(observed, classifier, unseen, out_of_fold_weight=0.6)
    weight = 1 - 0.4 * len(contradicted) / len(wrong)
    for row in range(0, N, 7):
        expected = slow_pool(classifier[row].tolist(), unseen[row].tolist(), weight)
        assert made.probabilities[row].tolist() == pytest.approx(expected, abs=1e-4), row


def test_agreement_is_with_the_labels_of_labeled_rows(evidence: Any) -> None:
    truth, observed, unseen = crowd(0.25)
    observed[::10] = -1
    made = evidence(observed, memorized(truth), unseen)
    labeled = observed >= 0
    assert made.agreement == pytest.approx(float((truth == observed)[labeled].float().mean()))
    assert torch.equal(made.votes["out-of-fold heads"], truth)
    assert torch.equal(made.votes["classifier"], truth)


# nets trained end to end


def test_end_to_end_a_label_moves_only_to_the_class_that_the_method_believes() -> None:
    truth, observed, p = crowd(0.3)
    believed = torch.where(torch.arange(N) % 2 == 0, truth, observed)
    rows = trained_rows(Labels(observed), p, believed)
    made = EndToEndEvidence(rows, AuditConfig(), seed=0)
    model = NoiseModel(torch.eye(C), 0.0, 0.0)
    found = Posterior(p, p, torch.ones(N), model, rate=0.3, interval=(0.0, 1.0))
    wrong = truth != observed
    even = torch.arange(N) % 2 == 0
    may_move = made.may_move(found)
    assert may_move[wrong & even].all()
    assert not may_move[wrong & ~even].any()
    assert torch.equal(made.probabilities, p)


def test_end_to_end_agreement_comes_from_the_method_if_it_has_one() -> None:
    truth, observed, p = crowd(0.3)
    rows = trained_rows(Labels(observed), p, truth, agreement=0.65)
    assert EndToEndEvidence(rows, AuditConfig(), seed=0).agreement == 0.65
    without = trained_rows(Labels(observed), p, truth)
    assert EndToEndEvidence(without, AuditConfig(), seed=0).agreement is None
