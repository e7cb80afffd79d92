"""Writing a user's data set in its own format with other labels; the source is not changed.

The output appears whole or not at all. Names and labels come from outside, so paths that are made
of them are cleaned and never leave the output folder.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from colafier._io import atomic_file, atomic_folder
from colafier.ingest import image_files, table_files, write_tables
from colafier.ingest.dataset import Dataset
from colafier.ingest.output_folder import OutputFolder

FORMS = ("folder", "csv", "parquet", "npz")
# problems of images that cannot be written
NOTHING_TO_WRITE = (image_files.NO_IMAGE, image_files.NO_FILE, image_files.NOT_A_FILE)

LabelTexts = Sequence[str | None]


@dataclass
class Written:
    """What was written, and what was not."""

    path: Path
    rows: int = 0
    excluded: int = 0  # by `keep`
    without_label: int = 0  # left out, as a class folder needs one
    without_file: int = 0  # left out, as there is no image to write
    changed: int = 0  # left out, as the image is gone or another one since the data set was read
    linked: int = 0
    copied: int = 0
    renamed: dict[str, str] = field(default_factory=dict)  # class -> its folder, if they differ


def write_back(
    dataset: Dataset,
    labels: LabelTexts,
    keep: Sequence[bool],
    out: Path,
    form: str,
    link: bool,
) -> Written:
    """Write the rows to keep with their new labels; column `original_label` gets the old ones.

    Args:
        dataset: What was read.
        labels: One per row; None gives an empty cell, and leaves a row out of class folders.
        keep: Which rows are written.
        out: The folder or file to write; a file gets the usual ending if it has another one.
        form: folder (class folders, or images and metadata if the source is such), csv, parquet or
            npz.
        link: Whether images become hard links where the file system allows it, not copies.
    """
    _check(dataset, labels, keep, form)
    out = _place(dataset, out, form)
    rows = [row for row in range(len(dataset)) if keep[row]]
    done = Written(out, excluded=len(dataset) - len(rows))
    if form == "folder":
        changed = dataset.changed_files()
        done.changed = len(changed.intersection(rows))
        rows = [row for row in rows if row not in changed]
        with atomic_folder(out) as partial:
            folder = OutputFolder(partial, link)
            write = _imagefolder if dataset.layout == "imagefolder" else _class_folders
            write(dataset, labels, rows, folder, done)
        done.linked, done.copied = folder.linked, folder.copied
        return done
    done.rows = len(rows)
    with atomic_file(out) as partial:
        if form == "npz":
            write_tables.save_npz(dataset, labels, rows, partial)
            return done
        frame = write_tables.relabeled(dataset, labels)
        frame = write_tables.with_absolute_paths(dataset, frame).iloc[rows]
        save = {"csv": write_tables.save_csv, "parquet": write_tables.save_parquet}
        save[form](dataset, frame, partial)
    return done


def check_form(dataset: Dataset, form: str) -> None:
    """Refuse a form that this data set cannot be written in."""
    if form not in FORMS:
        raise ValueError(f"no form {form!r}; there are {', '.join(FORMS)}")
    if (form == "npz") != (dataset.layout == "npz"):
        use = "npz" if dataset.layout == "npz" else "folder, csv or parquet"
        raise ValueError(f"a source of layout {dataset.layout} is not written as {form}: {use}")
    if form == "folder" and dataset.kind != "image":
        raise ValueError(f"{dataset.kind} rows are not written as folder: use csv or parquet")
    if form == "parquet":
        table_files.pyarrow()  # its error says what to install
    if form == "csv" and dataset.frame is not None:
        write_tables.check_csv(dataset.frame)


def _check(dataset: Dataset, labels: LabelTexts, keep: Sequence[bool], form: str) -> None:
    n = len(dataset)
    if len(labels) != n or len(keep) != n:
        raise ValueError(f"{n} rows, but {len(labels)} labels and {len(keep)} values of keep")
    check_form(dataset, form)
    if any(label is not None and not label.strip() for label in labels):
        raise ValueError("a label is empty; use None for rows without a label")


def _place(dataset: Dataset, out: Path, form: str) -> Path:
    """The path to write to, which must be free and outside of the source."""
    suffix = "" if form == "folder" else f".{form}"
    if form == "csv" and dataset.dialect.separator == "\t":
        suffix = ".tsv"
    if suffix and out.suffix.lower() != suffix:
        out = out.with_name(out.name + suffix)
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"{out} exists already; remove it, or write to another place")
    source = dataset.source.resolve()
    if source.is_dir() and out.resolve().is_relative_to(source):
        raise ValueError(f"{out} is inside of the source {source}, which must not change")
    return out


def _class_folders(
    dataset: Dataset, labels: LabelTexts, rows: list[int], folder: OutputFolder, done: Written
) -> None:
    for row in rows:
        label, item = labels[row], dataset.items[row]
        if image_files.problem_of(item) in NOTHING_TO_WRITE:
            done.without_file += 1
        elif label is None:
            done.without_label += 1
        else:
            place = folder.class_folder(label)
            if place.name != label:
                done.renamed[label] = place.name
            folder.put(item, place, _path_in_class(dataset, row))
            done.rows += 1


def _path_in_class(dataset: Dataset, row: int) -> tuple[str, ...]:
    """Path of an image in its class folder: as in the original one, or the plain file name."""
    item = dataset.items[row]
    if isinstance(item, Path):
        if dataset.layout == "folder" and item.parent != dataset.source:
            return item.relative_to(dataset.source).parts[1:]
        return (item.name,)
    name = dataset.names[row].replace("\\", "/").rsplit("/", 1)[-1] or str(row)
    suffix = image_files.suffix_of(item) or ".bin"
    return (name if image_files.is_image_name(name) else name + suffix,)


def _imagefolder(
    dataset: Dataset, labels: LabelTexts, rows: list[int], folder: OutputFolder, done: Written
) -> None:
    """The images under their own names, beside a table of metadata of the same kind."""
    assert dataset.table is not None  # a folder of this layout has one
    column = dataset.item_columns[0]
    table = folder.root / dataset.table.name
    table.touch()  # so that no image takes its place
    places: dict[Path, str] = {}  # several rows can be about one image
    for row in rows:
        item = dataset.items[row]
        if image_files.problem_of(item) in NOTHING_TO_WRITE:
            done.without_file += 1
            continue
        if item not in places:
            parts = dataset.names[row].replace("\\", "/").split("/")
            place = folder.put(item, folder.root, parts)
            places[item] = place.relative_to(folder.root).as_posix()
        done.rows += 1
    there = [row for row in rows if dataset.items[row] in places]
    frame = write_tables.relabeled(dataset, labels).iloc[there]
    paths = [places[dataset.items[row]] for row in there]
    cells = pd.Series(paths, index=frame.index, dtype=frame[column].dtype)
    save = {
        ".csv": write_tables.save_csv,
        ".jsonl": write_tables.save_json_lines,
        ".parquet": write_tables.save_parquet,
    }
    save[table.suffix](dataset, frame.assign(**{column: cells}), table)
