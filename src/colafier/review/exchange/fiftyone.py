"""FiftyOne: samples with fields as JSON, and what people tagged or set there read back.

The file is what `Dataset.write_json` writes and `Dataset.from_json` reads.
"""

import json
import os
from pathlib import Path
from typing import Any

from colafier._io import atomic_file
from colafier.review.decisions import strict_json
from colafier.review.exchange.answers import (
    Answer,
    Answers,
    Known,
    Sheet,
    image_paths,
    written,
)

ROW, DECIDED = "colafier_row", "decided"
TAGS = ("keep", "suggestion", "exclude")  # what people may tag a sample with
FIELD = "fiftyone.core.fields."
LABEL = f"{FIELD}EmbeddedDocumentField(fiftyone.core.labels.Classification)"
FIELDS = {
    "filepath": f"{FIELD}StringField",
    "tags": f"{FIELD}ListField({FIELD}StringField)",
    ROW: f"{FIELD}IntField",
    "original": LABEL,
    "suggested": LABEL,
    DECIDED: LABEL,
    "label_quality": f"{FIELD}FloatField",
    "lid": f"{FIELD}FloatField",
    "action": f"{FIELD}StringField",
    "reason": f"{FIELD}StringField",
}


def write(sheet: Sheet, path: Path) -> list[Path]:
    """Write the samples with given and suggested label, quality, LID, action and reason."""
    content = {
        "name": f"colafier-{sheet.fingerprint[:8]}",
        "media_type": "image",
        "sample_fields": FIELDS,
        "info": {"fingerprint": sheet.fingerprint, "classes": sheet.classes},
        "samples": [_sample(sheet, row, item) for row, item in image_paths(sheet)],
    }
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return [path]


def read(path: Path, known: Known) -> Answers:
    """Samples with a label in `decided`, or with one of the tags keep, suggestion and exclude."""
    content = strict_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("samples"), list):
        raise ValueError(f"{path} has no samples; write it with dataset.write_json")
    info = content.get("info")
    known.check(info.get("fingerprint") if isinstance(info, dict) else None, str(path))
    answers, at = Answers(), written(path)
    seen: set[int] = set()
    for number, sample in enumerate(content["samples"], 1):
        where = f"{path}, sample {number}"
        if not isinstance(sample, dict):
            raise ValueError(f"{where} is not an object with named values")
        row = known.row(sample.get(ROW), where)
        if row in seen:
            raise ValueError(f"{where}: row {row} is there twice; leave one of both")
        seen.add(row)
        if said := _said(sample, where):
            answers.found.append(Answer(row, _label(said, sample, row, known, where), at))
    answers.note(len(seen) - len(answers.found), f"without a label in {DECIDED!r} or a tag")
    return answers


def _sample(sheet: Sheet, row: int, item: Path) -> dict[str, Any]:
    confidence = sheet.number(row, "confidence")
    return {
        "filepath": os.path.abspath(item),
        "tags": [],
        "_media_type": "image",
        ROW: row,
        "original": _classification(sheet.cell(row, "original_label")),
        "suggested": _classification(sheet.cell(row, "suggested_label"), confidence),
        DECIDED: None,
        "label_quality": sheet.number(row, "label_quality"),
        "lid": sheet.number(row, "lid"),
        "action": sheet.cell(row, "action"),
        "reason": sheet.cell(row, "reason"),
    }


def _classification(label: str, confidence: float | None = None) -> dict[str, Any] | None:
    if not label:
        return None
    return {"_cls": "Classification", "label": label, "confidence": confidence}


def _said(sample: dict[str, Any], where: str) -> str | None:
    """The one tag of ours, or that a label was set; None if a person said nothing."""
    tags = sample.get("tags") or []
    if not isinstance(tags, list):
        raise ValueError(f"{where}: tags must be a list")
    said = [tag for tag in TAGS if tag in tags]
    if sample.get(DECIDED) is not None:
        said.append(DECIDED)
    if len(said) > 1:
        raise ValueError(f"{where} says {' and '.join(said)}; leave one of them")
    return said[0] if said else None


def _label(said: str, sample: dict[str, Any], row: int, known: Known, where: str) -> str | None:
    if said == "exclude":
        return None
    if said == DECIDED:
        decided = sample[DECIDED]
        value = decided.get("label") if isinstance(decided, dict) else decided
    else:
        # of the sample, not of the table: this is what the person saw
        shown = sample.get("original" if said == "keep" else "suggested")
        value = shown.get("label") if isinstance(shown, dict) else None
        if said == "keep":
            value = known.lines["original_label"].iat[row]
    return known.label(value, where)
