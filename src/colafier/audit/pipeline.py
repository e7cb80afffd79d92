"""Rows with doubtful labels in; a classifier, and what is believed of each label, out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from colafier.audit import out_of_fold
from colafier.audit.fine_tuning import fine_tune
from colafier.audit.noise_model import Posterior, posterior
from colafier.audit.policy import MIN_CONFIDENCE, Decisions, decide
from colafier.methods import build
from colafier.methods.contract import MakeNet, Method, Purified
from colafier.nets import net_factory
from colafier.nets.normalize import Normalize
from colafier.report.evidence import Known
from colafier.training.optimizers import OptimizerSettings
from colafier.training.records import History
from colafier.training.trainer import fit
from colafier.training.training_set import TrainingSet

MIN_STEPS = 400  # of a run on vectors: small data sets are walked more often
MAX_BATCH = 512
EPOCHS = 4  # of vectors: they come from a net that has learned already, or from a table
WITNESSES = 0.7  # their share in what is believed of a row; the classifier has seen its label
SUREST = 0.2  # share of the rows, those that the witnesses are surest of
FAMILIAR = 0.75  # how often witnesses must see a class, for each time the classifier does
LENIENCE = 1.5  # for each wrong label among the surest, how much doubt a move may leave


@dataclass(frozen=True)
class TrainConfig:
    """How a classifier is trained, and how sure a relabel must be."""

    method: str = "colafier"
    hyper: Mapping[str, Any] = field(default_factory=dict)
    net: str | nn.Module | Callable[[], nn.Module] = "mlp"
    epochs: int = EPOCHS
    fine_tune_epochs: int = 0  # after the method, on what is then believed of the rows
    batch_size: int = MAX_BATCH
    lr: float = 1e-3
    weight_decay: float = 1e-3
    flip: bool = True
    seed: int = 0
    min_confidence: float = MIN_CONFIDENCE


@dataclass(frozen=True)
class AuditResult:
    """What came of a training set."""

    classifier: nn.Module
    normalize: Normalize
    p: Tensor  # (n, c) the classifier's probabilities
    found: Posterior
    decided: Decisions
    lid: Tensor  # (n,) not a number where there is none
    history: History
    agreement: float | None  # with observed labels that were not learned from; None: not known
    votes: dict[str, Tensor] = field(default_factory=dict)  # who -> (n,) class it sees, -1: none
    trajectory: Tensor | None = (
        None  # (n, t) probability of the observed label as the training went on
    )

    def known(
        self, classes: Sequence[str], rows: Sequence[int], x: Tensor, observed: Tensor
    ) -> Known:
        """What the report may ask about the rows that were trained on.

        Args:
            classes: Their names.
            rows: Numbers of the rows among all rows of the data set.
            x: The rows as they were trained on.
            observed: Observed labels (n,).
        """
        return Known(
            classes=classes,
            rows=rows,
            x=x,
            original=observed,
            suggested=self.decided.suggested,
            classifier=self.classifier,
            normalize=self.normalize,
            votes=self.votes,
            trajectory=self.trajectory,
        )


def recipe(row_shape: tuple[int, ...], n: int, **observed: Any) -> TrainConfig:
    """The default for rows of this shape and number, with what is given in place of it.

    Vectors take a small perceptron and a few walks; images take the paper's nets and schedule.
    """
    if len(row_shape) == 1:
        batch = max(16, min(MAX_BATCH, n // 20))
        epochs = max(EPOCHS, ceil(MIN_STEPS * batch / max(n, 1)))
        chosen: dict[str, Any] = {"net": "mlp", "batch_size": batch, "epochs": epochs}
        if observed.get("method", "colafier") == "colafier":
            # The witnesses are the check here, so that every row can be learned from.
            chosen["fine_tune_epochs"] = epochs
            own = observed.pop("hyper", None) or {}
            chosen["hyper"] = {"holdout": False, "mix_share": 0.25, **own}
    else:
        small = min(row_shape[1:]) < 20
        chosen = {"net": "convnet" if small else "resnet10", "batch_size": 128, "epochs": 40}
    return TrainConfig(**{**chosen, **{name: v for name, v in observed.items() if v is not None}})


def judge(
    x: Tensor,
    observed: Tensor,
    num_classes: int,
    how: TrainConfig,
    *,
    trusted: Tensor | None = None,
    original: Tensor | None = None,
    groups: Tensor | None = None,
    folder: Path | None = None,
    resume: bool = False,
    earlier: Path | None = None,
    progress: bool = False,
) -> AuditResult:
    """Train on rows with doubtful labels and say what is believed of each.

    Args:
        x: Vectors (n, d) as floats, or images (n, c, h, w) as bytes.
        observed: Labels (n,), -1 where there is none.
        num_classes: Number of classes.
        how: How to train.
        trusted: Rows whose label a person decided, as a boolean mask.
        original: The labels that came with the data (n,), where those of trusted rows are not them.
        groups: For each row its group of exact duplicates, -1 for none.
        folder: Gets `metrics.jsonl` and a checkpoint.
        resume: Go on from the checkpoint in the folder, if there is one.
        earlier: Checkpoint of a finished run on these rows, to train on from.
        progress: Whether a terminal shows bars.
    """
    method = build(how.method, **how.hyper)
    rows = TrainingSet(
        x,
        observed,
        num_classes,
        view_names=method.views,
        batch_size=how.batch_size,
        seed=how.seed,
        flip=how.flip,
        trusted=trusted,
        original=original,
    )
    make_net = net_factory(how.net, rows.row_shape, num_classes)
    history = fit(
        method,
        rows,
        make_net,
        epochs=how.epochs,
        optimizer=OptimizerSettings(lr=how.lr, weight_decay=how.weight_decay),
        seed=how.seed,
        folder=folder,
        resume=resume,
        earlier=earlier,
        score=partial(_moved, observed=rows.observed),
        progress=progress,
    )
    p = rows.predict(method.deployed())  # (n, c)
    purified = method.purify(rows, p)
    found, may_move, agreement, said = _believe(rows, p, purified, how, progress, original)
    decided = decide(
        found,
        found.plausible,
        rows.observed,
        trusted=rows.trusted,
        groups=groups,
        may_move=may_move,
        min_confidence=how.min_confidence,
    )
    lid = purified.columns.get("lid", torch.full((rows.n,), torch.nan)).cpu()
    classifier = method.deployed().cpu().eval()
    if how.fine_tune_epochs:
        targets = _soft_targets(found, decided, rows.observed)
        p = _fine_tuned(classifier, rows, targets, how, _frozen(make_net), progress)
    said |= {who: classes.cpu() for who, classes in purified.votes.items()}
    trajectory = None if purified.trajectory is None else purified.trajectory.cpu()
    return AuditResult(
        classifier, rows.normalize, p, found, decided, lid, history, agreement, said, trajectory
    )


def _soft_targets(found: Posterior, decided: Decisions, observed: Tensor) -> Tensor:
    """What the classifier should learn of each row (n, c); a label that is kept counts as right."""
    kept = (decided.suggested != observed) & (decided.labels == observed) & (observed >= 0)
    sure = F.one_hot(observed.clamp(min=0), found.probabilities.shape[1]).float()
    return torch.where(kept[:, None], sure, found.probabilities)


def _frozen(make_net: MakeNet) -> set[str]:
    """Names of the parameters that a net of the user's own does not want to be trained."""
    with torch.random.fork_rng(devices=[]):
        return {name for name, p in make_net().named_parameters() if not p.requires_grad}


def _fine_tuned(
    classifier: nn.Module,
    rows: TrainingSet,
    believed: Tensor,
    how: TrainConfig,
    frozen: set[str],
    progress: bool,
) -> Tensor:
    """Teach the classifier what is believed now; its probabilities after that (n, c)."""
    fine_tune(
        classifier,
        rows.x,
        believed,
        rows.normalize,
        epochs=how.fine_tune_epochs,
        batch_size=how.batch_size,
        lr=how.lr,
        frozen=frozen,
        seed=how.seed,
        progress=progress,
    )
    return rows.predict(classifier)


def _moved(method: Method, epoch: int, observed: Tensor) -> dict[str, float]:  # noqa: ARG001
    """How many labels a method has changed so far, if it says so."""
    labels = method.rows_now().get("labels")
    return {} if labels is None else {"labels_changed": float((labels.cpu() != observed).sum())}


def _believe(
    rows: TrainingSet,
    p: Tensor,
    purified: Purified,
    how: TrainConfig,
    progress: bool,
    original: Tensor | None,
) -> tuple[Posterior, Tensor | None, float | None, dict[str, Tensor]]:
    """The posterior, the rows that may move (None: all), and the agreement on unseen labels.

    Last comes what classifier and witnesses see in each row.
    """
    sees = {"classifier": p.argmax(1)}
    if x_is_vectors(rows.x):
        said = out_of_fold.cross_fit(
            rows.x,
            rows.observed,
            rows.num_classes,
            rows.normalize,
            trusted=rows.trusted,
            original=original,
            seed=how.seed,
            progress=progress,
        )
        met = (said.argmax(1) == rows.observed)[rows.labeled]
        both = _pooled(p, said, rows.observed)
        found = posterior(both, rows.observed, rows.trusted, original=original)
        sees["witnesses"] = said.argmax(1)
        may_move = _may_move(found, p, said, rows.observed)
        return found, may_move, float(met.float().mean()), sees
    found = posterior(p, rows.observed, rows.trusted, original=original)
    suggested = found.probabilities.argmax(1)
    note = purified.diagnostics.get("agreement")
    agreement = float(note) if isinstance(note, int | float) and note else None
    return found, purified.labels.cpu() == suggested, agreement, sees


def _pooled(p: Tensor, said: Tensor, observed: Tensor) -> Tensor:
    """What classifier and witnesses think of the rows together (n, c).

    The classifier has seen the labels. If it objects to fewer of them than the witnesses do, it
    has learned that share by heart, and counts so much less.
    """
    known = observed >= 0
    objects, others_object = (
        float((some.argmax(1) != observed)[known].double().mean()) for some in (p, said)
    )
    honest = min(objects / others_object, 1.0) if others_object else 1.0
    return torch.lerp(_logs(p), _logs(said), 1 - (1 - WITNESSES) * honest).softmax(1)


def _may_move(found: Posterior, p: Tensor, said: Tensor, observed: Tensor) -> Tensor:
    """Rows whose label may move (n,): the classifier objects to it, too, or the case is strong.

    The classifier may have learned the label by heart, and says nothing then. But with few rows the
    witnesses know little, and doubt clean labels as well as wrong ones; only where they are sure of
    a row they do not. So the more labels they doubt even there, the weaker a case may be. And of a
    class that they hardly ever see, they are no witnesses at all.
    """
    sureness, seen = said.max(1)  # (n,), (n,)
    known = (observed >= 0).nonzero()[:, 0]
    order = sureness[known].argsort(descending=True, stable=True)
    surest = known[order[: max(1, round(SUREST * len(known)))]]
    doubted = float((seen != observed)[surest].double().mean()) if len(surest) else 0.0
    strong = found.probabilities.max(1).values >= 1 - LENIENCE * doubted
    times = [
        predictions.bincount(minlength=p.shape[1]) for predictions in (seen, p.argmax(1))
    ]  # (c,) each
    familiar = times[0] >= FAMILIAR * times[1]  # (c,)
    return (p.argmax(1) != observed) | strong & familiar[observed.clamp(min=0)]


def _logs(p: Tensor) -> Tensor:
    return p.clamp(min=1e-6).log()


def x_is_vectors(x: Tensor) -> bool:
    """Whether rows are vectors: features that another net made, or the columns of a table."""
    return x.dim() == 2
