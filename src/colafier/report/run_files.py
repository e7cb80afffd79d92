"""The files of a finished run: what they hold, and how they are read and checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import pandas as pd

from colafier._validation import Range
from colafier.readers import json_files
from colafier.report import evidence
from colafier.review import label_file

LABELS, SUMMARY, CONFIG, METRICS = "labels.csv", "summary.json", "config.json", "metrics.jsonl"
RECORD, NOISE = "record.json", "noise.json"  # of runs that are scored against the truth
TAKEN_OVER = "continued.done"  # results of a continued run, while they replace those of before

Count = Annotated[int, Range(0, 10**12)]
Share = Annotated[float, Range(0, 1)]
MODERATE = Range(-1e150, 1e150)  # sums and squares of such numbers are finite
Figure = int | Annotated[float, MODERATE] | None


class Summary(TypedDict):
    """The content of summary.json."""

    fingerprint: str
    rows: Count
    labeled: Count
    trusted: NotRequired[Count]
    classes: Count
    estimated_noise_rate: Share
    estimated_noise_interval: list[Share]  # low and high
    estimated_wrong_labels: Count
    actions: dict[str, Count]
    relabeled: Count
    expected_fixed: Count
    expected_broken: Count
    accuracy_on_unseen_observed_labels: Share | None
    input: dict[str, Any]


class Record(TypedDict, total=False):
    """What is used of record.json."""

    seconds: Figure
    test_accuracy: Figure
    audit: dict[str, Figure]


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
        summary = read_summary(out)
    if not summary or not (out / LABELS).exists():
        raise FileNotFoundError(
            f"{out} is not the folder of a finished run: {LABELS} or {SUMMARY} is missing; "
            "make one with: colafier purify SOURCE -o OUT"
        )
    found = evidence.read(out)
    if max((entry["row"] for entry in found.get("rows", ())), default=0) >= summary["rows"]:
        raise json_files.damaged(out / evidence.NAME, "it is about rows that the run does not have")
    return RunFiles(
        lines=label_file.read(out / LABELS, summary["rows"]),
        summary=summary,
        config=json_files.read_if_there(out / CONFIG, dict[str, Any]),
        epochs=read_epochs(out),
        evidence=found,
        record=read_record(out),
        noise=json_files.read_if_there(out / NOISE, dict[str, Any]),
    )


def refuse_mixed(out: Path) -> None:
    """Refuse a folder in which a process was killed while new results replaced the old ones."""
    if (out / TAKEN_OVER).exists():
        raise FileExistsError(
            f"{out} holds old and new results; finish with: colafier apply {out} --continue"
        )


def read_summary(out: Path) -> dict[str, Any]:
    """The summary.json of a run; empty if the run is not finished."""
    summary: dict[str, Any] = json_files.read_if_there(out / SUMMARY, Summary)
    if summary and len(summary["estimated_noise_interval"]) != 2:
        raise json_files.damaged(out / SUMMARY, "estimated_noise_interval must have two numbers")
    return summary


def read_epochs(out: Path) -> list[dict[str, Any]]:
    """The figures of each epoch; none if the run kept none."""
    return json_files.read_lines(out / METRICS, dict[str, Figure])


def read_record(out: Path) -> dict[str, Any]:
    """The scores of a run; empty if it has none."""
    record: dict[str, Any] = json_files.read_if_there(out / RECORD, Record)
    return record
