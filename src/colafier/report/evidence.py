"""Why a row is doubted: its nearest rows under both labels, LID, who sees what, what it looks like.

Kept in OUT for the most doubtful rows only, as JSON, so that the report can be built again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from colafier._io import read_json_object, write_json
from colafier.audit.policy import EXCLUDE, KEEP, REVIEW
from colafier.core.lid import lid
from colafier.nets.inference import as_float, evaluating, predict
from colafier.nets.normalize import Normalize
from colafier.report.snippets import Snippets
from colafier.review.decisions import undecided
from colafier.training import records

FORMAT = "colafier-evidence-1"
NAME = "evidence.json"
MAX_ROWS = 300  # rows with a picture and reasons
NEAREST = 3  # rows shown for each label
AROUND = 20  # nearest rows whose labels are counted, and neighbors of LID
REFERENCE = {2: 100_000, 4: 5_000}  # rows that are looked through: vectors, images
CHUNK = 512


@dataclass(frozen=True)
class Known:
    """What a run knows of the m rows that it could use."""

    classes: Sequence[str]
    rows: Sequence[int]  # their numbers among all rows
    x: Tensor  # (m, d) vectors, or (m, c, h, w) images as bytes
    original: Tensor  # (m,) -1 where there is none
    suggested: Tensor  # (m,)
    classifier: nn.Module
    normalize: Normalize
    votes: Mapping[str, Tensor] = field(default_factory=dict)  # who -> (m,), -1: not asked
    trajectory: Tensor | None = None  # (m, t)


def doubtful(lines: pd.DataFrame, most: int = MAX_ROWS) -> list[int]:
    """Numbers of the rows to look at first: those with something to do, then by quality.

    Rows that only a person can decide have up to half of the places, decided ones none.

    Args:
        lines: All rows, with `action`, or with `changed` where a method moved labels by itself.
        most: How many.
    """
    todo = lines["action"].ne(KEEP) if "action" in lines else lines["changed"]
    quality = lines["label_quality"].to_numpy(float)
    original = lines["original_label"]
    usable = np.isfinite(quality) & original.notna().to_numpy() & original.ne("").to_numpy()
    usable &= undecided(lines).to_numpy()
    order = np.lexsort((quality, ~todo.to_numpy(bool)))
    order = order[usable[order]]
    hard = np.zeros(len(lines), dtype=bool)
    if "action" in lines:
        hard = lines["action"].isin((REVIEW, EXCLUDE)).to_numpy()
    first = order[hard[order]][: most // 2]
    others = order[~np.isin(order, first)][: most - len(first)]
    chosen = np.isin(order, np.concatenate([first, others]))
    return [int(row) for row in order[chosen]]


def of_training(
    known: Known, lines: pd.DataFrame, snippets: Snippets, truth: Sequence[int] | None
) -> dict[str, Any]:
    """Evidence about a method's own labels: where these did not move, its classifier suggests.

    Args:
        known: From the run; `suggested` are the labels that the method believes.
        lines: Its label table.
        snippets: How to show a row.
        truth: True classes of all rows, -1 where unknown; None: nothing is known of them.
    """
    top = doubtful(lines)
    if not top:
        return gather(known, top, snippets, truth=truth)
    asked = torch.tensor(top)
    p = predict(known.classifier, known.x, known.normalize, asked)  # (t, c)
    moved = (known.suggested != known.original)[asked]
    best = torch.where(moved, known.suggested[asked], p.argmax(1))  # (t,)
    suggested = known.suggested.clone()
    suggested[asked] = best
    found = gather(replace(known, suggested=suggested), top, snippets, truth=truth)
    chances = p.gather(1, best[:, None])[:, 0]
    for entry, label, chance in zip(found["rows"], best.tolist(), chances.tolist(), strict=True):
        entry["suggestion"] = [known.classes[label], round(chance, 4)]
    return found


def gather(
    known: Known, top: Sequence[int], snippets: Snippets, *, truth: Sequence[int] | None = None
) -> dict[str, Any]:
    """All that the report needs beside the table.

    Args:
        known: From the run.
        top: Row numbers, from `doubtful`.
        snippets: How to show a row.
        truth: True classes of all rows, -1 where unknown; None: nothing is known of them.
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
        "usual": snippets.usual,
        "rows": [
            {"row": row, "shown": snippets.show(row, False), **reason}
            for row, reason in zip(top, reasons, strict=True)
        ],
        "others": {str(row): snippets.show(row, True) for row in sorted(near)},
        "versions": records.versions(),
        "commit": records.commit(),
    }


def write(out: Path, evidence: Mapping[str, Any]) -> None:
    """Into the folder of the run."""
    write_json(out / NAME, evidence)


def read(out: Path) -> dict[str, Any]:
    """What `write` stored; nothing where an older run has none."""
    found = read_json_object(out / NAME)
    if found and found.get("format") != FORMAT:
        raise ValueError(f"{out / NAME} is not the evidence of a run; remove it, or run again")
    return found


def _reasons(known: Known, asked: Tensor) -> list[dict[str, Any]]:
    """One entry for each row that is asked about."""
    if not len(asked):
        return []
    pool = _pool(known, asked)  # (r,)
    z = _features(known, pool)  # (r, d)
    ours = z[: len(asked)]  # the pool begins with them
    labels = known.original[pool]  # (r,)
    distances = torch.cdist(ours, z)  # (t, r)
    distances[torch.arange(len(asked)), torch.arange(len(asked))] = torch.inf
    distances[:, labels < 0] = torch.inf
    scores = {
        "original": _lid_among(ours, z, labels, known.original[asked]),
        "suggested": _lid_among(ours, z, labels, known.suggested[asked]),
    }
    found = []
    for number, position in enumerate(asked.tolist()):
        both = {"original": known.original[position], "suggested": known.suggested[position]}
        near = {
            side: _nearest(distances[number], labels == label, pool, known.rows)
            for side, label in both.items()
        }
        found.append(
            {
                "near": near,
                "around": _around(distances[number], labels, known.classes),
                "lid": {side: _number(score[number]) for side, score in scores.items()},
                "votes": _votes(known, position),
                "trajectory": _trajectory(known, position),
            }
        )
    return found


def _pool(known: Known, asked: Tensor) -> Tensor:
    """Rows to look for neighbors in: those that are asked about first, then others at random."""
    m, most = len(known.x), REFERENCE[known.x.dim()]
    others = torch.ones(m, dtype=torch.bool)
    others[asked] = False
    rest = others.nonzero()[:, 0]
    if len(rest) > most:
        generator = torch.Generator().manual_seed(0)
        rest = rest[torch.randperm(len(rest), generator=generator)[:most]].sort().values
    return torch.cat([asked, rest])


def _features(known: Known, rows: Tensor) -> Tensor:
    """Standardized vectors, or what the last linear layer of the classifier takes (r, d)."""
    if known.x.dim() == 2:
        z = torch.empty(len(rows), known.x.shape[1])
        for to, some in zip(torch.split(z, CHUNK), torch.split(rows, CHUNK), strict=True):
            to.copy_(known.normalize(known.x[some].float()))  # no second copy of all rows
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
    """LID of each row among the rows of the label that is asked about (t,); nan for no label."""
    scores = torch.full((len(ours),), torch.nan)
    for label in set(asked[asked >= 0].tolist()):
        rows = (asked == label).nonzero()[:, 0]
        members = (labels == label).nonzero()[:, 0]  # (k,) in the pool
        match = members[None] == rows[:, None]  # a row of the pool's begin can be its own neighbor
        own = torch.where(match.any(1), match.int().argmax(1), -1)
        if len(members) > 2:
            scores[rows] = lid(ours[rows], AROUND, z[members], own)
    return scores


def _nearest(
    distances: Tensor, allowed: Tensor, pool: Tensor, names: Sequence[int]
) -> list[list[float]]:
    """Row number and distance of the nearest rows that are allowed."""
    masked = distances.masked_fill(~allowed, torch.inf)
    values, places = masked.topk(min(NEAREST, len(masked)), largest=False)
    return [
        [names[int(pool[place])], round(float(value), 3)]
        for value, place in zip(values, places, strict=True)
        if torch.isfinite(value)
    ]


def _around(distances: Tensor, labels: Tensor, classes: Sequence[str]) -> list[list[Any]]:
    """Which labels the nearest rows carry, and how many of them."""
    values, places = distances.topk(min(AROUND, len(distances)), largest=False)
    near = labels[places[values.isfinite()]].tolist()
    return [[classes[label], count] for label, count in Counter(near).most_common()]


def _votes(known: Known, position: int) -> list[list[str]]:
    said = {who: int(classes[position]) for who, classes in known.votes.items()}
    return [[who, known.classes[label]] for who, label in said.items() if label >= 0]


def _trajectory(known: Known, position: int) -> list[float | None]:
    if known.trajectory is None or not known.trajectory[position].isfinite().any():
        return []
    return [_number(value) for value in known.trajectory[position]]


def _number(value: Tensor) -> float | None:
    return round(float(value), 3) if torch.isfinite(value) else None
