"""Where the evidence about labels comes from: two strategies, by the kind of rows.

Both give probabilities of the classes to the noise model, and say which labels may move.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

from torch import Tensor

from colafier.audit.config import AuditConfig
from colafier.audit.trained import Trained
from colafier.evidence import out_of_fold
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import Posterior

FEATURES, END_TO_END = MODES = ("features", "end-to-end")
MIN_STEPS = 800  # of a run on features: small data sets get more epochs
MAX_BATCH = 512
EPOCHS = 8  # on features, which come from a pretrained net or from a table
SMALL_IMAGE = 20  # pixels: below, a ResNet has nothing left to look at


class Evidence(Protocol):
    """What the noise model starts from."""

    probabilities: Tensor  # (n, c) P(class | row), before the observed label is known
    agreement: float | None  # with observed labels that were not trained on; None: not known
    votes: dict[str, Tensor]  # name -> (n,) class it predicts

    def may_move(self, found: Posterior) -> Tensor:
        """Rows whose label may move (n,)."""


class OutOfFoldEvidence:
    """Evidence for features: heads that never saw a row's label, beside the classifier.

    Args:
        trained: The method after training.
        x: Features (n, d).
        labels: Their labels.
        config: Folds, weights and thresholds.
        seed: Of the folds and the heads.
        progress: Whether a terminal shows a bar.
    """

    def __init__(
        self,
        trained: Trained,
        x: Tensor,
        labels: Labels,
        config: AuditConfig,
        seed: int,
        progress: bool = False,
    ) -> None:
        self.labels = labels
        self.config = config
        self.classifier = trained.probabilities  # (n, c)
        if trained.out_of_fold is None:
            self.unseen = out_of_fold.cross_fit(
                x,
                labels,
                trained.probabilities.shape[1],
                trained.normalize,
                config=config,
                seed=seed,
                progress=progress,
            )  # (n, c)
        else:
            self.unseen = trained.out_of_fold
        predicted = self.unseen.argmax(1)  # (n,)
        agree = (predicted == labels.observed)[labels.labeled]
        self.agreement: float | None = float(agree.float().mean())
        self.votes = {"classifier": self.classifier.argmax(1), "out-of-fold heads": predicted}
        self.probabilities = out_of_fold.pooled(
            self.classifier, self.unseen, labels, config.out_of_fold_weight
        )

    def may_move(self, found: Posterior) -> Tensor:
        """Rows (n,) whose label the classifier contradicts too, or where the case is strong."""
        return out_of_fold.may_move(found, self.classifier, self.unseen, self.labels, self.config)


class EndToEndEvidence:
    """Evidence for nets trained end to end: the classifier, and the method's own labels.

    Training once more for each fold would take hours, so there are no out-of-fold predictions; a
    label moves only where the method itself came to the same class.
    """

    def __init__(self, trained: Trained, *_: object) -> None:
        self.probabilities = trained.probabilities
        self.believed = trained.purified.labels  # (n,)
        agreement = trained.purified.diagnostics.get("agreement")
        known = isinstance(agreement, int | float) and bool(agreement)
        self.agreement = float(agreement) if known else None  # type: ignore[arg-type]
        self.votes = {"classifier": trained.probabilities.argmax(1)}

    def may_move(self, found: Posterior) -> Tensor:
        """Rows (n,) where the method believes the class that the audit suggests."""
        return self.believed == found.probabilities.argmax(1)


def _features_defaults(row_shape: tuple[int, ...], n: int) -> dict[str, Any]:  # noqa: ARG001
    """A small perceptron and a few epochs."""
    batch = max(16, min(MAX_BATCH, n // 20))
    epochs = max(EPOCHS, ceil(MIN_STEPS * batch / max(n, batch)))  # an epoch has a step at least
    return {"net": "mlp", "batch_size": batch, "epochs": epochs}


def _end_to_end_defaults(row_shape: tuple[int, ...], n: int) -> dict[str, Any]:  # noqa: ARG001
    """The paper's kind of nets, and fewer epochs than its 200."""
    small = min(row_shape[1:]) < SMALL_IMAGE
    return {"net": "convnet" if small else "resnet10", "batch_size": 128, "epochs": 40}


@dataclass(frozen=True)
class Strategy:
    """How rows of one kind are trained on and judged."""

    train_defaults: Callable[[tuple[int, ...], int], dict[str, Any]]  # by row shape and number
    evidence: Callable[[Trained, Tensor, Labels, AuditConfig, int, bool], Evidence]


STRATEGIES = {
    FEATURES: Strategy(_features_defaults, OutOfFoldEvidence),
    END_TO_END: Strategy(_end_to_end_defaults, EndToEndEvidence),
}


def mode_of(row_shape: tuple[int, ...]) -> str:
    """Vectors are features; images are trained on end to end."""
    return FEATURES if len(row_shape) == 1 else END_TO_END
