"""FiftyOne: export samples as JSON, import the tags and labels that people set there.

The file has the format of `Dataset.write_json` and `Dataset.from_json`.
"""

import json
import os
from pathlib import Path
from typing import Any

from colafier._io import atomic_file
from colafier.readers import json_files
from colafier.review.decisions import SAVE_AGAIN
from colafier.review.exchange.answers import Answer, Answers, KnownRows, OutgoingRows, modified_at

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


def write(outgoing: OutgoingRows, path: Path) -> list[Path]:
    """Write samples with original and suggested label, quality, LID, action and reason."""
    content = {
        "name": f"colafier-{outgoing.fingerprint[:8]}",
        "media_type": "image",
        "sample_fields": FIELDS,
        "info": {"fingerprint": outgoing.fingerprint, "classes": outgoing.classes},
        "samples": [_sample(outgoing, row, item) for row, item in outgoing.image_paths()],
    }
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return [path]


def read(path: Path, known: KnownRows) -> Answers:
    """Samples with a label in `decided`, or with one of the tags keep, suggestion and exclude."""
    content = json_files.read(path, Any, SAVE_AGAIN)
    if not isinstance(content, dict) or not isinstance(content.get("samples"), list):
        raise ValueError(f"{path} has no samples; write it with dataset.write_json")
    info = content.get("info")
    known.check(info.get("fingerprint") if isinstance(info, dict) else None, str(path))
    answers, at = Answers(), modified_at(path)
    for number, sample in enumerate(content["samples"], 1):
        where = f"{path}, sample {number}"
        if not isinstance(sample, dict):
            raise ValueError(f"{where} is not an object with named values")
        row = known.row(sample.get(ROW), where)
        answers.mark_seen(row, where)
        if source := _source(sample, where):
            answers.found.append(Answer(row, _label(source, sample, row, known, where), at))
    answers.note(len(answers.seen) - len(answers.found), f"without a label in {DECIDED!r} or a tag")
    return answers


def _sample(outgoing: OutgoingRows, row: int, item: Path) -> dict[str, Any]:
    confidence = outgoing.number(row, "confidence")
    return {
        "filepath": os.path.abspath(item),
        "tags": [],
        "_media_type": "image",
        ROW: row,
        "original": _classification(outgoing.cell(row, "original_label")),
        "suggested": _classification(outgoing.cell(row, "suggested_label"), confidence),
        DECIDED: None,
        "label_quality": outgoing.number(row, "label_quality"),
        "lid": outgoing.number(row, "lid"),
        "action": outgoing.cell(row, "action"),
        "reason": outgoing.cell(row, "reason"),
    }


def _classification(label: str, confidence: float | None = None) -> dict[str, Any] | None:
    if not label:
        return None
    return {"_cls": "Classification", "label": label, "confidence": confidence}


def _source(sample: dict[str, Any], where: str) -> str | None:
    """Where the answer is: one of `TAGS`, or the field `decided`; None if there is no answer."""
    tags = sample.get("tags") or []
    if not isinstance(tags, list):
        raise ValueError(f"{where}: tags must be a list")
    found = [tag for tag in TAGS if tag in tags]
    if sample.get(DECIDED) is not None:
        found.append(DECIDED)
    if len(found) > 1:
        raise ValueError(f"{where} has several answers: {', '.join(found)}; keep one of them")
    return found[0] if found else None


def _label(
    source: str, sample: dict[str, Any], row: int, known: KnownRows, where: str
) -> str | None:
    if source == "exclude":
        return None
    if source == DECIDED:
        decided = sample[DECIDED]
        value = decided.get("label") if isinstance(decided, dict) else decided
    else:
        # from the sample, not from the table: this is what the person saw
        shown = sample.get("original" if source == "keep" else "suggested")
        value = shown.get("label") if isinstance(shown, dict) else None
        if source == "keep":
            value = known.lines["original_label"].iat[row]
    return known.label(value, where)
