"""The noise model, which turns a classifier's probabilities into P(true class | row, label).

People and heuristics do not make mistakes at random: a wrong label usually looks plausible. So in
addition to a transition matrix the noise model has a feature-dependent term, by which wrong labels
are those that the classifier finds plausible. Without it, too few labels are estimated to be wrong.
"""

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from colafier.evidence.config import EvidenceConfig
from colafier.evidence.labels import Labels
from colafier.evidence.many_classes import LikelyClasses

ROWS_FOR_TEMPERATURE = 20_000  # are enough to choose the temperature
ROUNDS = 25  # of EM for each feature weight, starting from the result of the previous weight
SMALLEST = 1e-4  # smaller probabilities are raised to this in the feature-dependent term
PSEUDO_ROWS = 1.0  # for each true class, spread over the observed classes
MANY_CLASSES = 256  # with more, each row is explained by its likeliest classes alone
PARTS = 10  # that the rows are split into, for the interval of the rate


@dataclass(frozen=True)
class NoiseModel:
    """P(observed j | true i, row) = transition[i, j] p_j^w / sum over j, w the feature weight."""

    transition: Tensor  # (c, c) from the true class (rows) to the observed one
    feature_weight: float
    likelihood: float  # mean log likelihood of the observed labels

    def chances(self, p: Tensor, observed: Tensor) -> Tensor:
        """P(observed label | true class, row) for each true class (n, c)."""
        plausible = _plausible(p, self.feature_weight)  # (n, c)
        total = plausible @ self.transition.T  # (n, c)
        of_observed = plausible.gather(1, observed[:, None])  # (n, 1)
        return self.transition[:, observed].T * of_observed / total


@dataclass(frozen=True)
class Posterior:
    """The probabilities of each row's true class, given its observed label."""

    probabilities: Tensor  # (n, c) P(true class | row, observed label)
    plausible: Tensor  # (n, c) P(true class | row), without the observed label
    quality: Tensor  # (n,) probability that the observed label is right; 1 if there is none
    model: NoiseModel
    rate: float  # estimated share of wrong labels
    interval: tuple[float, float]  # 95 % interval of the rate; covers sampling error only


def posterior(p: Tensor, labels: Labels, config: EvidenceConfig | None = None) -> Posterior:
    """Combine a classifier's probabilities with the observed labels.

    If the original labels of trusted rows are known, the noise model is learned from them as well.
    People review the worst labels first, so the other rows alone would make the labels look better
    than they are.

    Args:
        p: P(class | row) of a classifier that was not trained on the row's own label (n, c).
        labels: The labels of the rows.
        config: The candidate values for temperature and feature weight.
    """
    config = EvidenceConfig() if config is None else config
    usable, trusted, observed = labels.doubtful, labels.trusted, labels.observed
    seen = _Seen(p.double(), observed, usable)
    if labels.original is not None:
        learned = usable | trusted & (labels.original >= 0)
        seen = _Seen(p.double(), labels.original, learned, observed, trusted)
    seen = _with_best_temperature(seen, config)
    p = seen.p
    model = _likeliest(seen, seen.rows, config)
    joined = p.clone()  # rows without a label
    joined[usable] = _normalized(p[usable] * model.chances(p[usable], observed[usable]))
    joined[trusted] = one_hot(observed[trusted], p.shape[1]).double()
    quality = joined.gather(1, observed.clamp(min=0)[:, None])[:, 0]
    quality = torch.where(observed >= 0, quality, 1.0)
    wrong = 1 - quality[usable]
    rate = float(wrong.mean()) if len(wrong) else 0.0
    return Posterior(
        joined.float(),
        p.float(),
        quality.float(),
        model,
        rate,
        _interval(seen, rate, config),
    )


@dataclass(frozen=True)
class _Seen:
    """What the noise model is learned from."""

    p: Tensor  # (n, c) of the classifier
    observed: Tensor  # (n,) the labels that came with the data
    learn: Tensor  # (n,) rows to learn from, as a boolean mask
    right: Tensor | None = None  # (n,) the true classes, valid where `known`
    known: Tensor | None = None  # (n,) rows whose true class is known, as a boolean mask

    @property
    def rows(self) -> Tensor:
        """Numbers of the rows to learn from."""
        return self.learn.nonzero()[:, 0]

    def prior(self, rows: Tensor) -> Tensor:
        """P(true class | row) of some rows (m, c): the classifier's, or one-hot where known."""
        p = self.p[rows]
        if self.right is None or self.known is None:
            return p
        sure = one_hot(self.right[rows].clamp(min=0), p.shape[1]).to(p)
        return torch.where(self.known[rows][:, None], sure, p)


def _with_best_temperature(seen: _Seen, config: EvidenceConfig) -> _Seen:
    """Sharpen the probabilities with the temperature that makes the observed labels most likely.

    A classifier that was trained on noisy labels is often not confident enough. Each temperature
    has its own best feature weight: without one, flat probabilities are likelier than they should
    be, because a wrong label that a row resembles is explained by them alone.
    """
    rows = seen.rows
    rows = rows[:: max(1, len(rows) // ROWS_FOR_TEMPERATURE)]
    best, highest = config.inverse_temperatures[0], -inf
    for inverse_temperature in config.inverse_temperatures:
        some = replace(seen, p=_tempered(seen.p, inverse_temperature))
        model = _likeliest(some, rows, config)
        if not model.likelihood > highest:  # past the maximum
            break
        best, highest = inverse_temperature, model.likelihood
    return replace(seen, p=_tempered(seen.p, best))


def _likeliest(seen: _Seen, rows: Tensor, config: EvidenceConfig) -> NoiseModel:
    """The most likely noise model of these rows, after EM for each feature weight."""
    transition = _start(seen.p.shape[1], seen.p)
    models = []
    for feature_weight in config.feature_weights:
        models.append(_learned(seen, rows, feature_weight, transition))
        transition = models[-1].transition
    return max(models, key=lambda model: model.likelihood)


def _learned(seen: _Seen, rows: Tensor, feature_weight: float, transition: Tensor) -> NoiseModel:
    return _expect_and_maximize(
        seen.p[rows], seen.observed[rows], feature_weight, transition, seen.prior(rows)
    )


def fit_noise(p: Tensor, observed: Tensor, config: EvidenceConfig | None = None) -> NoiseModel:
    """The noise model that makes the observed labels most likely.

    Args:
        p: Probabilities (n, c).
        observed: Observed labels (n,).
        config: The candidate values for the feature weight.
    """
    every = torch.ones(len(p), dtype=torch.bool)
    seen = _Seen(p, observed, every)
    return _likeliest(seen, seen.rows, EvidenceConfig() if config is None else config)


def soft_labels(p: Tensor, observed: Tensor) -> Tensor:
    """P(true class | row, observed label) from a transition matrix alone, for training (n, c).

    A row whose p is 1 for one class, because its true class is known, keeps it.
    """
    model = _expect_and_maximize(p, observed, 0.0, _start(p.shape[1], p), p)
    return _normalized(p * model.chances(p, observed))


def _start(c: int, like: Tensor) -> Tensor:
    """Start from nearly all labels being right; with weak features, EM stays close to this."""
    transition = torch.full((c, c), 0.02 / max(c - 1, 1)).to(like)
    transition.fill_diagonal_(0.98)
    return transition


def _expect_and_maximize(
    p: Tensor, observed: Tensor, feature_weight: float, transition: Tensor, prior: Tensor
) -> NoiseModel:
    c = p.shape[1]
    plausible = _plausible(p, feature_weight)  # (n, c)
    if c > MANY_CLASSES:
        return _of_likely_classes(
            LikelyClasses(prior, plausible, observed), feature_weight, transition
        )
    of_observed = plausible.gather(1, observed[:, None])  # (n, 1)
    likelihood = torch.zeros(())
    for _ in range(ROUNDS):
        total = plausible @ transition.T  # (n, c)
        joint = prior * transition[:, observed].T * of_observed / total  # (n, c)
        evidence = joint.sum(1, keepdim=True)  # (n, 1)
        likelihood = evidence.log().mean()
        believed = joint / evidence  # (n, c)
        # (c, c) expected counts, true class by observed class
        counts = torch.zeros(c, c).to(p).index_add_(0, observed, believed).T
        # (c, c) the counts that the feature-dependent term alone would explain
        expected = (believed / total).T @ plausible
        transition = _normalized((counts + PSEUDO_ROWS / c) / expected.clamp(min=1e-9))
    return NoiseModel(transition, feature_weight, float(likelihood))


def _of_likely_classes(
    rows: LikelyClasses, feature_weight: float, transition: Tensor
) -> NoiseModel:
    """The same for many classes."""
    likelihood = torch.zeros(())
    for _ in range(ROUNDS):
        counts, expected, likelihood = rows.round(transition)
        # in place: the matrices have millions of numbers
        transition = counts.add_(PSEUDO_ROWS / rows.c).div_(expected.clamp_(min=1e-9))
        transition.div_(transition.sum(1, keepdim=True))
    return NoiseModel(transition, feature_weight, float(likelihood))


def _interval(seen: _Seen, rate: float, config: EvidenceConfig) -> tuple[float, float]:
    """The interval of the rate, from ten parts of the rows, each with its own noise model."""
    rates = []
    for part in range(PARTS):
        some = seen.rows[part::PARTS]
        if len(some) < 2 * seen.p.shape[1]:
            return 0.0, 1.0  # too few rows to know
        model = _likeliest(seen, some, config)
        if seen.known is not None:
            some = some[~seen.known[some]]
            if not len(some):
                return 0.0, 1.0
        p, observed = seen.p[some], seen.observed[some]
        joined = _normalized(p * model.chances(p, observed))
        rates.append(1 - joined.gather(1, observed[:, None]).mean())
    spread = float(torch.stack(rates).std()) / PARTS**0.5
    return max(rate - 2.26 * spread, 0.0), min(rate + 2.26 * spread, 1.0)  # t with 9 degrees


def _tempered(p: Tensor, inverse_temperature: float) -> Tensor:
    return _normalized((p + 1e-9) ** inverse_temperature)


def _plausible(p: Tensor, feature_weight: float) -> Tensor:
    return p.clamp(min=SMALLEST) ** feature_weight


def _normalized(rows: Tensor) -> Tensor:
    return rows / rows.sum(1, keepdim=True)
