"""A method after training, as the audit takes it."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from colafier.methods.contract import Purified
from colafier.nets.normalize import Normalize
from colafier.training.records import History


@dataclass(frozen=True)
class Trained:
    """A method after training, on the CPU."""

    classifier: nn.Module
    normalize: Normalize
    probabilities: Tensor  # (n, c) of the classifier, for all rows
    purified: Purified
    history: History
    resolved: dict[str, Any]  # what settings that leave a choice open came to
    out_of_fold: Tensor | None = None  # (n, c) predictions, if the training has made them
