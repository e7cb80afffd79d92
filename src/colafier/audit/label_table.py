"""The result table: one line per input row, in input order; names that cleanlab's users know."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from colafier.audit.policy import EXCLUDE, UNUSABLE, Decisions
from colafier.evidence.noise_model import Posterior

COLUMNS = (
    "original_label",
    "predicted_label",
    "suggested_label",
    "confidence",
    "label_quality",
    "is_label_issue",
    "action",
    "label",
    "reason",
    "lid",
    "method_label",
)


def table(
    classes: Sequence[Any],
    original: Tensor,
    found: Posterior,
    decided: Decisions,
    *,
    predicted: Tensor,
    lid: Tensor | None = None,
    method_labels: Tensor | None = None,
) -> pd.DataFrame:
    """All rows with what was found about them.

    Args:
        classes: Class names or values, in their order.
        original: Labels as class numbers (n,), -1 where there is none.
        found: What is believed of the labels.
        decided: What to do with each row.
        predicted: Classes that the classifier predicts (n,).
        lid: Mean LID in training (n,), not a number for rows that were never trained on.
        method_labels: What the method itself believes (n,); None: no method was trained.
    """
    names = np.empty(len(classes) + 1, dtype=object)
    names[:-1] = list(classes)
    names[-1] = None  # -1 takes the last
    has_label = (original >= 0).numpy()
    no_label = torch.full_like(original, -1)
    nan = np.full(len(original), np.nan, dtype=np.float32)
    columns = {
        "original_label": names[original.numpy()],
        "predicted_label": names[predicted.numpy()],
        "suggested_label": names[decided.suggested.numpy()],
        "confidence": decided.confidence.numpy(),
        "label_quality": np.where(has_label, found.quality.numpy(), np.nan),
        "is_label_issue": decided.issue.numpy(),
        "action": decided.action,
        "label": names[decided.labels.numpy()],
        "reason": decided.reason,
        "lid": nan if lid is None else lid.numpy(),
        "method_label": names[(no_label if method_labels is None else method_labels).numpy()],
    }
    return pd.DataFrame({name: columns[name] for name in COLUMNS})


def with_unusable(
    found: pd.DataFrame, rows: Sequence[int], problems: Mapping[int, str], original: Sequence[Any]
) -> pd.DataFrame:
    """The table of all rows, where some could not be used: these come out with their reason.

    Args:
        found: The table of the usable rows.
        rows: Their places among all rows.
        problems: Place and reason of the others.
        original: Original labels of all rows.
    """
    whole = found.set_axis(list(rows)).reindex(range(len(original)))
    places = list(problems)
    if places:
        text = ["original_label", "label", "action", "reason"]
        whole[text] = whole[text].astype(object)
        labels = [original[place] for place in places]
        reasons = [f"{UNUSABLE}: {problems[place]}" for place in places]
        for name, values in zip(text, (labels, labels, EXCLUDE, reasons), strict=True):
            whole.loc[places, name] = values
        whole["is_label_issue"] = whole["is_label_issue"].eq(True)
    return whole
