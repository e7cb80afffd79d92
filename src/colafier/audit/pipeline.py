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
from colafier.audit.fine_tuning import relearn
from colafier.audit.noise_model import Posterior, posterior
from colafier.audit.policy import PRECISION, Decisions, decide
from colafier.methods import build
from colafier.methods.contract import MakeNet, Method, Purified
from colafier.nets import net_factory
from colafier.nets.normalize import Normalize
from colafier.report.evidence import Known
from colafier.training.optimizers import OptimizerSettings
from colafier.training.records import History
from colafier.training.trainer import fit
from colafier.training.training_set import Rows

FEWEST_STEPS = 400  # of a run on vectors: small data sets are walked more often
LARGEST_BATCH = 512
EPOCHS = 4  # of vectors: they come from a net that has learned already, or from a table
WITNESSES = 0.7  # their share in what is believed of a row; the classifier has seen its label
SUREST = 0.2  # share of the rows, those that the witnesses are surest of
FAMILIAR = 0.75  # how often witnesses must see a class, for each time the classifier does
LENIENCE = 1.5  # for each wrong label among the surest, how much doubt a move may leave


@dataclass(frozen=True)
class Recipe:
    """How a classifier is trained, and how sure a relabel must be."""

    method: str = "colafier"
    hyper: Mapping[str, Any] = field(default_factory=dict)
    net: str | nn.Module | Callable[[], nn.Module] = "mlp"
    epochs: int = EPOCHS
    relearn_epochs: int = 0  # after the method, on what is then believed of the rows
    batch_size: int = LARGEST_BATCH
    lr: float = 1e-3
    weight_decay: float = 1e-3
    flip: bool = True
    seed: int = 0
    precision: float = PRECISION


@dataclass(frozen=True)
class Judged:
    """What came of a training set."""

    classifier: nn.Module
    normalize: Normalize
    p: Tensor  # (n, c) the classifier's probabilities
    found: Posterior
    decided: Decisions
    lid: Tensor  # (n,) not a number where there is none
    history: History
    agreement: float | None  # with given labels that were not learned from; None: not known
    opinions: dict[str, Tensor] = field(default_factory=dict)  # who -> (n,) class it sees, -1: none
    course: Tensor | None = None  # (n, t) probability of the given label as the training went on

    def known(self, classes: Sequence[str], rows: Sequence[int], x: Tensor, given: Tensor) -> Known:
        """What the report may ask about the rows that were trained on.

        Args:
            classes: Their names.
            rows: Numbers of the rows among all rows of the data set.
            x: The rows as they were trained on.
            given: Given labels (n,).
        """
        return Known(
            classes=classes,
            rows=rows,
            x=x,
            given=given,
            suggested=self.decided.suggested,
            classifier=self.classifier,
            normalize=self.normalize,
            opinions=self.opinions,
            course=self.course,
        )


def recipe(row_shape: tuple[int, ...], n: int, **given: Any) -> Recipe:
    """The default for rows of this shape and number, with what is given in place of it.

    Vectors take a small perceptron and a few walks; images take the paper's nets and schedule.
    """
    if len(row_shape) == 1:
        batch = max(16, min(LARGEST_BATCH, n // 20))
        epochs = max(EPOCHS, ceil(FEWEST_STEPS * batch / max(n, 1)))
        chosen: dict[str, Any] = {"net": "mlp", "batch_size": batch, "epochs": epochs}
        if given.get("method", "colafier") == "colafier":
            # The witnesses are the check here, so that every row can be learned from.
            chosen["relearn_epochs"] = epochs
            own = given.pop("hyper", None) or {}
            chosen["hyper"] = {"holdout": False, "mix_share": 0.25, **own}
    else:
        small = min(row_shape[1:]) < 20
        chosen = {"net": "convnet" if small else "resnet10", "batch_size": 128, "epochs": 40}
    return Recipe(**{**chosen, **{name: v for name, v in given.items() if v is not None}})


def judge(
    x: Tensor,
    given: Tensor,
    num_classes: int,
    how: Recipe,
    *,
    trusted: Tensor | None = None,
    came: Tensor | None = None,
    groups: Tensor | None = None,
    folder: Path | None = None,
    resume: bool = False,
    earlier: Path | None = None,
    progress: bool = False,
) -> Judged:
    """Train on rows with doubtful labels and say what is believed of each.

    Args:
        x: Vectors (n, d) as floats, or images (n, c, h, w) as bytes.
        given: Labels (n,), -1 where there is none.
        num_classes: Number of classes.
        how: How to train.
        trusted: Rows whose label a person decided, as a boolean mask.
        came: The labels that came with the data (n,), where those of trusted rows are not them.
        groups: For each row its group of exact duplicates, -1 for none.
        folder: Gets `metrics.jsonl` and a checkpoint.
        resume: Go on from the checkpoint in the folder, if there is one.
        earlier: Checkpoint of a finished run on these rows, to train on from.
        progress: Whether a terminal shows bars.
    """
    method = build(how.method, **how.hyper)
    rows = Rows(
        x,
        given,
        num_classes,
        view_names=method.views,
        batch_size=how.batch_size,
        seed=how.seed,
        flip=how.flip,
        trusted=trusted,
        came=came,
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
        score=partial(_moved, given=rows.given),
        progress=progress,
    )
    p = rows.predict(method.deployed())  # (n, c)
    purified = method.purify(rows)
    found, may_move, agreement, said = _believe(rows, p, purified, how, progress, came)
    decided = decide(
        found,
        found.plausible,
        rows.given,
        trusted=rows.trusted,
        groups=groups,
        may_move=may_move,
        precision=how.precision,
    )
    lid = purified.columns.get("lid", torch.full((rows.n,), torch.nan)).cpu()
    classifier = method.deployed().cpu().eval()
    if how.relearn_epochs:
        lesson = _lesson(found, decided, rows.given)
        p = _relearned(classifier, rows, lesson, how, _frozen(make_net), progress)
    said |= {who: classes.cpu() for who, classes in purified.opinions.items()}
    course = None if purified.course is None else purified.course.cpu()
    return Judged(
        classifier, rows.normalize, p, found, decided, lid, history, agreement, said, course
    )


def _lesson(found: Posterior, decided: Decisions, given: Tensor) -> Tensor:
    """What the classifier should learn of each row (n, c); a label that is kept counts as right."""
    kept = (decided.suggested != given) & (decided.labels == given) & (given >= 0)
    sure = F.one_hot(given.clamp(min=0), found.probabilities.shape[1]).float()
    return torch.where(kept[:, None], sure, found.probabilities)


def _frozen(make_net: MakeNet) -> set[str]:
    """Names of the parameters that a net of the user's own does not want to be trained."""
    with torch.random.fork_rng(devices=[]):
        return {name for name, p in make_net().named_parameters() if not p.requires_grad}


def _relearned(
    classifier: nn.Module,
    rows: Rows,
    believed: Tensor,
    how: Recipe,
    frozen: set[str],
    progress: bool,
) -> Tensor:
    """Teach the classifier what is believed now; its probabilities after that (n, c)."""
    relearn(
        classifier,
        rows.x,
        believed,
        rows.normalize,
        epochs=how.relearn_epochs,
        batch_size=how.batch_size,
        lr=how.lr,
        frozen=frozen,
        seed=how.seed,
        progress=progress,
    )
    return rows.predict(classifier)


def _moved(method: Method, epoch: int, given: Tensor) -> dict[str, float]:  # noqa: ARG001
    """How many labels a method has changed so far, if it says so."""
    labels = method.rows_now().get("labels")
    return {} if labels is None else {"labels_changed": float((labels.cpu() != given).sum())}


def _believe(
    rows: Rows,
    p: Tensor,
    purified: Purified,
    how: Recipe,
    progress: bool,
    came: Tensor | None,
) -> tuple[Posterior, Tensor | None, float | None, dict[str, Tensor]]:
    """The posterior, the rows that may move (None: all), and the agreement on unseen labels.

    Last comes what classifier and witnesses see in each row.
    """
    sees = {"classifier": p.argmax(1)}
    if x_is_vectors(rows.x):
        said = out_of_fold.cross_fit(
            rows.x,
            rows.given,
            rows.num_classes,
            rows.normalize,
            trusted=rows.trusted,
            came=came,
            seed=how.seed,
            progress=progress,
        )
        met = (said.argmax(1) == rows.given)[rows.labelled]
        both = _pooled(p, said, rows.given)
        found = posterior(both, rows.given, rows.trusted, came=came)
        sees["witnesses"] = said.argmax(1)
        may_move = _may_move(found, p, said, rows.given)
        return found, may_move, float(met.float().mean()), sees
    found = posterior(p, rows.given, rows.trusted, came=came)
    suggested = found.probabilities.argmax(1)
    note = purified.notes.get("agreement")
    agreement = float(note) if isinstance(note, int | float) and note else None
    return found, purified.labels.cpu() == suggested, agreement, sees


def _pooled(p: Tensor, said: Tensor, given: Tensor) -> Tensor:
    """What classifier and witnesses think of the rows together (n, c).

    The classifier has seen the labels. If it objects to fewer of them than the witnesses do, it
    has learned that share by heart, and counts so much less.
    """
    known = given >= 0
    objects, others_object = (
        float((some.argmax(1) != given)[known].double().mean()) for some in (p, said)
    )
    honest = min(objects / others_object, 1.0) if others_object else 1.0
    return torch.lerp(_logs(p), _logs(said), 1 - (1 - WITNESSES) * honest).softmax(1)


def _may_move(found: Posterior, p: Tensor, said: Tensor, given: Tensor) -> Tensor:
    """Rows whose label may move (n,): the classifier objects to it, too, or the case is strong.

    The classifier may have learned the label by heart, and says nothing then. But with few rows the
    witnesses know little, and doubt clean labels as well as wrong ones; only where they are sure of
    a row they do not. So the more labels they doubt even there, the weaker a case may be. And of a
    class that they hardly ever see, they are no witnesses at all.
    """
    sureness, seen = said.max(1)  # (n,), (n,)
    known = (given >= 0).nonzero()[:, 0]
    order = sureness[known].argsort(descending=True, stable=True)
    surest = known[order[: max(1, round(SUREST * len(known)))]]
    doubted = float((seen != given)[surest].double().mean()) if len(surest) else 0.0
    strong = found.probabilities.max(1).values >= 1 - LENIENCE * doubted
    times = [guesses.bincount(minlength=p.shape[1]) for guesses in (seen, p.argmax(1))]  # (c,) each
    familiar = times[0] >= FAMILIAR * times[1]  # (c,)
    return (p.argmax(1) != given) | strong & familiar[given.clamp(min=0)]


def _logs(p: Tensor) -> Tensor:
    return p.clamp(min=1e-6).log()


def x_is_vectors(x: Tensor) -> bool:
    """Whether rows are vectors: features that another net made, or the columns of a table."""
    return x.dim() == 2
