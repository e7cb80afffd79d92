"""Hugging Face imagefolder: images beside a metadata.csv, which people fill in and give back."""

from pathlib import Path
from typing import get_args

import pandas as pd

from colafier._io import atomic_folder
from colafier.ingest import table_files
from colafier.ingest.folders import FILE_NAME, METADATA
from colafier.ingest.image_files import is_image_name, suffix_of
from colafier.ingest.output_folder import OutputFolder
from colafier.review.decisions import Choice
from colafier.review.exchange.answers import (
    Answer,
    Answers,
    Known,
    Sheet,
    images,
    written,
)

COPIED = ("original_label", "suggested_label", "confidence", "label_quality", "action", "reason")
SENT, DECISION, FINGERPRINT = "sent_label", "decision", "fingerprint"
CHOICES = get_args(Choice)


def write(sheet: Sheet, path: Path) -> list[Path]:
    """Write a folder with the images and what is known of them; `decision` is left empty."""
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} exists already; remove it, or write to another place")
    with atomic_folder(path) as partial:
        folder = OutputFolder(partial, link=True)
        (partial / METADATA[0]).touch()  # so that no image takes its place
        records = []
        for row, item in images(sheet):
            parts = _parts(sheet.cell(row, "name"), row, item)
            place = folder.put(item, folder.root, parts).relative_to(partial).as_posix()
            label = sheet.cell(row, "label")
            known = {name: sheet.cell(row, name) for name in COPIED}
            own = {DECISION: "", "row": row, SENT: label, FINGERPRINT: sheet.fingerprint}
            records.append({FILE_NAME: place, "label": label, **known, **own})
        columns = (FILE_NAME, "label", *COPIED, DECISION, "row", SENT, FINGERPRINT)
        table = pd.DataFrame(records, columns=list(columns))
        table.to_csv(partial / METADATA[0], index=False, lineterminator="\n")
    return [path]


def read(path: Path, known: Known) -> Answers:
    """Rows with a `decision`, or with a `label` other than the one that was sent.

    Args:
        path: The folder, or its table.
        known: The run that it came from.
    """
    table = path if path.is_file() else _metadata(path)
    frame = table_files.load(table).frame.astype(object)
    if missing := [n for n in (FINGERPRINT, "row", "label", SENT, DECISION) if n not in frame]:
        raise ValueError(f"{table} has no column {missing[0]!r}: it was not sent out by colafier")
    answers, at = Answers(), written(table)
    seen: set[int] = set()
    for number, cells in enumerate(frame.to_dict("records"), 1):
        where = f"{table}, row {number}"
        line = {str(k): "" if table_files.is_missing(v) else str(v) for k, v in cells.items()}
        known.check(line[FINGERPRINT], where)
        row = known.row(line["row"], where)
        if row in seen:
            raise ValueError(f"{where}: row {row} is there twice; leave one of both")
        seen.add(row)
        choice = _choice(line, where)
        if choice:
            answers.found.append(Answer(row, _label(choice, line, row, known, where), at))
    answers.note(len(seen) - len(answers.found), "without a decision")
    return answers


def _choice(line: dict[str, str], where: str) -> str | None:
    """What was decided; a label that was changed says it as well."""
    choice = line[DECISION].strip().lower()
    if choice and choice not in CHOICES:
        raise ValueError(f"{where}: decision is {choice!r}; use {', '.join(CHOICES)} or nothing")
    if not choice and line["label"] != line[SENT]:
        return "other"
    return choice or None


def _label(choice: str, line: dict[str, str], row: int, known: Known, where: str) -> str | None:
    if choice == "exclude":
        return None
    if choice == "keep":
        return known.label(known.lines["original_label"].iat[row], where)
    return known.label(line["suggested_label" if choice == "suggestion" else "label"], where)


def _metadata(folder: Path) -> Path:
    for name in METADATA:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder} has no {METADATA[0]}; give the folder that was sent out")


def _parts(name: str, row: int, item: Path | bytes) -> list[str]:
    """Where an image goes: as it was called, or by its row."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    if isinstance(item, Path):
        return [*parts[:-1], item.name]
    if parts and is_image_name(parts[-1]):
        return parts
    return [f"row{row}{suffix_of(item) or '.bin'}"]
