"""Uses of a stored model: predict new rows, check their labels, and export it to ONNX."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from colafier import embed
from colafier.audit.label_table import table, with_unusable
from colafier.audit.policy import EXCLUDE, decide
from colafier.embed import encode
from colafier.embed.encode import EncodedData
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import posterior
from colafier.ingest.column_roles import ReadOptions
from colafier.ingest.labels import class_numbers
from colafier.ingest.read import Dataset, read
from colafier.workflows.apply import dataset_of
from colafier.workflows.model_store import StoredModel, load
from colafier.workflows.model_store.onnx_export import export_onnx
from colafier.workflows.run_dir import is_run

MIN_LABELS = 100  # with fewer, the share of wrong labels is not estimated
CHECKED_ROWS = 64  # on which an export is compared with torch


def predict(
    folder: Path,
    source: Path,
    columns: ReadOptions | None = None,
    *,
    cache: bool = True,
    progress: bool = True,
) -> pd.DataFrame:
    """Classify new rows; the result has one line per row, in input order.

    Args:
        folder: Folder of the model.
        source: The new rows, with or without labels.
        columns: The columns to use; None: detected.
        cache: Whether embeddings are stored for later.
        progress: Whether to show a progress bar in a terminal.
    """
    model = load(folder)
    rows, dataset = _encode(model, folder, source, columns, False, cache, progress)
    p = model.predict(rows.x)  # (m, c)
    confidence, best = p.max(1)
    names = np.array(model.classes, dtype=object)
    found = pd.DataFrame({"predicted_label": names[best.numpy()], "confidence": confidence.numpy()})
    lines = found.set_axis(rows.rows).reindex(range(len(dataset)))
    lines.insert(0, "row", range(len(lines)))
    lines.insert(1, "name", dataset.names)
    lines["problem"] = [rows.problems.get(row, "") for row in range(len(lines))]
    return lines


def check(
    folder: Path,
    source: Path,
    columns: ReadOptions | None = None,
    *,
    cache: bool = True,
    progress: bool = True,
) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Audit the labels of new rows, which the model was not trained on.

    Args:
        folder: Folder of the model.
        source: The new rows, with labels.
        columns: The columns to use; None: detected.
        cache: Whether embeddings are stored for later.
        progress: Whether to show a progress bar in a terminal.

    Returns:
        A label table as from `colafier purify`, and a summary with the estimated share of wrong
        labels.
    """
    model = load(folder)
    rows, dataset = _encode(model, folder, source, columns, True, cache, progress)
    p = model.predict(rows.x)
    labels = [dataset.original[row] for row in rows.rows]
    observed = class_numbers(labels, model.classes)  # (m,)
    unknown = [place for place, label in enumerate(labels) if label and observed[place] < 0]
    count = int((observed >= 0).sum())
    if count < MIN_LABELS:
        raise ValueError(
            f"{count} labels of the model's classes are too few to estimate how many are wrong; "
            f"a check needs at least {MIN_LABELS}"
        )
    found = posterior(p, Labels(observed))
    groups = torch.tensor(dataset.duplicates())[rows.rows]
    decided = decide(found, Labels(observed), groups=groups)
    lines = table(model.classes, observed, found, decided, predicted=p.argmax(1))
    for place in unknown:
        lines.loc[place, ["original_label", "label"]] = labels[place]
        lines.loc[place, ["action", "reason"]] = [EXCLUDE, "unknown class"]
    lines = with_unusable(lines, rows.rows, rows.problems, dataset.original)
    lines.insert(0, "row", range(len(lines)))
    lines.insert(1, "name", dataset.names)
    low, high = found.interval
    return lines, {
        "rows": len(dataset),
        "labeled": count,
        "unknown_classes": len(unknown),
        "unusable": len(rows.problems),
        "estimated_noise_rate": round(found.rate, 4),
        "estimated_noise_interval": [round(low, 4), round(high, 4)],
    }


def export(folder: Path, out: Path, source: Path | None = None) -> dict[str, Any]:
    """Write the model as ONNX, and compare it with torch on real rows.

    Args:
        folder: Folder of the model.
        out: File to write.
        source: Rows to compare on; None: the rows of the run that made the model.
    """
    model = load(folder)
    dataset = (
        _rows_of_the_run(folder)
        if source is None
        else _read(model, source, ReadOptions(), labeled=False)
    )
    rows = encode.encode_again(
        dataset.head(CHECKED_ROWS),
        model.input,
        folder,
        cache=embed.default_folder(),
        progress=False,
    )
    return export_onnx(model, out, rows.x)


def _rows_of_the_run(folder: Path) -> Dataset:
    run = folder.resolve().parent
    if not is_run(run):
        raise ValueError("give --rows SOURCE: the export is compared with torch on real rows")
    try:
        return dataset_of(run)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"the rows of the run are gone ({error}); give --rows SOURCE"
        ) from error


def _encode(
    model: StoredModel,
    folder: Path,
    source: Path,
    columns: ReadOptions | None,
    labeled: bool,
    cache: bool,
    progress: bool,
) -> tuple[EncodedData, Dataset]:
    dataset = _read(model, source, columns or ReadOptions(), labeled=labeled)
    kept = embed.default_folder() if cache else None
    rows = encode.encode_again(dataset, model.input, folder, cache=kept, progress=progress)
    return rows, dataset


def _read(model: StoredModel, source: Path, at: ReadOptions, *, labeled: bool) -> Dataset:
    features = at.features
    if features is None and at.image is None and at.text is None and _is_table(source):
        features = model.input.get("columns")
    ask = partial(
        read,
        source,
        image=at.image,
        text=at.text,
        features=None if features is None else tuple(features),
        label=at.label,
        missing=at.missing,
    )
    # a check works with labels of a single class, so two classes are not required here
    dataset = ask(labeled=False)
    return ask(labeled=True) if labeled and not dataset.classes else dataset


def _is_table(source: Path) -> bool:
    return source.is_file() and source.suffix.lower() != ".npz"
