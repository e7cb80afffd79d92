"""What a run leaves in its folder: table, summary, model, report, purified data."""

import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from colafier._io import atomic_file, write_json
from colafier.audit.label_table import table, with_unusable
from colafier.audit.pipeline import AuditResult, TrainConfig
from colafier.audit.policy import EXCLUDE
from colafier.embed import encode
from colafier.ingest.write_back import write_back
from colafier.report import evidence, page
from colafier.report.snippets import of_collection
from colafier.workflows import run_dir
from colafier.workflows.labeled_data import LabeledData
from colafier.workflows.model_store import StoredModel, save
from colafier.workflows.run_dir import (
    CONFIG,
    DATA,
    LABELS,
    MODEL,
    SUMMARY,
)


def table_of(data: LabeledData, judged: AuditResult) -> pd.DataFrame:
    """All rows in input order, also those that could not be used."""
    found = table(
        data.classes,
        data.observed,
        judged.p.argmax(1),
        judged.found.quality,
        judged.decided,
        judged.lid,
    )
    lines = with_unusable(found, data.rows.rows, data.rows.problems, data.dataset.original)
    lines.insert(0, "row", range(len(lines)))
    lines.insert(1, "name", data.dataset.names)
    return lines


def summarize(data: LabeledData, judged: AuditResult, lines: pd.DataFrame) -> dict[str, Any]:
    """What a person wants to know first, and what a later check compares with."""
    found = judged.found
    actions = lines["action"].value_counts()
    labeled = int((data.observed >= 0).sum())
    reviewed = 0 if data.trusted is None else int(data.trusted.sum())
    return {
        "fingerprint": data.dataset.fingerprint(),
        "rows": len(data.dataset),
        "labeled": labeled,
        "trusted": reviewed,
        "unusable": len(data.rows.problems),
        "classes": judged.p.shape[1],
        "estimated_noise_rate": round(found.rate, 4),
        "estimated_noise_interval": [round(bound, 4) for bound in found.interval],
        "estimated_wrong_labels": round(found.rate * (labeled - reviewed)),  # of the others
        "actions": {str(name): int(count) for name, count in actions.items()},
        **{
            name: round(value)
            for name, value in judged.decided.expected(data.observed, found.quality).items()
        },
        "accuracy_on_unseen_original_labels": _rounded(judged.agreement),
        "implied_accuracy": _rounded(_implied(judged.agreement, found.rate)),
        "input": data.rows.input,
    }


def _implied(agreement: float | None, rate: float) -> float | None:
    """Accuracy on the truth, if errors of classifier and labels were independent: a floor."""
    return None if agreement is None else min(agreement / max(1 - rate, 1e-6), 1.0)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def write(
    out: Path,
    config: Mapping[str, Any],
    data: LabeledData,
    how: TrainConfig,
    judged: AuditResult,
    lines: pd.DataFrame,
    summary: dict[str, Any],
    form: str | None = None,
) -> None:
    """All files of a run; each appears whole or not at all, the summary last.

    Args:
        out: Folder of the run.
        config: What the run was started with.
        data: What it learned from.
        how: How it learned.
        judged: What came of it.
        lines: The table of all rows.
        summary: What a person wants to know first.
        form: In which the purified data set is written as well; None: not at all.
    """
    rows = data.rows
    with atomic_file(out / LABELS) as path:
        lines.to_csv(path, index=False, float_format="%.6g")
    model = StoredModel(
        classifier=judged.classifier,
        normalize=judged.normalize,
        classes=tuple(data.classes),
        row_shape=tuple(rows.x.shape[1:]),
        input=rows.input,
        method=how.method,
        hyper=dict(how.hyper),
        net=str(how.net),
        epochs=how.epochs,
        about={k: v for k, v in summary.items() if k != "input"},
    )
    shutil.rmtree(out / MODEL, ignore_errors=True)
    save(model, out / MODEL, files=rows.files)
    if form:
        run_dir.remove_data(out)
        keep = np.asarray(lines["action"] != EXCLUDE).tolist()
        labels = [None if pd.isna(label) else str(label) for label in lines["label"]]
        write_back(data.dataset, labels, keep, out / DATA, form, link=True)
    recipe = {**asdict(how), "hyper": dict(how.hyper)}
    write_json(out / CONFIG, {**config, "classes": data.classes, "recipe": recipe})
    known = judged.known(data.classes, rows.rows, rows.x, data.observed)
    why = evidence.gather(known, evidence.doubtful(lines), of_collection(data.dataset))
    evidence.write(out, why)
    page.write(out, summary)
    (out / encode.PIXELS).unlink(missing_ok=True)
    run_dir.remove_partial(out)
    write_json(out / SUMMARY, summary)
