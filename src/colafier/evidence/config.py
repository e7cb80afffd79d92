"""The constants of the evidence about labels, each with where its value comes from."""

from dataclasses import dataclass
from typing import Annotated, get_type_hints

from colafier._validation import Range, checked

Fraction = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class EvidenceConfig:
    """How out-of-fold predictions are made and used, and what the noise model chooses from.

    Unless a comment says otherwise, a value was tuned on CIFAR-10N `random2` and `random3` (frozen
    features), one seed. docs/purify.md has what was measured with all of them on other label sets.
    """

    # Out-of-fold heads. Three folds or fewer epochs are faster, but cost .4 points of right labels.
    # Small data sets get more epochs, so that each head takes at least `head_min_steps`.
    folds: Annotated[int, Range(2)] = 4
    head_epochs: Annotated[int, Range(1)] = 6
    head_warmup: Annotated[int, Range(1)] = 2  # epochs with generalized cross entropy, of these
    head_min_steps: Annotated[int, Range(1)] = 300

    # Weight of the out-of-fold predictions beside the classifier, which has seen the labels.
    # With 1 (no classifier) average precision falls by .002 and the rate comes out too high.
    out_of_fold_weight: Fraction = 0.7

    # A label may move although the classifier agrees with it (it may have memorized it) if the
    # posterior is at least 1 - leniency x (share of labels that the out-of-fold predictions
    # contradict among the `confident_fraction` of rows they are most confident of). On clean sets
    # that share is about 0, on noisy ones .09 to .26. Leniency 1.5 leaves .1 to .8 points of wrong
    # labels in `random2` and `random3`, 10 breaks 1.6 points with 5 % symmetric noise (4,000 rows).
    # `worst` and `aggregate` were on the same screen when 5 was picked, and are flat from 4 to 6.
    confident_fraction: Fraction = 0.2
    leniency: Annotated[float, Range(0)] = 5.0
    # ... but never out of a class that the out-of-fold heads predict less often than this share of
    # the classifier's predictions: of a rare class they know too little (one imbalanced set).
    familiar_ratio: Annotated[float, Range(0)] = 0.75
    # No label moves out of a class with fewer rows than this: heads that have seen none or hardly
    # any of its rows predict other classes for all of them. Not tuned; one more than the folds.
    min_class_rows: Annotated[int, Range(1)] = 5

    # Candidates of the noise model, the likeliest wins. Larger feature weights explain even clean
    # labels as noise. Inverse temperatures below 0.9 give noise rates that are too low.
    feature_weights: tuple[float, ...] = (0.0, 0.05, 0.1, 0.15, 0.2)
    inverse_temperatures: tuple[float, ...] = (0.9, 1.1, 1.4, 1.8, 2.4, 3.2, 4.2, 5.6, 8.0)

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        checked(vars(self), get_type_hints(type(self), include_extras=True), "setting")
