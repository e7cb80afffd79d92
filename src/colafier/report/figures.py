"""The numbers behind the figures of the report and of `colafier.report.plots`.

Tables are labels.csv as text: `original_label` and `label` are empty where there is no label.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

BINS = 30
MIN_ROWS = 10  # a smaller group has no distribution to show
MAX_CLASSES = 24  # in a heat map; of more, those with the most changes
METHOD_LABEL = "method_label"  # in some tables: the label that the method itself ended with
CURVES = ("loss", "test_accuracy", "label_accuracy", "lid_auroc", "labels_changed")

Mask = npt.NDArray[np.bool_]


def lid_groups(lines: pd.DataFrame, truth: Sequence[str] | None = None) -> dict[str, Mask]:
    """Rows with kept and with changed labels, split by the truth if it is known."""
    labeled = lines["original_label"].ne("").to_numpy()
    changed = lines["label"].ne(lines["original_label"]).to_numpy() & labeled
    if truth is None:
        return {"kept": labeled & ~changed, "changed": changed}
    right = lines["original_label"].to_numpy() == np.asarray(truth, dtype=object)
    return {
        "kept, original label right": labeled & ~changed & right,
        "kept, original label wrong": labeled & ~changed & ~right,
        "changed, original label wrong": changed & ~right,
        "changed, original label right": changed & right,
    }


def lid_histogram(
    lines: pd.DataFrame, truth: Sequence[str] | None = None, bins: int = BINS
) -> dict[str, Any] | None:
    """Counts of LID for each group, in bins of equal ratio; the last bin holds the long tail.

    None if no row has a LID.
    """
    values = pd.to_numeric(lines["lid"], errors="coerce").to_numpy(float)
    there = values[np.isfinite(values)]
    if not len(there):
        return None
    low = max(float(there.min()), 1e-6)
    edges = np.geomspace(low, max(float(np.quantile(there, 0.99)), 1.001 * low), bins + 1)
    clipped = np.clip(values, edges[0], edges[-1])
    groups = {
        name: np.histogram(clipped[mask & np.isfinite(values)], edges)[0].tolist()
        for name, mask in lid_groups(lines, truth).items()
    }
    return {"edges": edges.round(4).tolist(), "groups": groups, "min_rows": MIN_ROWS}


def confusion(lines: pd.DataFrame, limit: int = MAX_CLASSES) -> dict[str, Any]:
    """How often each original label became each label; of many classes, those with most changes."""
    known = lines[lines["original_label"].ne("")]
    counts = pd.crosstab(known["original_label"], known["label"])
    classes = _sorted(set(counts.index) | set(counts.columns))
    counts = counts.reindex(index=classes, columns=classes, fill_value=0)
    values = counts.to_numpy()
    left_out = 0
    if len(classes) > limit:
        moves = values.sum(0) + values.sum(1) - 2 * np.diag(values)
        keep = np.sort(np.argsort(-moves, kind="stable")[:limit])
        left_out = len(classes) - limit
        classes, values = [classes[place] for place in keep], values[np.ix_(keep, keep)]
    return {"classes": classes, "counts": values.tolist(), "left_out": left_out}


def per_class(lines: pd.DataFrame, truth: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """For each class: rows before and after, expected wrong labels, moves, and true shares."""
    known = lines[lines["original_label"].ne("")]
    wrong = 1 - pd.to_numeric(known["label_quality"], errors="coerce").fillna(1.0)
    moved = known["label"].ne(known["original_label"])
    before, after = known["original_label"].value_counts(), known["label"].value_counts()
    expected = wrong.groupby(known["original_label"]).sum()
    out = known.loc[moved, "original_label"].value_counts()
    into = known.loc[moved, "label"].value_counts()
    right = None
    if truth is not None:
        true = pd.Series(list(truth), index=lines.index)[known.index]
        right = [
            (known[column] == true).groupby(known[column]).mean()
            for column in ("original_label", "label")
        ]
    found = []
    for name in _sorted(set(before.index) | set(after.index)):
        entry = {
            "class": name,
            "before": int(before.get(name, 0)),
            "after": int(after.get(name, 0)),
            "expected_wrong": round(float(expected.get(name, 0.0)), 1),
            "moved_out": int(out.get(name, 0)),
            "moved_in": int(into.get(name, 0)),
        }
        if right is not None:
            entry["right_before"], entry["right_after"] = (
                round(float(part[name]), 4) if name in part.index else None for part in right
            )
        found.append(entry)
    return found


def against_truth(lines: pd.DataFrame, truth: Sequence[str]) -> dict[str, int]:
    """Counts of rows whose original label and truth are known; empty if there are none."""
    true, original, label = (
        np.asarray(values, dtype=object)
        for values in (truth, lines["original_label"], lines["label"])
    )
    known = (true != "") & (original != "")
    if not known.any():
        return {}
    was_right, is_right, changed = original == true, label == true, original != label
    counts = {
        "rows": known,
        "wrong": ~was_right,
        "changed": changed,
        "hits": changed & ~was_right,
        "fixed": ~was_right & is_right,
        "broken": was_right & ~is_right,
        "right": is_right,
    }
    if METHOD_LABEL in lines:
        counts["method_right"] = np.asarray(lines[METHOD_LABEL], dtype=object) == true
    return {name: int((mask & known).sum()) for name, mask in counts.items()}


def curves(epochs: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Metrics over the epochs, without those that no epoch has."""
    found = {name: [epoch.get(name) for epoch in epochs] for name in CURVES}
    return {name: values for name, values in found.items() if any(v is not None for v in values)}


def _sorted(classes: set[str]) -> list[str]:
    """Class names in order, with numbers as numbers: 2 before 10."""
    if all(name.isdecimal() for name in classes):
        return sorted(classes, key=lambda name: (int(name), name))
    return sorted(classes)
