"""CVAT: export as a zip in its ImageNet layout, import the same or the layout without images.

The zip is not unpacked: only names are read. Each name holds the row and the fingerprint of the
data set, because CVAT keeps nothing else.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from colafier._io import atomic_file
from colafier.ingest.dataset import counted
from colafier.ingest.image_files import is_image_name, suffix_of
from colafier.ingest.output_folder import safe_name
from colafier.readers import archives
from colafier.readers.json_files import MAX_BYTES
from colafier.review.exchange.answers import Answer, Answers, KnownRows, OutgoingRows, modified_at

NUMBER = re.compile(r"[0-9]{1,9}")
SYNSETS = "synsets.txt"
NO_LABEL = "no_label"  # the folder of images without a label
EXCLUDE = "colafier-exclude"  # a label that people may add in CVAT
NAME = re.compile(r"(?:.*[_:])?row(\d{1,12})-([0-9a-f]{8})", re.DOTALL)  # CVAT adds labels in front


def write(outgoing: OutgoingRows, path: Path) -> list[Path]:
    """Write a zip with each image in the folder of its suggested label."""
    folders = folder_names(outgoing.classes)
    with atomic_file(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
        for row, item in outgoing.images():
            label = outgoing.cell(row, "suggested_label") or outgoing.cell(row, "original_label")
            folder = folders[label] if label else NO_LABEL
            suffix = item.suffix.lower() if isinstance(item, Path) else suffix_of(item) or ".bin"
            name = f"{folder}/row{row}-{outgoing.fingerprint[:8]}{suffix}"
            content = item.read_bytes() if isinstance(item, Path) else item
            archive.writestr(zipfile.ZipInfo(name), content)
    return [path]


def read(path: Path, known: KnownRows) -> Answers:
    """The labels of all images in an export; each of them counts as reviewed."""
    labels = {folder: label for label, folder in folder_names(known.classes).items()}
    answers, at = Answers(), modified_at(path)
    seen: dict[int, str | None] = {}
    foreign = unlabeled = 0
    for name, folder in _entries(path):
        found = NAME.fullmatch(PurePosixPath(name).stem)
        if found is None:
            foreign += 1
            continue
        if found[2] != known.fingerprint[:8]:
            known.check(f"{found[2]}...", str(path))
        row = known.row(found[1], f"{path}, {name}")
        if folder == NO_LABEL and NO_LABEL not in labels:
            unlabeled += 1
            continue
        label = None
        if folder != EXCLUDE:
            label = labels.get(folder) or known.label(folder, f"{path}, {name}")
        if row in seen and seen[row] != label:
            raise ValueError(f"{path}: row {row} has two labels; remove one of them in CVAT")
        seen[row] = label
    if not seen:
        raise ValueError(f"{path} has no image of this run; export from CVAT as ImageNet")
    answers.found = [Answer(row, label, at) for row, label in seen.items()]
    answers.note(unlabeled, "without a label")
    if foreign:
        answers.notes.append(f"{counted(foreign, 'image')} skipped: not of this run")
    return answers


def folder_names(classes: list[str]) -> dict[str, str]:
    """A folder name for each class: made safe, and numbered if another class has the same."""
    found: dict[str, str] = {}
    taken = {EXCLUDE}
    for label in classes:
        name, number = safe_name(label), 1
        while name.casefold() in taken:  # some systems do not tell upper from lower case
            number += 1
            name = f"{safe_name(label)}_{number}"
        taken.add(name.casefold())
        found[label] = name
    return found


def _entries(path: Path) -> Iterator[tuple[str, str]]:
    """The name and the label of each image."""
    with archives.opened(path) as archive:
        files = [entry for entry in archive.infolist() if not entry.is_dir()]
        synsets = [e for e in files if PurePosixPath(e.filename).name == SYNSETS]
        if synsets:
            labels = _lines(archive, synsets[0])
            texts = [e for e in files if e.filename.endswith(".txt") and e not in synsets]
            yield from _listed(archive, texts, labels)
            return
        for entry in files:
            parts = PurePosixPath(entry.filename).parts
            if len(parts) > 1 and is_image_name(parts[-1]):
                yield parts[-1], parts[-2]


def _listed(
    archive: zipfile.ZipFile, texts: list[zipfile.ZipInfo], labels: list[str]
) -> Iterator[tuple[str, str]]:
    """The entries of an export without images: lines with a name and a label number."""
    for text in texts:
        for number, line in enumerate(_lines(archive, text), 1):
            name, *numbers = line.rsplit(" ", 1) if " " in line else [line]
            if not numbers:
                yield PurePosixPath(name).name, NO_LABEL
                continue
            place = numbers[0]
            if not NUMBER.fullmatch(place) or int(place) >= len(labels):
                raise ValueError(f"{text.filename}, line {number}: no label has number {place!r}")
            yield PurePosixPath(name).name, labels[int(place)]


def _lines(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> list[str]:
    content = archives.read_entry(archive, entry, MAX_BYTES)
    return [line for line in content.decode("utf-8").splitlines() if line.strip()]
