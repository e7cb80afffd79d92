"""From rows to decisions: trained once, predicted once, and no label moves without evidence."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from colafier import methods
from colafier.audit import pipeline
from colafier.audit.pipeline import audit, configure, train_and_audit, train_method
from colafier.evidence.config import EvidenceConfig
from colafier.evidence.labels import Labels
from colafier.evidence.out_of_fold import cross_fit
from colafier.nets import inference
from colafier.training.records import History
from colafier.training.training_set import TrainingSet

SHORT = {"head_epochs": 3, "head_warmup": 1, "head_min_steps": 1}


def clouds(n: int, wrong: float = 0.0, c: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors (n, 6) around one center for each class, observed labels and truth (n,)."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(n) % c
    x = 4 * torch.eye(c, 6)[truth] + torch.randn(n, 6, generator=generator)
    flip = torch.rand(n, generator=generator) < wrong
    return x, torch.where(flip, (truth + 1) % c, truth), truth


def blobs(n: int) -> tuple[Tensor, Tensor]:
    """Images (n, 1, 8, 8) as bytes, dark or bright, and their classes (n,)."""
    truth = torch.arange(n) % 2
    noise = torch.randint(0, 60, (n, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    return (noise + 150 * truth[:, None, None, None]).byte(), truth


def test_wrong_labels_move_and_right_ones_stay() -> None:
    x, observed, truth = clouds(150, wrong=0.15)
    observed[::25] = -1
    train, config = configure((6,), 150, {"method": "ce", "epochs": 10}, {"head_min_steps": 100})
    result = train_and_audit(x, Labels(observed), 3, train, config)
    labeled = observed >= 0
    assert (result.decided.labels == truth)[labeled].float().mean() > 0.97
    assert (result.decided.labels[~labeled] == -1).all()
    assert (result.predicted == truth).float().mean() > 0.97
    assert result.found.rate == pytest.approx(0.15, abs=0.06)
    assert result.agreement == pytest.approx(0.85, abs=0.08)
    assert len(result.history.epochs) == 10
    assert set(result.votes) == {"classifier", "out-of-fold heads"}


def test_trusted_rows_never_move() -> None:
    x, observed, truth = clouds(90)
    trusted = torch.arange(90) < 6
    observed[:6] = (truth[:6] + 1) % 3  # a person said so
    train, config = configure((6,), 90, {"method": "ce", "epochs": 10}, {"head_min_steps": 60})
    result = train_and_audit(x, Labels(observed, truth, trusted), 3, train, config)
    assert torch.equal(result.decided.labels[:6], observed[:6])
    assert set(result.decided.action[:6]) == {"keep"}
    assert (result.found.quality[:6] == 1).all()


def test_duplicates_with_different_labels_are_for_a_person() -> None:
    x, observed, _ = clouds(60)
    x[1], observed[1] = x[0], (observed[0] + 1) % 3
    groups = torch.full((60,), -1)
    groups[:2] = 0
    train, config = configure((6,), 60, {"method": "ce", "epochs": 3}, SHORT)
    result = train_and_audit(x, Labels(observed), 3, train, config, groups=groups)
    assert result.decided.action[:2].tolist() == ["review", "review"]
    assert result.decided.reason[:2].tolist() == ["duplicate", "duplicate"]


def test_the_audit_leaves_the_classifier_as_it_is() -> None:
    x, observed, _ = clouds(60, wrong=0.2)
    train, config = configure((6,), 60, {"method": "ce", "epochs": 2}, SHORT)
    trained = train_method(x, Labels(observed), 3, train)
    before = copy.deepcopy(trained.classifier.state_dict())
    result = audit(trained, x, Labels(observed), train, config)
    assert result.classifier is trained.classifier
    for name, value in trained.classifier.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(result.predicted, trained.probabilities.argmax(1))


@pytest.mark.parametrize("method", ["colafier", "ce"])
def test_out_of_fold_predictions_are_made_once(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the training if the method asks for them, or else by the audit; with the same figures."""
    made: list[EvidenceConfig | None] = []

    def counted(*args: Any, **kwargs: Any) -> Tensor:
        made.append(kwargs.get("config"))
        return cross_fit(*args, **kwargs)

    for place in ("evidence.out_of_fold", "training.training_set"):
        monkeypatch.setattr(f"colafier.{place}.cross_fit", counted)
    x, observed, _ = clouds(60, wrong=0.2)
    labels = Labels(observed)
    own = {"method": method, "epochs": 5, "hyper": {"warmup": 1} if method == "colafier" else {}}
    train, config = configure((6,), 60, own, SHORT)
    result = train_and_audit(x, labels, 3, train, config)
    assert made == [config]
    trained = train_method(x, labels, 3, train, evidence=config)
    assert (trained.out_of_fold is None) == (method == "ce")
    again = audit(replace(trained, out_of_fold=None), x, labels, train, config)
    torch.testing.assert_close(again.found.probabilities, result.found.probabilities)
    assert torch.equal(again.decided.labels, result.decided.labels)
    assert again.agreement == result.agreement


def test_out_of_fold_predictions_of_before_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("they are there")

    x, observed, truth = clouds(60, wrong=0.2)
    train, config = configure((6,), 60, {"method": "ce", "epochs": 1}, SHORT)
    monkeypatch.setattr("colafier.evidence.out_of_fold.cross_fit", refuse)
    unseen = 0.94 * one_hot(truth, 3).float() + 0.02
    result = train_and_audit(x, Labels(observed), 3, train, config, out_of_fold=unseen)
    assert torch.equal(result.votes["out-of-fold heads"], truth)


def test_frozen_parts_of_a_net_stay_as_they_are() -> None:
    frozen = nn.Linear(6, 5).requires_grad_(False)
    x, observed, _ = clouds(60)

    def net() -> nn.Module:
        return nn.Sequential(copy.deepcopy(frozen), nn.Tanh(), nn.Linear(5, 4))

    own = {"net": net, "epochs": 5}  # the last two on soft labels
    train, config = configure((6,), 60, own, SHORT)
    result = train_and_audit(x, Labels(observed), 3, train, config)
    state = result.classifier.state_dict()
    kept = [value for value in state.values() if value.shape == frozen.weight.shape]
    assert torch.equal(kept[0], frozen.weight)


def test_images_are_audited_without_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("heads are for features")

    monkeypatch.setattr("colafier.evidence.out_of_fold.cross_fit", refuse)
    x, truth = blobs(60)
    observed = truth.clone()
    observed[:3] = 1 - observed[:3]
    train, config = configure((1, 8, 8), 60, {"method": "ce", "epochs": 6, "batch_size": 16})
    result = train_and_audit(x, Labels(observed), 2, train, config)
    moved = result.decided.labels != observed
    assert moved.any()
    assert (result.decided.labels == truth)[moved].all()
    assert torch.equal(result.method_labels[moved], result.decided.labels[moved])


@pytest.mark.parametrize("name", methods.available())
def test_a_finished_method_is_predicted_over_all_rows_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, observed, _ = clouds(40)
    finished = False
    calls: list[Any] = []
    fit, predict = pipeline.fit, TrainingSet.predict

    def fit_first(*args: Any, **kwargs: Any) -> History:
        nonlocal finished
        history = fit(*args, **kwargs)
        finished = True
        return history

    def counted(self: TrainingSet, module: nn.Module, rows: Tensor | None = None) -> Tensor:
        if finished:
            calls.append((module, rows))
        return predict(self, module, rows)

    monkeypatch.setattr(pipeline, "fit", fit_first)
    monkeypatch.setattr(TrainingSet, "predict", counted)
    train, _ = configure((6,), 40, {"method": name, "epochs": 2, "net": "linear"})
    trained = train_method(x, Labels(observed), 3, train)
    ((module, rows),) = calls
    assert rows is None
    p = inference.predict(trained.classifier, x, trained.normalize)
    assert torch.equal(inference.predict(module, x, trained.normalize), p)
    assert torch.equal(trained.probabilities, p)
    assert len(trained.purified.labels) == 40


def test_the_audit_predicts_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    predict = inference.predict

    def counted(module: nn.Module, x: Tensor, *rest: Any) -> Tensor:
        calls.append(len(x))
        return predict(module, x, *rest)

    monkeypatch.setattr(inference, "predict", counted)
    x, observed, _ = clouds(40)
    images, classes = blobs(40)
    for rows, labels, c in ((x, observed, 3), (images, classes, 2)):
        calls.clear()
        own = {"method": "ce", "epochs": 1, "net": "linear"}
        train, config = configure(tuple(rows.shape[1:]), 40, own, SHORT)
        train_and_audit(rows, Labels(labels), c, train, config)
        assert calls == [40]
