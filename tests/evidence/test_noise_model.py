"""What is believed of labels: against a slow loop, and where the answer is known."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from colafier.evidence import noise_model
from colafier.evidence.config import EvidenceConfig
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import (
    PSEUDO_ROWS,
    ROUNDS,
    SMALLEST,
    fit_noise,
    posterior,
    soft_labels,
)

# the probabilities of these tests are calibrated; those of nets are too confident or too unsure
CALIBRATED = EvidenceConfig(inverse_temperatures=(1.0,))
NOISE = torch.tensor([[0.8, 0.15, 0.05], [0.0, 0.7, 0.3], [0.1, 0.1, 0.8]])


def calibrated(n: int, c: int = 3, sharp: float = 4.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Probabilities (n, c), and true classes drawn from them (n,)."""
    generator = torch.Generator().manual_seed(seed)
    p = (sharp * torch.randn(n, c, generator=generator)).softmax(1).double()
    return p, torch.multinomial(p, 1, generator=generator)[:, 0]


def noisy(truth: Tensor, transition: Tensor, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(transition[truth], 1, generator=generator)[:, 0]


def with_weights(*feature_weights: float) -> EvidenceConfig:
    return replace(CALIBRATED, feature_weights=feature_weights)


def slow_em(p: list[list[float]], observed: list[int], feature_weight: float) -> list:
    """EM for P(observed j | true i, row) = T[i][j] p[j]^w / sum over j, one row at a time."""
    c = len(p[0])
    t = [[0.98 if i == j else 0.02 / (c - 1) for j in range(c)] for i in range(c)]
    for _ in range(ROUNDS):
        counts = [[PSEUDO_ROWS / c] * c for _ in range(c)]
        expected = [[0.0] * c for _ in range(c)]
        for row, j in zip(p, observed, strict=True):
            liked = [max(value, SMALLEST) ** feature_weight for value in row]
            total = [sum(t[i][k] * liked[k] for k in range(c)) for i in range(c)]
            joint = [row[i] * t[i][j] * liked[j] / total[i] for i in range(c)]
            for i in range(c):
                believed = joint[i] / sum(joint)
                counts[i][j] += believed
                for k in range(c):
                    expected[i][k] += believed / total[i] * liked[k]
        raw = [[counts[i][k] / max(expected[i][k], 1e-9) for k in range(c)] for i in range(c)]
        t = [[value / sum(line) for value in line] for line in raw]
    return t


@pytest.mark.parametrize("feature_weight", [0.0, 0.15])
def test_em_is_the_slow_loop(feature_weight: float) -> None:
    p, truth = calibrated(40, sharp=2.0)
    observed = noisy(truth, NOISE)
    slow = slow_em(p.tolist(), observed.tolist(), feature_weight)
    found = fit_noise(p, observed, with_weights(feature_weight))
    assert found.feature_weight == feature_weight
    assert torch.allclose(found.transition, torch.tensor(slow, dtype=torch.float64), atol=1e-9)


def test_of_all_feature_weights_the_likeliest_is_taken() -> None:
    p, truth = calibrated(300, sharp=2.0)
    observed = noisy(truth, NOISE)
    best = fit_noise(p, observed)
    for feature_weight in EvidenceConfig().feature_weights:
        alone = fit_noise(p, observed, with_weights(feature_weight))
        # each starts from the one before, so that one alone may end a little elsewhere
        assert best.likelihood >= alone.likelihood - 1e-3


def test_known_transition_is_recovered() -> None:
    p, truth = calibrated(6000)
    found = fit_noise(p, noisy(truth, NOISE), with_weights(0.0))
    assert (found.transition - NOISE).abs().max() < 0.04


@pytest.mark.parametrize("sharp", [3.0, 8.0])
def test_rate_and_probabilities_are_right_on_average(sharp: float) -> None:
    p, truth = calibrated(6000, sharp=sharp)
    observed = noisy(truth, NOISE)
    found = posterior(p, Labels(observed), CALIBRATED)
    wrong = float((observed != truth).double().mean())
    assert found.rate == pytest.approx(wrong, rel=0.15)
    low, high = found.interval
    assert 0 <= low <= found.rate <= high <= 1
    assert high - low < 0.1
    suspicious = found.quality < 0.5
    assert float((observed != truth)[suspicious].double().mean()) == pytest.approx(
        float(1 - found.quality[suspicious].mean()), abs=0.05
    )
    suggested = found.probabilities.argmax(1)
    assert (suggested == truth).double().mean() > (observed == truth).double().mean() + 0.1


def test_clean_labels_have_a_rate_near_zero() -> None:
    p, truth = calibrated(3000)
    found = posterior(p, Labels(truth), CALIBRATED)
    assert found.rate < 0.02
    assert (found.quality > 0.5).double().mean() > 0.98


def test_useless_probabilities_do_not_blame_the_labels() -> None:
    _, truth = calibrated(2000)
    found = posterior(torch.full((2000, 3), 1 / 3), Labels(truth), CALIBRATED)
    assert (found.probabilities.argmax(1) == truth).all()


def test_quality_is_the_probability_of_the_observed_label() -> None:
    p, truth = calibrated(200)
    observed = noisy(truth, NOISE)
    found = posterior(p, Labels(observed), CALIBRATED)
    assert torch.equal(found.quality, found.probabilities[torch.arange(200), observed])
    assert found.probabilities.sum(1).tolist() == pytest.approx([1.0] * 200, abs=1e-5)
    assert found.rate == pytest.approx(float(1 - found.quality.mean()), abs=1e-5)


def test_trusted_rows_are_believed_and_teach_nothing() -> None:
    p, truth = calibrated(300)
    observed = noisy(truth, NOISE)
    trusted = torch.arange(300) < 40
    observed[:40] = (truth[:40] + 1) % 3  # as if a person had said so
    found = posterior(p, Labels(observed, trusted=trusted), CALIBRATED)
    assert (found.quality[:40] == 1).all()
    assert (found.probabilities[:40].argmax(1) == observed[:40]).all()
    alone = posterior(p[40:], Labels(observed[40:]), CALIBRATED)
    assert found.rate == pytest.approx(alone.rate)
    assert torch.allclose(found.quality[40:], alone.quality)


def test_rows_without_a_label_keep_the_probabilities_of_the_classifier() -> None:
    p, truth = calibrated(300)
    observed = noisy(truth, NOISE)
    observed[::5] = -1
    found = posterior(p, Labels(observed), CALIBRATED)
    assert torch.allclose(found.probabilities[::5].double(), p[::5], atol=1e-6)
    assert (found.quality[::5] == 1).all()
    labeled = observed >= 0
    assert found.rate == pytest.approx(
        posterior(p[labeled], Labels(observed[labeled]), CALIBRATED).rate
    )


def test_probabilities_are_tempered() -> None:
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    config = EvidenceConfig(inverse_temperatures=(0.5,))
    found = posterior(p, Labels(torch.tensor([0, 1, -1])), config)
    expected = [[0.75, 0.25], [1 / 3, 2 / 3], [0.5, 0.5]]  # roots, which 9 to 1 makes 3 to 1
    assert torch.allclose(found.plausible, torch.tensor(expected), atol=1e-6)


def test_of_all_temperatures_and_feature_weights_the_likeliest_pair_is_taken() -> None:
    """A classifier that is too unsure and has memorized some labels, with 70 % symmetric noise."""
    p, truth = calibrated(2000, c=10, sharp=2.5)
    uniform = torch.full((10, 10), 0.7 / 9).fill_diagonal_(0.3)
    observed = noisy(truth, uniform)
    memorized = torch.nn.functional.one_hot(observed, 10)
    p = (0.6 * p.log() + 0.5 * memorized).softmax(1)
    found = posterior(p, Labels(observed)).model
    config = EvidenceConfig()
    for inverse_temperature in config.inverse_temperatures:
        for weight in config.feature_weights:
            single = EvidenceConfig(
                inverse_temperatures=(inverse_temperature,), feature_weights=(weight,)
            )
            other = posterior(p, Labels(observed), single).model
            assert found.likelihood >= other.likelihood - 1e-4, (inverse_temperature, weight)


def test_nothing_to_doubt() -> None:
    p, truth = calibrated(30)
    found = posterior(p, Labels(truth, trusted=torch.ones(30, dtype=torch.bool)), CALIBRATED)
    assert (found.rate, found.interval) == (0.0, (0.0, 1.0))
    assert (found.quality == 1).all()


def test_two_classes() -> None:
    p, truth = calibrated(3000, c=2)
    observed = noisy(truth, torch.tensor([[0.8, 0.2], [0.3, 0.7]]))
    found = posterior(p, Labels(observed), CALIBRATED)
    assert found.rate == pytest.approx(float((observed != truth).double().mean()), rel=0.2)


def test_class_with_one_row_and_certain_probabilities() -> None:
    observed = torch.arange(60) % 3
    observed[observed == 2] = 0
    observed[7] = 2
    p = torch.nn.functional.one_hot(observed, 3).double()  # zeros and ones
    p[8] = torch.tensor([0.0, 0.0, 1.0])
    found = posterior(p, Labels(observed), CALIBRATED)
    assert found.probabilities.isfinite().all()
    assert found.quality[7] > 0.5
    assert 0 <= found.rate < 0.1
    assert posterior(p[:12], Labels(observed[:12]), CALIBRATED).interval == (
        0.0,
        1.0,
    )  # too few rows to know


def test_soft_labels_lie_between_label_and_classifier() -> None:
    p, truth = calibrated(500)
    observed = noisy(truth, NOISE)
    soft = soft_labels(p, observed)
    assert soft.sum(1).tolist() == pytest.approx([1.0] * 500)
    rows = torch.arange(500)
    assert (soft[rows, observed] >= p[rows, observed] - 0.05).double().mean() > 0.95


def reviewed(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The most doubtful quarter of rows is decided: p, original labels, truth, trusted rows."""
    p, truth = calibrated(n)
    original = noisy(truth, NOISE)
    worst = posterior(p, Labels(original), CALIBRATED).quality.argsort()[: n // 4]
    trusted = torch.zeros(n, dtype=torch.bool)
    trusted[worst] = True
    return p, original, truth, trusted


def test_decided_rows_teach_the_noise_model() -> None:
    """Without them it is learned from the better labels alone."""
    config = with_weights(0.0)
    p, original, truth, trusted = reviewed(6000)
    observed = torch.where(trusted, truth, original)
    alone, taught = (
        posterior(p, Labels(observed, trusted=trusted), config),
        posterior(p, Labels(observed, trusted=trusted, original=original), config),
    )
    assert (taught.model.transition - NOISE).abs().max() < 0.04
    assert (alone.model.transition - NOISE).abs().max() > 0.08
    wrong = float((original != truth)[~trusted].double().mean())
    assert taught.rate == pytest.approx(wrong, abs=0.01)
    assert alone.rate < wrong - 0.02
    low, high = taught.interval
    assert low <= taught.rate <= high
    assert (taught.probabilities.argmax(1) == truth)[trusted].all()
    assert (taught.quality[trusted] == 1).all()


def test_original_labels_change_nothing_if_nobody_decided() -> None:
    p, truth = calibrated(300)
    observed = noisy(truth, NOISE)
    plain, same = (
        posterior(p, Labels(observed), CALIBRATED),
        posterior(p, Labels(observed, original=observed), CALIBRATED),
    )
    assert torch.equal(plain.probabilities, same.probabilities)
    assert plain.interval == same.interval


def test_all_rows_decided() -> None:
    p, truth = calibrated(300)
    all_of_them = torch.ones(300, dtype=torch.bool)
    found = posterior(
        p, Labels(truth, trusted=all_of_them, original=noisy(truth, NOISE)), CALIBRATED
    )
    assert (found.rate, found.interval) == (0.0, (0.0, 1.0))
    assert (found.probabilities.argmax(1) == truth).all()


def test_many_classes_are_judged_like_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each row only the likeliest classes count, which changes hardly anything."""
    n, c = 400, 40
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(c, (n,), generator=generator)
    observed = truth.clone()
    observed[::8] = torch.randint(c, (n // 8,), generator=generator)
    scores = 2 * torch.randn(n, c, generator=generator, dtype=torch.double)
    scores[torch.arange(n), truth] += 8
    exact = posterior(scores.softmax(1), Labels(observed))
    monkeypatch.setattr(noise_model, "MANY_CLASSES", 20)
    found = posterior(scores.softmax(1), Labels(observed))
    assert found.rate == pytest.approx(exact.rate, abs=0.005)
    assert (found.quality - exact.quality).abs().max() < 0.1
    assert (found.quality - exact.quality).abs().mean() < 0.005
