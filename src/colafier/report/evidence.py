"""Why a label is doubted: nearest rows, LID, votes, trajectory, and what the row looks like.

It is stored as JSON for the most doubtful rows only, so that the report can be built again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from colafier._io import write_json
from colafier._validation import Range
from colafier.audit.policy import EXCLUDE, KEEP, REVIEW
from colafier.core.lid import lid
from colafier.nets.inference import as_float, evaluating, predict
from colafier.nets.normalize import Normalize
from colafier.readers import json_files
from colafier.report.snippets import Snippets
from colafier.review.decided import undecided
from colafier.training import records

FORMAT: Literal["colafier-evidence-2"] = "colafier-evidence-2"
NAME = "evidence.json"
MAX_ROWS = 300  # rows with evidence
NEAREST = 3  # rows shown for each label
NEIGHBORS = 20  # nearest rows whose labels are counted, and neighbors for LID
MAX_SEARCHED = {2: 100_000, 4: 5_000}  # rows searched for neighbors: vectors, images
CHUNK = 512


Score = Annotated[float, Range(-1e9, 1e9)] | None
Row = Annotated[int, Range(0)]


class Numbered(TypedDict):
    """The number of a row."""

    row: Row


class Reasons(Numbered, total=False):
    """What is stored about a doubtful row."""

    shown: dict[str, Any]
    alternative: str
    near: dict[str, list[tuple[Row, Score]]]
    around: list[tuple[str, Row]]  # labels with their counts
    lid: dict[str, Score]
    votes: list[tuple[str, str]]
    trajectory: list[Score]


class Stored(TypedDict):
    """The content of evidence.json."""

    format: Literal["colafier-evidence-2"]
    classes: NotRequired[list[str]]
    truth: NotRequired[list[Annotated[int, Range(-1)]] | None]
    rows: list[Reasons]
    typical: NotRequired[dict[str, dict[str, str]]]
    others: NotRequired[dict[str, dict[str, Any]]]
    versions: NotRequired[dict[str, str]]
    commit: NotRequired[str | None]


@dataclass(frozen=True)
class TrainedRows:
    """The m rows that a run was trained on, and what it found out about them."""

    classes: Sequence[str]
    rows: Sequence[int]  # their numbers among all rows of the data set
    x: Tensor  # (m, d) vectors, or (m, c, h, w) images as bytes
    original: Tensor  # (m,) -1: no label
    suggested: Tensor  # (m,)
    classifier: nn.Module
    normalize: Normalize
    votes: Mapping[str, Tensor] = field(default_factory=dict)  # voter -> class (m,), -1: none
    trajectory: Tensor | None = None  # (m, t) probability of the label during training


def doubtful(lines: pd.DataFrame, limit: int = MAX_ROWS) -> list[int]:
    """Numbers of the rows to review first: rows that are not simply kept, then by quality.

    Up to half of them are rows that only a person can decide. Rows that are already decided are
    left out.

    Args:
        lines: The label table, all rows.
        limit: At most this many.
    """
    todo = lines["action"].ne(KEEP).to_numpy()
    quality = lines["label_quality"].to_numpy(float)
    original = lines["original_label"]
    usable = np.isfinite(quality) & original.notna().to_numpy() & original.ne("").to_numpy()
    usable &= undecided(lines).to_numpy()
    order = np.lexsort((quality, ~todo))
    order = order[usable[order]]
    open_questions = lines["action"].isin((REVIEW, EXCLUDE)).to_numpy()
    first = order[open_questions[order]][: limit // 2]
    others = order[~np.isin(order, first)][: limit - len(first)]
    chosen = np.isin(order, np.concatenate([first, others]))
    return [int(row) for row in order[chosen]]


def gather(
    known: TrainedRows,
    top: Sequence[int],
    snippets: Snippets,
    *,
    truth: Sequence[int] | None = None,
) -> dict[str, Any]:
    """What the report shows in addition to the label table.

    Args:
        known: The rows of the run.
        top: Numbers of the rows to explain, from `doubtful`.
        snippets: How to show a row.
        truth: True classes of all rows, -1: unknown; None: none is known.
    """
    place = {row: number for number, row in enumerate(known.rows)}
    top = [row for row in top if row in place]
    asked = torch.tensor([place[row] for row in top], dtype=torch.long)  # (t,)
    reasons = _reasons(known, asked)
    near = {row for reason in reasons for side in reason["near"].values() for row, _ in side}
    return {
        "format": FORMAT,
        "classes": list(known.classes),
        "truth": None if truth is None else [int(label) for label in truth],
        "typical": snippets.typical,
        "rows": [
            {"row": row, "shown": snippets.show(row, False), **reason}
            for row, reason in zip(top, reasons, strict=True)
        ],
        "others": {str(row): snippets.show(row, True) for row in sorted(near)},
        "versions": records.versions(),
        "commit": records.commit(),
    }


def write(out: Path, evidence: Mapping[str, Any]) -> None:
    """Store it in the folder of a run."""
    write_json(out / NAME, evidence)


def read(out: Path) -> dict[str, Any]:
    """What `write` stored; empty if the folder has none."""
    path = out / NAME
    found: dict[str, Any] = json_files.read_if_there(path, Stored)
    if not found:
        return found
    if max(found.get("truth") or [0]) >= len(found.get("classes", "x")):
        raise json_files.damaged(path, "truth has a class that is not among its classes")
    return found


def _reasons(known: TrainedRows, asked: Tensor) -> list[dict[str, Any]]:
    """One entry for each of these rows."""
    if not len(asked):
        return []
    pool = _pool(known, asked)  # (r,)
    z = _features(known, pool)  # (r, d)
    ours = z[: len(asked)]  # (t, d) they come first in the pool
    labels = known.original[pool]  # (r,)
    distances = torch.cdist(ours, z)  # (t, r)
    distances[torch.arange(len(asked)), torch.arange(len(asked))] = torch.inf
    distances[:, labels < 0] = torch.inf
    compared = {"original": known.original[asked], "alternative": _alternative(known, asked)}
    scores = {side: _lid_among(ours, z, labels, own) for side, own in compared.items()}
    found = []
    for number, position in enumerate(asked.tolist()):
        near = {
            side: _nearest(distances[number], labels == own[number], pool, known.rows)
            for side, own in compared.items()
        }
        found.append(
            {
                "alternative": known.classes[int(compared["alternative"][number])],
                "near": near,
                "around": _labels_around(distances[number], labels, known.classes),
                "lid": {side: _number(score[number]) for side, score in scores.items()},
                "votes": _votes(known, position),
                "trajectory": _trajectory(known, position),
            }
        )
    return found


def _alternative(known: TrainedRows, asked: Tensor) -> Tensor:
    """The class to compare with the original one (t,).

    It is the suggested class, or the classifier's best other class where the suggestion is to
    keep the label.
    """
    original, suggested = known.original[asked], known.suggested[asked]  # (t,), (t,)
    p = predict(known.classifier, known.x, known.normalize, asked)  # (t, c)
    others = p.scatter(1, original.clamp(min=0)[:, None], -1.0)  # (t, c)
    return torch.where(suggested == original, others.argmax(1), suggested)


def _pool(known: TrainedRows, asked: Tensor) -> Tensor:
    """Rows to search for neighbors (r,): first the rows to explain, then others at random."""
    m, limit = len(known.x), MAX_SEARCHED[known.x.dim()]
    others = torch.ones(m, dtype=torch.bool)
    others[asked] = False
    rest = others.nonzero()[:, 0]
    if len(rest) > limit:
        generator = torch.Generator().manual_seed(0)
        rest = rest[torch.randperm(len(rest), generator=generator)[:limit]].sort().values
    return torch.cat([asked, rest])


def _features(known: TrainedRows, rows: Tensor) -> Tensor:
    """Standardized vectors, or the inputs of the classifier's last linear layer (r, d)."""
    if known.x.dim() == 2:
        z = torch.empty(len(rows), known.x.shape[1])
        for to, some in zip(torch.split(z, CHUNK), torch.split(rows, CHUNK), strict=True):
            to.copy_(known.normalize(known.x[some].float()))  # without a second copy of all rows
        return z
    linear = [part for part in known.classifier.modules() if isinstance(part, nn.Linear)]
    if not linear:
        return known.normalize(as_float(known.x[rows])).flatten(1)
    taken: list[Tensor] = []
    hook = linear[-1].register_forward_pre_hook(lambda _, x: taken.append(x[0].float().cpu()))
    try:
        with evaluating(known.classifier):
            for some in torch.split(rows, CHUNK):
                known.classifier(known.normalize(as_float(known.x[some])))
    finally:
        hook.remove()
    return torch.cat(taken).flatten(1)


def _lid_among(ours: Tensor, z: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
    """LID of each row among the rows that carry a label (t,); nan for no label."""
    scores = torch.full((len(ours),), torch.nan)
    for label in set(asked[asked >= 0].tolist()):
        rows = (asked == label).nonzero()[:, 0]
        members = (labels == label).nonzero()[:, 0]  # (k,) in the pool
        match = members[None] == rows[:, None]  # a row must not be its own neighbor
        own = torch.where(match.any(1), match.int().argmax(1), -1)
        if len(members) > 2:
            scores[rows] = lid(ours[rows], NEIGHBORS, z[members], own)
    return scores


def _nearest(
    distances: Tensor, allowed: Tensor, pool: Tensor, names: Sequence[int]
) -> list[list[float]]:
    """Row number and distance of the nearest of the allowed rows."""
    masked = distances.masked_fill(~allowed, torch.inf)
    values, places = masked.topk(min(NEAREST, len(masked)), largest=False)
    return [
        [names[int(pool[place])], round(float(value), 3)]
        for value, place in zip(values, places, strict=True)
        if torch.isfinite(value)
    ]


def _labels_around(distances: Tensor, labels: Tensor, classes: Sequence[str]) -> list[list[Any]]:
    """The labels of the nearest rows, each with its count."""
    values, places = distances.topk(min(NEIGHBORS, len(distances)), largest=False)
    near = labels[places[values.isfinite()]].tolist()
    return [[classes[label], count] for label, count in Counter(near).most_common()]


def _votes(known: TrainedRows, position: int) -> list[list[str]]:
    votes = {voter: int(classes[position]) for voter, classes in known.votes.items()}
    return [[voter, known.classes[label]] for voter, label in votes.items() if label >= 0]


def _trajectory(known: TrainedRows, position: int) -> list[float | None]:
    if known.trajectory is None or not known.trajectory[position].isfinite().any():
        return []
    return [_number(value) for value in known.trajectory[position]]


def _number(value: Tensor) -> float | None:
    return round(float(value), 3) if torch.isfinite(value) else None
