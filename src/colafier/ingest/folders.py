"""Folders of images: one folder per class, or one folder with a table of metadata."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from colafier.ingest import column_roles, image_files, table_files
from colafier.ingest.column_roles import ReadOptions
from colafier.ingest.dataset import Dataset, counted, listed

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
FILE_NAME = "file_name"  # the column of Hugging Face's imagefolder
SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev"}


def read_folder(source: Path, wanted: ReadOptions) -> Dataset:
    """The images of a folder, with labels from its metadata or from the names of its folders."""
    for name in METADATA:
        if (source / name).is_file():
            table = table_files.load(source / name)
            if FILE_NAME in table.frame.columns:
                return _read_imagefolder(source, table, wanted)
    return _read_class_folders(source, wanted)


def _read_class_folders(source: Path, wanted: ReadOptions) -> Dataset:
    for option in ("image", "text", "features", "label"):
        if getattr(wanted, option) is not None:
            raise ValueError(
                f"{source} is a folder: its images are found by their endings and labeled by the "
                f"name of their folder, so leave out {option}"
            )
    found = sorted(_files(source, frozenset()), key=lambda path: path.relative_to(source).parts)
    images = [path for path in found if image_files.is_image_name(path.name)]
    notes = []
    if others := len(found) - len(images):
        notes.append(f"{counted(others, 'file')} of other kinds left out")
    if wanted.labeled:
        beside = sum(path.parent == source for path in images)
        images = [path for path in images if path.parent != source]
        if beside:
            notes.append(f"{counted(beside, 'image')} outside of the class folders left out")
    original = [_class_of(path, source) for path in images]
    if wanted.labeled:
        _check_classes(source, original, notes)
    folders = {_shown(path.name) for path in source.iterdir() if _is_class_folder(path)}
    if without := sorted(folders - set(original)):
        notes.append(f"{counted(len(without), 'folder')} without images: {listed(without)}")
    names = [_shown(path.relative_to(source).as_posix()) for path in images]
    problems = image_files.problems_of(images)
    return Dataset(
        source, "folder", "image", names, original, images, problems=problems, notes=tuple(notes)
    )


def _check_classes(source: Path, original: list[str | None], notes: list[str]) -> None:
    """Refuse a folder that is not one of class folders; the error says what was found."""
    classes = sorted({label for label in original if label is not None})
    splits = [label for label in classes if label.lower() in SPLITS]
    if classes and len(splits) == len(classes):
        best = next((label for label in splits if label.lower().startswith("train")), splits[0])
        raise ValueError(
            f"{source}: {listed(splits)} are parts of a data set rather than classes; "
            f"give {source / best}"
        )
    if len(classes) < 2:
        content = sorted(_shown(path.name) for path in source.iterdir())
        what = f"it holds {listed(content)}" if content else "it is empty"
        if classes:
            what += f"; images are in {classes[0]} only: there is nothing to learn"
        if notes:
            what += f" ({'; '.join(notes)})"
        raise ValueError(
            f"{source}: expected two or more folders of images, one for each class, or a file "
            f"metadata.csv with a column {FILE_NAME}; {what}"
        )


def _read_imagefolder(source: Path, table: table_files.Table, wanted: ReadOptions) -> Dataset:
    if wanted.text is not None or wanted.features is not None:
        raise ValueError(f"{source} is a folder of images with metadata: leave out text, features")
    if wanted.image not in (None, FILE_NAME):
        raise ValueError(f"{table.path}: images are in column {FILE_NAME}, not {wanted.image!r}")
    roles = column_roles.roles_of(table, replace(wanted, image=FILE_NAME))
    items, names = image_files.from_cells(table.frame[FILE_NAME].tolist(), source)
    original = column_roles.labels_of(table.frame, roles.label, wanted.missing)
    known = {os.path.normpath(item) for item in items if isinstance(item, Path)}
    images = [f for f in _files(source, frozenset()) if image_files.is_image_name(f.name)]
    notes = roles.notes
    if others := sum(os.path.normpath(path) not in known for path in images):
        notes += (f"{counted(others, 'image')} not in {table.path.name} left out",)
    return Dataset(
        source, "imagefolder", "image", names, original, items, roles.label, (FILE_NAME,),
        image_files.problems_of(items), table.frame, table.path, notes, table.dialect,
    )  # fmt: skip


def _files(folder: Path, above: frozenset[Path]) -> Iterator[Path]:
    """All files below a folder except hidden ones; follows links, but not in circles."""
    real = folder.resolve()
    if real in above:
        return
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _files(entry, above | {real})
        else:
            yield entry


def _is_class_folder(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _class_of(path: Path, source: Path) -> str | None:
    parts = path.relative_to(source).parts
    return _shown(parts[0]) if len(parts) > 1 else None


def _shown(name: str) -> str:
    """A name as text that can be stored, also where the bytes on disk are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
