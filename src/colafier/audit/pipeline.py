"""Train a method, then judge every label by its probabilities: from rows to decisions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from colafier.audit.config import AuditConfig
from colafier.audit.policy import Decisions, decide
from colafier.audit.strategies import STRATEGIES, mode_of
from colafier.audit.trained import Trained
from colafier.evidence.config import EvidenceConfig
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import Posterior, posterior
from colafier.methods import build
from colafier.methods.contract import Method
from colafier.nets import net_factory
from colafier.nets.normalize import Normalize, input_statistics
from colafier.training.config import TrainConfig
from colafier.training.distributed import Processes
from colafier.training.loggers import Logger
from colafier.training.optimizers import OptimizerSettings
from colafier.training.records import History
from colafier.training.trainer import Score, fit
from colafier.training.training_set import TrainingSet


@dataclass(frozen=True)
class AuditResult:
    """What is believed of each row, and what to do about it."""

    classifier: nn.Module
    normalize: Normalize
    predicted: Tensor  # (n,) classes that the kept classifier predicts
    found: Posterior
    decided: Decisions
    lid: Tensor  # (n,) not a number where there is none
    method_labels: Tensor  # (n,) what the method itself believes
    history: History
    agreement: float | None  # with observed labels that were not trained on; None: not known
    votes: dict[str, Tensor] = field(default_factory=dict)  # name -> (n,) class, -1: none
    trajectory: Tensor | None = None  # (n, t) probability of the observed label during training


def configure(
    row_shape: tuple[int, ...],
    n: int,
    train: Mapping[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
) -> tuple[TrainConfig, AuditConfig]:
    """The default configuration for rows of this shape and number.

    Args:
        row_shape: (d,) of features, or (c, h, w) of images.
        n: Number of labeled rows.
        train: Values of `TrainConfig` that replace the defaults, where they are not None.
        audit: Values of `AuditConfig` likewise.
    """
    mode = mode_of(row_shape)
    strategy = STRATEGIES[mode]
    defaults = strategy.train_defaults(row_shape, n)
    chosen = defaults | {name: v for name, v in (train or {}).items() if v is not None}
    config = TrainConfig(**chosen)
    tuned = {name: v for name, v in (audit or {}).items() if v is not None}
    return config, AuditConfig(**tuned)


def train_method(
    x: Tensor,
    labels: Labels,
    num_classes: int,
    config: TrainConfig,
    *,
    processes: Processes | None = None,
    folder: Path | None = None,
    resume: bool = False,
    warm_start: Path | None = None,
    make_score: Callable[[TrainingSet], Score] | None = None,
    progress: bool = False,
    loggers: Sequence[Logger] = (),
    out_of_fold: Tensor | None = None,
    evidence: EvidenceConfig | None = None,
) -> Trained:
    """Build a method and fit it; every process of a run calls this in the same way.

    Args:
        x: Features (n, d) as floats, or images (n, c, h, w) as bytes.
        labels: The labels of the rows.
        num_classes: Number of classes.
        config: How to train.
        processes: Those that share the work; None: this one alone on the CPU.
        folder: Gets `metrics.jsonl` and a checkpoint.
        resume: Continue from the checkpoint in the folder, if there is one.
        warm_start: Checkpoint of a finished run on these rows, to train on from.
        make_score: Makes the scores of each epoch; by default how many labels have changed.
        progress: Whether a terminal shows bars.
        loggers: Get the figures of each epoch as well.
        out_of_fold: Out-of-fold predictions of these rows (n, c), if they have been made before.
        evidence: How they are made if the method asks for them; None: the defaults.
    """
    method = build(config.method, **config.hyper)
    config = config.settled(method.run_defaults, tuple(x.shape[1:]))
    assert config.lr_floor is not None
    rows = TrainingSet(
        x,
        labels,
        num_classes,
        view_names=method.views,
        batch_size=config.batch_size,
        seed=config.seed,
        flip=config.flip,
        normalize=input_statistics(config.input_statistics, x),
        out_of_fold=out_of_fold,
        evidence=evidence,
        progress=progress,
    )
    make_net = net_factory(config.net, rows.row_shape, num_classes, config.dtype, config.init)
    history = fit(
        method,
        rows,
        make_net,
        epochs=config.epochs,
        optimizer=OptimizerSettings(
            lr=config.lr, weight_decay=config.weight_decay, lr_floor=config.lr_floor
        ),
        seed=config.seed,
        processes=processes,
        folder=folder,
        resume=resume,
        warm_start=warm_start,
        score=_labels_changed(labels) if make_score is None else make_score(rows),
        progress=progress,
        loggers=loggers,
    )
    probabilities = rows.predict(method.deployed())  # (n, c)
    return Trained(
        classifier=method.deployed().cpu().eval(),
        normalize=rows.normalize,
        probabilities=probabilities,
        purified=method.purify(rows, probabilities).cpu(),
        history=history,
        resolved=method.resolved(),
        out_of_fold=rows.out_of_fold_made,
    )


def audit(
    trained: Trained,
    x: Tensor,
    labels: Labels,
    train: TrainConfig,
    config: AuditConfig,
    *,
    groups: Tensor | None = None,
    progress: bool = False,
) -> AuditResult:
    """Judge every label, whatever method made the probabilities.

    Args:
        trained: The method after training.
        x: The rows it was trained on.
        labels: Their labels.
        train: How it was trained.
        config: The constants that decide.
        groups: For each row its group of exact duplicates, -1 for none.
        progress: Whether a terminal shows bars.
    """
    strategy = STRATEGIES[mode_of(tuple(x.shape[1:]))]
    evidence = strategy.evidence(trained, x, labels, config, train.seed, progress)
    found = posterior(evidence.probabilities, labels, config)
    decided = decide(found, labels, config, groups=groups, may_move=evidence.may_move(found))
    purified = trained.purified
    return AuditResult(
        classifier=trained.classifier,
        normalize=trained.normalize,
        predicted=trained.probabilities.argmax(1),
        found=found,
        decided=decided,
        lid=purified.columns.get("lid", torch.full((len(labels),), torch.nan)),
        method_labels=purified.labels,
        history=trained.history,
        agreement=evidence.agreement,
        votes=evidence.votes | purified.votes,
        trajectory=purified.trajectory,
    )


def train_and_audit(
    x: Tensor,
    labels: Labels,
    num_classes: int,
    train: TrainConfig,
    config: AuditConfig,
    *,
    groups: Tensor | None = None,
    progress: bool = False,
    **run: Any,
) -> AuditResult:
    """`train_method`, then `audit`.

    Args:
        x: Features (n, d) as floats, or images (n, c, h, w) as bytes.
        labels: The labels of the rows.
        num_classes: Number of classes.
        train: How to train.
        config: The constants that decide.
        groups: For each row its group of exact duplicates, -1 for none.
        progress: Whether a terminal shows bars.
        **run: `folder`, `resume` and `warm_start` of `train_method`.
    """
    trained = train_method(x, labels, num_classes, train, evidence=config, progress=progress, **run)
    return audit(trained, x, labels, train, config, groups=groups, progress=progress)


def _labels_changed(labels: Labels) -> Score:
    """How many labels a method has changed so far, if it says so."""

    def score(method: Method, epoch: int) -> dict[str, float]:  # noqa: ARG001
        now = method.rows_now().get("labels")
        return (
            {} if now is None else {"labels_changed": float((now.cpu() != labels.observed).sum())}
        )

    return score
