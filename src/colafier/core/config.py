"""Where the paper, the authors' code and we differ: three named sets of choices."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any

from colafier._validation import within


@dataclass(frozen=True)
class Choices:
    """What the text of the paper, the authors' code and our own measurements decide differently.

    docs/variants.md says for each which one is better, with numbers.
    """

    neighbors: int  # k of LID; 0: one for each row, just past the rows that share its label
    joined_views: bool  # whether LID for the weights looks for neighbors in both views together
    soft_prediction: bool  # whether LID-dis is given LID-gen's probabilities instead of its class
    weight_quantile: float  # where the upper quantile of the weights starts
    update_quantile: float  # where the upper quantile of the label update starts
    mix_alpha: float  # of Beta(alpha, alpha)
    consistency_on: str  # `logits` or `probabilities`
    embedding_scale: float = 1.0  # start of the label embedding
    mix_share: float = 1.0  # share of the views that are mixed, drawn by their noisy weight
    class_prior_floor: float = (
        0.0  # no class is predicted less often than this share of its given rows
    )
    patience: int = 1  # epochs in a row that must want the same move
    average: float = 0.0  # epochs over which the deployed LID-gen is averaged; 0: not at all
    rate_floor: float = 1.0  # where the learning rate ends along a half cosine; 1: the run's rate
    holdout: bool = (
        False  # whether some rows are only used to see how far predictions can be trusted
    )

    def __post_init__(self) -> None:
        """Refuse values that have no meaning."""
        within(self.neighbors, 0, inf, "neighbors")
        within(self.patience, 1, inf, "patience")
        within(self.average, 0, inf, "average")
        for name in (
            "weight_quantile",
            "update_quantile",
            "mix_share",
            "class_prior_floor",
            "rate_floor",
        ):
            within(getattr(self, name), 0, 1, name)
        if self.mix_alpha <= 0:
            raise ValueError(f"mix_alpha must be above 0, not {self.mix_alpha}")
        if self.neighbors == 1:
            raise ValueError("neighbors must be 0, for one number per row, or at least 2")


VARIANTS: dict[str, Choices] = {
    "paper": Choices(
        neighbors=20,
        joined_views=False,
        soft_prediction=True,
        weight_quantile=0.05,
        update_quantile=0.5,
        mix_alpha=1.0,
        consistency_on="probabilities",
    ),
    "authors": Choices(
        neighbors=20,
        joined_views=True,
        soft_prediction=False,
        weight_quantile=0.5,
        update_quantile=0.05,
        mix_alpha=5.0,
        consistency_on="logits",
    ),
    "adaptive": Choices(
        neighbors=0,
        joined_views=False,
        soft_prediction=False,
        weight_quantile=0.5,
        update_quantile=0.05,
        mix_alpha=5.0,
        consistency_on="logits",
        embedding_scale=0.2,
        mix_share=0.5,
        class_prior_floor=0.7,
        patience=2,
        average=1.0,
        rate_floor=0.02,
        holdout=True,
    ),
}

CHOICE_NAMES = tuple(field.name for field in fields(Choices))


def choose(variant: str, single: Mapping[str, Any]) -> Choices:
    """A variant's choices with single ones overruled, where these are not None."""
    if variant not in VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(VARIANTS)}")
    observed = {name: value for name, value in single.items() if value is not None}
    return replace(VARIANTS[variant], **observed)
