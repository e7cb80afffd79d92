"""The output files of a run: label table, summary, model, report and purified data set."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from colafier._io import atomic_file, write_json
from colafier.audit.label_table import table, with_unusable
from colafier.audit.pipeline import AuditResult
from colafier.audit.policy import EXCLUDE
from colafier.embed import encode
from colafier.ingest.dataset import Dataset
from colafier.ingest.write_back import write_back
from colafier.ingest.write_tables import SourceChangedError
from colafier.report import evidence, page
from colafier.report.snippets import of_dataset
from colafier.review.decided import DecidedRows
from colafier.training.config import TrainConfig
from colafier.workflows import run_dir
from colafier.workflows.labeled_data import LabeledData
from colafier.workflows.model_store import StoredModel, save
from colafier.workflows.model_store.architectures import unstorable
from colafier.workflows.run_dir import DATA, LABELS, MODEL, RECORD, SUMMARY

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: the table of all rows, and the summary."""

    table: pd.DataFrame
    summary: dict[str, Any]


@dataclass(frozen=True)
class Outputs:
    """A finished run before it is written."""

    data: LabeledData
    config: TrainConfig
    result: AuditResult
    decided: DecidedRows | None = None
    form: str | None = None  # of the purified data set (folder, csv, ...); None: not written
    record: dict[str, Any] | None = None  # scores against the truth, if it is known
    truth: Sequence[int] | None = None  # true classes, for the report only

    def outcome(self) -> Outcome:
        """The table of all rows, and the summary."""
        lines = label_table(self.data, self.result)
        if self.decided is not None:
            lines = self.decided.carry_over(lines)
        return Outcome(lines, summarize(self.data, self.result, lines))

    def write(self, out: Path) -> Outcome:
        """Write all files, each complete or not at all, and the summary last."""
        made = self.outcome()
        lines, summary, rows = made.table, made.summary, self.data.rows
        with atomic_file(out / LABELS) as path:
            lines.to_csv(path, index=False, float_format="%.6g")
        shutil.rmtree(out / MODEL, ignore_errors=True)
        if problem := unstorable(self.result.classifier, self.config.net):
            log.warning("no model is stored: %s", problem)
        else:
            save(self._model(summary), out / MODEL, files=rows.files)
        if self.form:
            run_dir.remove_data(out)
            keep = np.asarray(lines["action"] != EXCLUDE).tolist()
            labels = [None if pd.isna(label) else str(label) for label in lines["label"]]
            _write_back(self.data.dataset, labels, keep, out / DATA, self.form)
        snippets = of_dataset(self.data.dataset)
        top = evidence.doubtful(lines)
        evidence.write(out, evidence.gather(self._known(), top, snippets, truth=self.truth))
        if self.record is not None:
            write_json(out / RECORD, self.record)
        page.write(out, summary)
        (out / encode.PIXELS).unlink(missing_ok=True)
        write_json(out / SUMMARY, summary)
        return made

    def _model(self, summary: dict[str, Any]) -> StoredModel:
        return StoredModel(
            classifier=self.result.classifier,
            normalize=self.result.normalize,
            classes=tuple(self.data.classes),
            row_shape=self.data.row_shape,
            input=self.data.rows.input,
            method=self.config.method,
            hyper=dict(self.config.hyper),
            net=self.config.net_name,
            epochs=self.config.epochs,
            about={k: v for k, v in summary.items() if k != "input"},
        )

    def _known(self) -> evidence.TrainedRows:
        """What the report shows as evidence about the rows that were trained on."""
        result = self.result
        return evidence.TrainedRows(
            classes=self.data.classes,
            rows=self.data.rows.rows,
            x=self.data.rows.x,
            original=self.data.labels.observed,
            suggested=result.decided.suggested,
            classifier=result.classifier,
            normalize=result.normalize,
            votes=result.votes,
            trajectory=result.trajectory,
        )


def _write_back(
    dataset: Dataset, labels: Sequence[str | None], keep: Sequence[bool], path: Path, form: str
) -> None:
    """Write the purified data set; what changed under the run is left out, and said."""
    try:
        done = write_back(dataset, labels, keep, path, form, link=True)
    except SourceChangedError as error:
        log.warning("the purified data set is not written: %s", error)
        return
    if done.changed:
        log.warning(
            "%s has %d of %d rows: %d images are gone or were changed during the run",
            *(done.path, done.rows, done.rows + done.changed, done.changed),
        )


def label_table(data: LabeledData, result: AuditResult) -> pd.DataFrame:
    """The table of all rows in input order, including rows that could not be used."""
    found = table(
        data.classes,
        data.labels.observed,
        result.found,
        result.decided,
        predicted=result.predicted,
        lid=result.lid,
        method_labels=result.method_labels,
    )
    lines = with_unusable(found, data.rows.rows, data.rows.problems, data.dataset.original)
    lines.insert(0, "row", range(len(lines)))
    lines.insert(1, "name", data.dataset.names)
    return lines


def summarize(data: LabeledData, result: AuditResult, lines: pd.DataFrame) -> dict[str, Any]:
    """The content of summary.json: counts, the estimated noise rate, and the fingerprint."""
    found, labels = result.found, data.labels
    actions = lines["action"].value_counts()
    labeled, reviewed = int(labels.labeled.sum()), int(labels.trusted.sum())
    expected = result.decided.expected(labels.observed, found.quality)
    return {
        "fingerprint": data.dataset.fingerprint(),
        "rows": len(data.dataset),
        "labeled": labeled,
        "trusted": reviewed,
        "unusable": len(data.rows.problems),
        "classes": len(data.classes),
        "estimated_noise_rate": round(found.rate, 4),
        "estimated_noise_interval": [round(bound, 4) for bound in found.interval],
        "estimated_wrong_labels": round(found.rate * (labeled - reviewed)),
        "actions": {str(name): int(count) for name, count in actions.items()},
        **{name: round(value) for name, value in expected.items()},
        "accuracy_on_unseen_observed_labels": _rounded(result.agreement),
        "implied_accuracy": _rounded(_implied(result.agreement, found.rate)),
        "input": data.rows.input,
    }


def _implied(agreement: float | None, rate: float) -> float | None:
    """A lower bound of the true accuracy, if classifier and labels err independently."""
    return None if agreement is None else min(agreement / max(1 - rate, 1e-6), 1.0)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
