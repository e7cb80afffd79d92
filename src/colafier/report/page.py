"""The report: one page that explains a run and takes decisions, without network or server."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from colafier import __version__
from colafier._io import atomic_file, read_json_object
from colafier.audit.policy import KEEP, RELABEL, WRONG
from colafier.report import evidence, figures, headline
from colafier.review.decisions import AT, undecided

NAME = "report.html"
LABELS, SUMMARY, RECORD, CONFIG = "labels.csv", "summary.json", "record.json", "config.json"
METRICS, NOISE = "metrics.jsonl", "noise.json"
SCRIPTS = ("base", "store", "list", "panel", "planner", "figures", "main")
SCALE = 10_000  # probabilities as whole numbers: shorter in the page


@dataclass(frozen=True)
class Run:
    """What the files of a finished run say."""

    title: str
    subtitle: str
    fingerprint: str
    lines: pd.DataFrame  # columns of labels.csv as texts, empty for none
    headline: dict[str, Any]
    evidence: dict[str, Any]
    epochs: list[dict[str, Any]]
    about: list[tuple[str, dict[str, Any]]]
    calibrated: bool  # whether quality is a probability
    applies: bool  # whether `colafier apply` takes decisions about it

    @property
    def truth(self) -> list[str] | None:
        """True classes by name, empty where unknown; None: nothing is known of them."""
        numbers = self.evidence.get("truth")
        if numbers is None or len(numbers) != len(self.lines):
            return None
        names = [*self.evidence["classes"], ""]  # -1 takes the last
        return [names[number] for number in numbers]


def write(out: Path, summary: dict[str, Any] | None = None) -> Path:
    """Build the report of the run in a folder, from the files in it.

    Args:
        out: The folder.
        summary: Of a run of `purify` that is just being written; by default that of the folder.
    """
    path = out / NAME
    text = page(read(out, summary))
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def read(out: Path, summary: dict[str, Any] | None = None) -> Run:
    """A finished run of `purify`, or of `train` and `demo`."""
    finished = summary is not None or any((out / name).exists() for name in (SUMMARY, RECORD))
    if not (out / LABELS).exists() or not finished:
        raise FileNotFoundError(
            f"{out} is not the folder of a finished run: {LABELS} or {SUMMARY} is missing; "
            "make one with: colafier purify SOURCE -o OUT"
        )
    lines = pd.read_csv(out / LABELS, dtype=str, keep_default_na=False)
    found = evidence.read(out)
    config = read_json_object(out / CONFIG)
    epochs = _json_lines(out / METRICS)
    if summary is None:
        summary = read_json_object(out / SUMMARY)
    if summary:
        return _of_purify(lines, summary, config, found, epochs)
    return _of_train(
        lines,
        read_json_object(out / RECORD),
        read_json_object(out / NOISE),
        config,
        found,
        epochs,
    )


def page(run: Run) -> str:
    """The whole page; everything that comes from outside is in it as JSON, and shown as text."""
    script = '"use strict";\n(() => {\n' + "\n".join(_part(f"{n}.js") for n in SCRIPTS) + "})();\n"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # nothing is fetched, and no script runs but ours
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(f"{run.title}: report of colafier"),
        "STYLE": _part("style.css"),
        "SCRIPT": script,
        "DATA": in_page(content(run)),
    }
    # in one go: what is put in may look like a place itself
    return re.sub("@([A-Z]+)@", lambda place: parts[place[1]], _part("page.html"))


def in_page(value: Any) -> str:
    """JSON that cannot end the element that it stands in, nor break by odd characters."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def content(run: Run) -> dict[str, Any]:
    """All that the scripts of the page show."""
    lines, truth = run.lines, run.truth
    classes = _classes(lines, run.evidence.get("classes", []))
    place = {name: number for number, name in enumerate(classes)}
    actions, action = _coded(lines["action"])
    reasons, reason = _coded(lines["reason"])
    lid = _numbers(lines["lid"])
    there = lid[np.isfinite(lid)]
    open_rows = undecided(lines)
    return {
        "title": run.title,
        "subtitle": run.subtitle,
        "fingerprint": run.fingerprint,
        "rows": len(lines),
        "classes": classes,
        "actions": actions,
        "reasons": reasons,
        "names": lines["name"].tolist() if lines["name"].ne(lines["row"]).any() else None,
        "columns": {
            **{key: _places(lines[name], place) for key, name in
               (("original", "original_label"), ("suggested", "suggested_label"), ("label", "label"))},
            "confidence": _whole(_numbers(lines["confidence"])),
            "quality": _whole(_numbers(lines["label_quality"])),
            "action": action,
            "reason": reason,
            "lid": [round(v, 2) if np.isfinite(v) else None for v in lid.tolist()],
            "truth": None if truth is None else _places(truth, place),
        },
        "median_lid": round(float(np.median(there)), 2) if len(there) else None,
        "applied": {} if open_rows.all() else lines.loc[~open_rows, AT].to_dict(),
        "to_review": int((lines["action"].ne(KEEP) & open_rows).sum()),
        "calibrated": run.calibrated,
        "applies": run.applies,
        "headline": run.headline,
        "evidence": {**{key: run.evidence.get(key) for key in ("others", "usual")},
                     "rows": [entry for entry in run.evidence.get("rows", ())
                              if open_rows.iat[entry["row"]]]},
        "figures": {
            "lid": figures.lid_histogram(lines, truth),
            "confusion": figures.confusion(lines),
            "per_class": figures.per_class(lines, truth),
            "curves": figures.curves(run.epochs),
        },
        "about": [[title, _flat(values)] for title, values in run.about if values],
    }  # fmt: skip


def _of_purify(
    lines: pd.DataFrame,
    summary: dict[str, Any],
    config: dict[str, Any],
    found: dict[str, Any],
    epochs: list[dict[str, Any]],
) -> Run:
    options = config.get("options", {})
    source = Path(str(options.get("source", "data"))).name
    counts = f"{summary['rows']:,} rows, {summary['classes']} classes"
    return Run(
        title=source,
        subtitle=f"{counts}; colafier purify",
        fingerprint=summary["fingerprint"],
        lines=lines,
        headline=headline.of_purify(summary, lines),
        evidence=found,
        epochs=epochs,
        about=[
            ("Options", options),
            ("Training", config.get("recipe", {})),
            ("Rows", summary.get("input", {})),
            ("Versions", _versions(found)),
        ],
        calibrated=True,
        applies=True,
    )


def _of_train(
    lines: pd.DataFrame,
    record: dict[str, Any],
    noise: dict[str, Any],
    config: dict[str, Any],
    found: dict[str, Any],
    epochs: list[dict[str, Any]],
) -> Run:
    lines = as_purified(lines, found)
    scores = {k: v for k, v in record.items() if not isinstance(v, dict)}
    return Run(
        title=f"{config.get('source', 'data')}, {record['method']}",
        subtitle=f"{len(lines):,} rows, noise {config.get('noise', 'unknown')}; colafier train",
        fingerprint=str(noise.get("sha256", "")),
        lines=lines,
        headline=headline.of_train(record, lines),
        evidence=found,
        epochs=epochs,
        about=[
            ("Scores", scores),
            ("Settings", config),
            ("Noise", noise),
            ("Versions", {**record.get("versions", {}), "commit": record.get("commit")}),
        ],
        calibrated=False,
        applies=False,
    )


def as_purified(lines: pd.DataFrame, found: Mapping[str, Any]) -> pd.DataFrame:
    """The label table of a research run with the columns that `purify` writes."""
    moved = lines["label"].ne(lines["original_label"])
    lines = lines.assign(
        name=lines["row"],
        label_quality=lines["label_quality"].where(lines["original_label"].ne(""), ""),
        suggested_label=lines["label"].where(moved, ""),
        confidence="",
        action=np.where(moved, RELABEL, KEEP),
        reason=np.where(moved, WRONG, ""),
        lid=lines.get("lid", ""),
    )
    for entry in found.get("rows", ()):
        label, probability = entry.get("suggestion", (None, None))
        if label is not None:
            lines.loc[entry["row"], ["suggested_label", "confidence"]] = [label, str(probability)]
    return lines


def _part(name: str) -> str:
    return (files("colafier.report") / "templates" / name).read_text(encoding="utf-8")


def _json_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); run again") from error


def _classes(lines: pd.DataFrame, known: Sequence[str]) -> list[str]:
    """Those that were learned, in their order, then others that occur."""
    columns = ("original_label", "label", "suggested_label")
    there = {label for name in columns for label in lines[name].unique()} - {"", *known}
    return [*known, *sorted(there)]


def _coded(values: pd.Series) -> tuple[list[str], list[int]]:
    """Different texts, and for each row the place of its own."""
    codes, texts = pd.factorize(values)
    return [str(text) for text in texts], codes.tolist()


def _places(values: pd.Series | Sequence[str], place: Mapping[str, int]) -> list[int]:
    return [place.get(value, -1) for value in values]


def _numbers(values: pd.Series) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(pd.to_numeric(values, errors="coerce"), dtype=np.float64)


def _whole(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[int | None]:
    return [round(SCALE * v) if np.isfinite(v) else None for v in values.tolist()]


def _versions(found: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the run; of now where the run did not say."""
    made = found.get("versions", {"colafier (of this page)": __version__})
    return {**made, **({"commit": found["commit"]} if found.get("commit") else {})}


def _flat(values: Mapping[str, Any], before: str = "") -> list[list[str]]:
    """Names and values as texts; what is nested gets a dotted name."""
    found = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{before}{key}.")
        elif value is not None:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            found.append([f"{before}{key}", text])
    return found
