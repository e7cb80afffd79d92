"""Hugging Face imagefolder: export images with a metadata.csv, import it once it is filled in."""

from pathlib import Path
from typing import get_args

import pandas as pd

from colafier._io import atomic_folder
from colafier.ingest import table_files
from colafier.ingest.folders import FILE_NAME, METADATA
from colafier.ingest.image_files import is_image_name, suffix_of
from colafier.ingest.output_folder import OutputFolder
from colafier.review.decisions import Choice
from colafier.review.exchange.answers import Answer, Answers, KnownRows, OutgoingRows, modified_at

COPIED = ("original_label", "suggested_label", "confidence", "label_quality", "action", "reason")
SENT, DECISION, FINGERPRINT = "sent_label", "decision", "fingerprint"
CHOICES = get_args(Choice)


def write(outgoing: OutgoingRows, path: Path) -> list[Path]:
    """Write a folder with the images and what was found about them; `decision` is left empty."""
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} already exists; remove it, or choose another folder")
    with atomic_folder(path) as partial:
        folder = OutputFolder(partial, link=True)
        (partial / METADATA[0]).touch()  # so that no image takes its name
        records = []
        for row, item in outgoing.images():
            parts = _parts(outgoing.cell(row, "name"), row, item)
            place = folder.put(item, folder.root, parts).relative_to(partial).as_posix()
            label = outgoing.cell(row, "label")
            known = {name: outgoing.cell(row, name) for name in COPIED}
            own = {DECISION: "", "row": row, SENT: label, FINGERPRINT: outgoing.fingerprint}
            records.append({FILE_NAME: place, "label": label, **known, **own})
        columns = (FILE_NAME, "label", *COPIED, DECISION, "row", SENT, FINGERPRINT)
        table = pd.DataFrame(records, columns=list(columns))
        table.to_csv(partial / METADATA[0], index=False, lineterminator="\n")
    return [path]


def read(path: Path, known: KnownRows) -> Answers:
    """Rows with a `decision`, or with a `label` that was changed.

    Args:
        path: The folder, or its table.
        known: The run that it was exported from.
    """
    table = path if path.is_file() else _metadata(path)
    frame = table_files.load(table).frame.astype(object)
    if missing := [n for n in (FINGERPRINT, "row", "label", SENT, DECISION) if n not in frame]:
        raise ValueError(f"{table} has no column {missing[0]!r}: it was not exported by colafier")
    answers, at = Answers(), modified_at(table)
    for number, cells in enumerate(frame.to_dict("records"), 1):
        where = f"{table}, row {number}"
        line = {str(k): "" if table_files.is_missing(v) else str(v) for k, v in cells.items()}
        known.check(line[FINGERPRINT], where)
        row = known.row(line["row"], where)
        answers.mark_seen(row, where)
        choice = _choice(line, where)
        if choice:
            answers.found.append(Answer(row, _label(choice, line, row, known, where), at))
    answers.note(len(answers.seen) - len(answers.found), "without a decision")
    return answers


def _choice(line: dict[str, str], where: str) -> str | None:
    """What was decided; a changed label counts as a decision."""
    choice = line[DECISION].strip().lower()
    if choice and choice not in CHOICES:
        raise ValueError(
            f"{where}: decision is {choice!r}; use {', '.join(CHOICES)} or leave it empty"
        )
    if not choice and line["label"] != line[SENT]:
        return "other"
    return choice or None


def _label(choice: str, line: dict[str, str], row: int, known: KnownRows, where: str) -> str | None:
    if choice == "exclude":
        return None
    if choice == "keep":
        return known.label(known.lines["original_label"].iat[row], where)
    return known.label(line["suggested_label" if choice == "suggestion" else "label"], where)


def _metadata(folder: Path) -> Path:
    for name in METADATA:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder} has no {METADATA[0]}; give the folder that was exported")


def _parts(name: str, row: int, item: Path | bytes) -> list[str]:
    """The path of an image in the folder: its old name, or one with its row."""
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    if isinstance(item, Path):
        return [*parts[:-1], item.name]
    if parts and is_image_name(parts[-1]):
        return parts
    return [f"row{row}{suffix_of(item) or '.bin'}"]
