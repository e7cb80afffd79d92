"""The data of the report page: everything that its scripts show, from the files of a run."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from colafier import __version__
from colafier.audit.policy import KEEP
from colafier.report import figures, headline
from colafier.report.run_files import RunFiles
from colafier.review.decided import REVIEWED_AT, undecided

SCALE = 10_000  # probabilities as whole numbers, which take less room in the page
LABEL_COLUMNS = {
    "original": "original_label",
    "predicted": "predicted_label",
    "suggested": "suggested_label",
    "label": "label",
}
NOT_SHOWN = ("classes",)  # of the config: the page lists them in a figure


def content(run: RunFiles) -> dict[str, Any]:
    """All that the scripts of the page show."""
    lines, truth = run.lines, run.truth
    classes = _classes(lines, run.evidence.get("classes", []))
    open_rows = undecided(lines)
    lid = _numbers(lines["lid"])
    there = lid[np.isfinite(lid)]
    actions, action = _coded(lines["action"])
    reasons, reason = _coded(lines["reason"])
    return {
        "title": run.title,
        "subtitle": run.subtitle,
        "fingerprint": run.summary["fingerprint"],
        "rows": len(lines),
        "classes": classes,
        "actions": actions,
        "reasons": reasons,
        "names": lines["name"].tolist() if lines["name"].ne(lines["row"]).any() else None,
        "columns": {
            **_label_columns(lines, truth, classes),
            "confidence": _scaled(_numbers(lines["confidence"])),
            "quality": _scaled(_numbers(lines["label_quality"])),
            "action": action,
            "reason": reason,
            "lid": [round(v, 2) if np.isfinite(v) else None for v in lid.tolist()],
        },
        "median_lid": round(float(np.median(there)), 2) if len(there) else None,
        "applied": {} if open_rows.all() else lines.loc[~open_rows, REVIEWED_AT].to_dict(),
        "to_review": int((lines["action"].ne(KEEP) & open_rows).sum()),
        "headline": headline.headline(run.summary, lines),
        "scores": headline.against_truth(lines, truth, run.record),
        "evidence": _evidence(run.evidence, open_rows),
        "figures": {
            "lid": figures.lid_histogram(lines, truth),
            "confusion": figures.confusion(lines),
            "per_class": figures.per_class(lines, truth),
            "curves": figures.curves(run.epochs),
        },
        "about": [[title, _flat(values)] for title, values in _about(run) if values],
    }


def _label_columns(
    lines: pd.DataFrame, truth: Sequence[str] | None, classes: Sequence[str]
) -> dict[str, list[int] | None]:
    """For each kind of label the class number of each row, -1: none."""
    place = {name: number for number, name in enumerate(classes)}
    labels: dict[str, Sequence[str] | None] = {
        key: lines[name].tolist() for key, name in LABEL_COLUMNS.items()
    }
    labels["truth"] = truth
    return {
        key: None if values is None else [place.get(value, -1) for value in values]
        for key, values in labels.items()
    }


def _classes(lines: pd.DataFrame, known: Sequence[str]) -> list[str]:
    """The classes of the training, in their order, then other labels that occur."""
    there = {label for name in LABEL_COLUMNS.values() for label in lines[name].unique()}
    return [*known, *sorted(there - {"", *known})]


def _evidence(found: Mapping[str, Any], open_rows: pd.Series) -> dict[str, Any]:
    """The evidence without rows that are already decided."""
    rows = [entry for entry in found.get("rows", ()) if open_rows.iat[entry["row"]]]
    return {"rows": rows, "others": found.get("others"), "typical": found.get("typical")}


def _about(run: RunFiles) -> list[tuple[str, Mapping[str, Any]]]:
    """Titles and values of the settings section."""
    parts = {name: part for name, part in run.config.items() if isinstance(part, Mapping)}
    single = {
        name: value
        for name, value in run.config.items()
        if name not in parts and name not in NOT_SHOWN
    }
    made_by = {**run.evidence.get("versions", {"colafier (of this page)": __version__})}
    return [
        ("Scores", {k: v for k, v in run.record.items() if not isinstance(v, Mapping)}),
        ("Run", single),
        *((name.replace("_", " ").capitalize(), part) for name, part in parts.items()),
        ("Injected noise", run.noise),
        ("Rows", run.summary.get("input", {})),
        ("Versions", {**made_by, "commit": run.evidence.get("commit")}),
    ]


def _flat(values: Mapping[str, Any], before: str = "") -> list[list[str]]:
    """Names and values as text; nested values get a dotted name."""
    found = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{before}{key}.")
        elif value is not None:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            found.append([f"{before}{key}", text])
    return found


def _coded(values: pd.Series) -> tuple[list[str], list[int]]:
    """The distinct texts, and for each row the position of its own."""
    codes, texts = pd.factorize(values)
    return [str(text) for text in texts], codes.tolist()


def _numbers(values: pd.Series) -> npt.NDArray[np.float64]:
    return np.asarray(pd.to_numeric(values, errors="coerce"), dtype=np.float64)


def _scaled(values: npt.NDArray[np.float64]) -> list[int | None]:
    return [round(SCALE * v) if np.isfinite(v) else None for v in values.tolist()]
