"""The files of a finished run, as the report reads them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from colafier._io import read_json_object
from colafier.report import evidence

LABELS, SUMMARY, CONFIG, METRICS = "labels.csv", "summary.json", "config.json", "metrics.jsonl"
RECORD, NOISE = "record.json", "noise.json"  # of runs that are scored against the truth
TAKEN_OVER = "continued.done"  # results of a continued run, while they replace those of before


@dataclass(frozen=True)
class RunFiles:
    """What the files of a run contain; files that a run need not have are empty."""

    lines: pd.DataFrame  # labels.csv as text, empty for none
    summary: dict[str, Any]
    config: dict[str, Any]
    epochs: list[dict[str, Any]]
    evidence: dict[str, Any]
    record: dict[str, Any]
    noise: dict[str, Any]

    @property
    def truth(self) -> list[str] | None:
        """True classes by name, empty: unknown; None: none is known."""
        numbers = self.evidence.get("truth")
        if numbers is None or len(numbers) != len(self.lines):
            return None
        names = [*self.evidence["classes"], ""]  # -1 takes the last
        return [names[number] for number in numbers]

    @property
    def title(self) -> str:
        """The name of the data set."""
        return Path(str(self.setting("source") or "data")).name

    @property
    def subtitle(self) -> str:
        """The size of the data set, the method and the injected noise."""
        parts = [f"{self.summary['rows']:,} rows", f"{self.summary['classes']} classes"]
        parts += [f"{name} {self.setting(name)}" for name in ("method", "noise")
                  if isinstance(self.setting(name), str)]  # fmt: skip
        return ", ".join(parts)

    def setting(self, name: str) -> Any:
        """A setting of the run, in whatever part of its config it stands; None if nowhere."""
        parts = [self.config, *(v for v in self.config.values() if isinstance(v, Mapping))]
        return next((part[name] for part in parts if part.get(name) is not None), None)


def read(out: Path, summary: dict[str, Any] | None = None) -> RunFiles:
    """The files in the folder of a run.

    Args:
        out: The folder.
        summary: That of a run whose summary.json is not written yet; by default the file is read.
    """
    if summary is None:
        refuse_mixed(out)
        summary = read_json_object(out / SUMMARY)
    if not summary or not (out / LABELS).exists():
        raise FileNotFoundError(
            f"{out} is not the folder of a finished run: {LABELS} or {SUMMARY} is missing; "
            "make one with: colafier purify SOURCE -o OUT"
        )
    return RunFiles(
        lines=pd.read_csv(out / LABELS, dtype=str, keep_default_na=False),
        summary=summary,
        config=read_json_object(out / CONFIG),
        epochs=json_lines(out / METRICS),
        evidence=evidence.read(out),
        record=read_json_object(out / RECORD),
        noise=read_json_object(out / NOISE),
    )


def refuse_mixed(out: Path) -> None:
    """Refuse a folder in which a process was killed while new results replaced the old ones."""
    if (out / TAKEN_OVER).exists():
        raise FileExistsError(
            f"{out} holds old and new results; finish with: colafier apply {out} --continue"
        )


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a file of JSON lines; none if there is no such file."""
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}); run again") from error
    if not all(isinstance(line, dict) for line in lines):
        raise ValueError(f"{path} is damaged (a line is not an object); run again")
    return lines
