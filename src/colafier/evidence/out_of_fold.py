"""Out-of-fold predictions: small heads on features, each predicts rows it was not trained on.

A classifier that was trained on a row's label is no evidence for or against it. So the rows are
split into folds, and each fold is predicted by a head trained on the others. The heads are trained
robustly: first with the generalized cross entropy, then on soft labels from a transition matrix
that EM estimates (Bekker and Goldberger 2016).
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from colafier import _seeds
from colafier._progress import progress_bar
from colafier.core.functional import gce
from colafier.evidence.config import EvidenceConfig
from colafier.evidence.heads import Head, SoftLabelTrainer
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import Posterior, soft_labels

BATCH = 512
PREDICTED_AT_ONCE = 4096
NORMALIZED_AT_ONCE = 2**27  # numbers that are normalized once and kept: half a GiB
MEMORY = 0.6  # share of the earlier epochs in the running mean of the predictions


def cross_fit(
    x: Tensor,
    labels: Labels,
    num_classes: int,
    normalize: Callable[[Tensor], Tensor],
    *,
    config: EvidenceConfig | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Tensor:
    """P(class | row) for each row (n, c), by a head that never saw the row's label.

    Args:
        x: Features (n, d).
        labels: The labels of the rows; trusted ones count as certain.
        num_classes: Number of classes.
        normalize: Applied to rows before a head sees them.
        config: Number of folds and length of the training.
        seed: Of the folds, the heads and the order.
        progress: Whether a terminal shows a bar.
    """
    config = EvidenceConfig() if config is None else config
    generator = torch.Generator().manual_seed(_seeds.derive(seed, "witnesses"))
    fold = _folds(labels.observed, config.folds, generator)  # (n,)
    size = max(2, min(BATCH, len(x) // 20))
    trained = int(labels.labeled.sum()) * (config.folds - 1)
    steps = -(-trained // (config.folds * size))
    epochs = max(config.head_epochs, -(-config.head_min_steps // max(steps, 1)))
    warmup = max(1, round(config.head_warmup * epochs / config.head_epochs))
    take = _taker(x, normalize)
    with (
        torch.random.fork_rng(devices=[]),
        progress_bar("out-of-fold predictions", config.folds * epochs, progress) as advance,
    ):
        torch.manual_seed(_seeds.derive(seed, "heads"))
        heads = [SoftLabelTrainer(Head(x.shape[1], num_classes)) for _ in range(config.folds)]
        predicted = torch.full((len(x), num_classes), 1 / num_classes)  # (n, c)
        targets = F.one_hot(labels.observed.clamp(min=0), num_classes).float()  # (n, c)
        for epoch in range(epochs):
            robust = epoch < warmup
            now = torch.empty_like(predicted)
            for number, head in enumerate(heads):
                rows = ((fold != number) & labels.labeled).nonzero()[:, 0]
                rows = rows[torch.randperm(len(rows), generator=generator)]
                for some in torch.split(rows, size):
                    loss = _robust_loss if robust else F.cross_entropy
                    head.step(take(some), targets[some], epoch / epochs, loss)
                for some in torch.split((fold == number).nonzero()[:, 0], PREDICTED_AT_ONCE):
                    now[some] = head.predict(take(some))
                advance(1)
            predicted = now if robust else MEMORY * predicted + (1 - MEMORY) * now
            if epoch + 1 >= warmup:
                _refine(targets, predicted, labels)
    return predicted


def pooled(own: Tensor, unseen: Tensor, labels: Labels, weight: float) -> Tensor:
    """A classifier's and the out-of-fold predictions together (n, c): a mean of logarithms.

    The classifier was trained on the labels. If it contradicts fewer of them than the out-of-fold
    predictions do, it has memorized that share, and counts that much less.

    Args:
        own: Probabilities of the classifier (n, c).
        unseen: Out-of-fold predictions (n, c).
        labels: The labels of the rows.
        weight: Of the out-of-fold predictions beside a classifier that has memorized nothing.
    """
    known, observed = labels.labeled, labels.observed
    contradicted, unseen_contradicted = (
        float((p.argmax(1) != observed)[known].double().mean()) for p in (own, unseen)
    )
    honest = min(contradicted / unseen_contradicted, 1.0) if unseen_contradicted else 1.0
    return torch.lerp(_log(own), _log(unseen), 1 - (1 - weight) * honest).softmax(1)


def may_move(
    found: Posterior, own: Tensor, unseen: Tensor, labels: Labels, config: EvidenceConfig
) -> Tensor:
    """Rows (n,) whose label the classifier contradicts too, or where the case is strong.

    A classifier that has memorized a label does not contradict it. But with few rows the
    out-of-fold heads know little, and contradict clean labels as well as wrong ones, except where
    they are confident. So the more labels they contradict even there, the weaker a case may be. For
    a class that they hardly ever predict they are no evidence at all, and of a class with a handful
    of rows nobody knows enough to take a row away from it.

    Args:
        found: What is believed once the observed labels are known.
        own: Probabilities of the classifier (n, c).
        unseen: Out-of-fold predictions (n, c).
        labels: The labels of the rows.
        config: When a case is strong.
    """
    observed = labels.observed
    confidence, predicted = unseen.max(1)  # (n,), (n,)
    known = labels.labeled.nonzero()[:, 0]
    order = confidence[known].argsort(descending=True, stable=True)
    surest = known[order[: max(1, round(config.confident_fraction * len(known)))]]
    contradicted = float((predicted != observed)[surest].double().mean()) if len(surest) else 0.0
    strong = found.probabilities.max(1).values >= 1 - config.leniency * contradicted
    classified = own.argmax(1)  # (n,)
    unseen_count, own_count = (
        some.bincount(minlength=unseen.shape[1]) for some in (predicted, classified)
    )
    familiar = unseen_count >= config.familiar_ratio * own_count  # (c,)
    large = observed[known].bincount(minlength=len(familiar)) >= config.min_class_rows  # (c,)
    label = observed.clamp(min=0)  # (n,)
    return large[label] & ((classified != observed) | strong & familiar[label])


def _log(p: Tensor) -> Tensor:
    return p.clamp(min=1e-6).log()


def _robust_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return gce(logits, targets.argmax(1)).mean()


def _refine(targets: Tensor, predicted: Tensor, labels: Labels) -> None:
    """Set the targets of doubtful rows, in place, to P(true class | row, observed label)."""
    noisy, counted = labels.observed, labels.doubtful  # the labels and rows to learn the noise from
    if labels.original is not None:
        noisy, counted = labels.original, labels.labeled & (labels.original >= 0)
    certain = F.one_hot(labels.observed.clamp(min=0), targets.shape[1]).double()  # (n, c)
    p = torch.where(labels.trusted[:, None], certain, predicted.double())
    soft = soft_labels(p[counted], noisy[counted]).float()
    targets[labels.doubtful] = soft[labels.doubtful[counted]]


def _taker(x: Tensor, normalize: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Normalized rows by number; what is not too large is normalized once."""
    if x.numel() > NORMALIZED_AT_ONCE:
        return lambda rows: normalize(x[rows].float())
    whole = normalize(x.float())  # (n, d)
    return lambda rows: whole[rows]


def _folds(observed: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The fold of each row (n,): the rows of each class are spread evenly."""
    order = torch.randperm(len(observed), generator=generator)
    order = order[observed[order].argsort(stable=True)]
    fold = torch.empty_like(observed)
    fold[order] = torch.arange(len(observed)) % count
    return fold
