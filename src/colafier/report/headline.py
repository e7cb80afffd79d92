"""What a report says first, in plain words: how many labels are wrong, how sure, what to do."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from colafier.audit.policy import EXCLUDE, RELABEL, REVIEW, UNUSABLE
from colafier.ingest.dataset import counted
from colafier.report import figures
from colafier.review.decided import undecided

WARN_BEYOND = 2  # times the upper end of the estimate: more disagreement calls for a warning
APPLY = "Save your decisions as decisions.json, then run: colafier apply OUT decisions.json"
BLIND_SPOT = (
    "There may be more: a wrong label looks right if the classifier makes the same mistake."
)


def headline(summary: Mapping[str, Any], lines: pd.DataFrame) -> dict[str, Any]:
    """The estimate, how sure it is, and what to do next.

    Args:
        summary: The summary.json of the run.
        lines: Its label table as text.
    """
    trusted = summary.get("trusted", 0)  # decided by people before the training
    return {
        "title": "Wrong labels",
        "big": f"about {summary['estimated_wrong_labels']:,}",
        "share": _percent(summary["estimated_noise_rate"]),
        "lead": _lead(summary, trusted, int((~undecided(lines)).sum())),
        "sure": _sure(summary, summary["labeled"] - trusted),
        "next": steps(lines),
    }


def against_truth(
    lines: pd.DataFrame, truth: Sequence[str] | None, record: Mapping[str, Any]
) -> list[str] | None:
    """How good the labels are by the truth; None if it is not known.

    Args:
        lines: The label table as text.
        truth: True classes by name, empty: unknown.
        record: The record.json of the run, which may be empty.
    """
    found = figures.against_truth(lines, truth) if truth is not None else None
    if not found:
        return None
    total, wrong, changed, hits = (found[name] for name in ("rows", "wrong", "changed", "hits"))
    sentences = [
        "The true labels of this run are known, so these numbers are counted, not estimated.",
        f"{wrong:,} of {total:,} original labels are wrong ({_percent(wrong / total)}).",
    ]
    if changed:
        fixed = counted(found["fixed"], "wrong label")
        broken = counted(found["broken"], "right label")
        sentences.append(
            f"{_changed(changed)}: {fixed} became right, {broken} became wrong. "
            f"{_percent(1 - wrong / total)} of the labels were right before, "
            f"{_percent(found['right'] / total)} are right now."
        )
    else:
        sentences.append("No label was changed.")
    if changed and wrong:
        sentences.append(
            f"{_percent(hits / changed)} of the changed labels were wrong, and "
            f"{_percent(hits / wrong)} of the wrong labels were changed."
        )
    if "method_right" in found:
        share = _percent(found["method_right"] / total)
        sentences.append(f"Of the labels that the method itself ended with, {share} are right.")
    if record.get("test_accuracy") is not None:
        share = _percent(record["test_accuracy"])
        sentences.append(f"The classifier is right about {share} of the test rows.")
    return sentences


def steps(lines: pd.DataFrame) -> list[dict[str, Any]]:
    """What a person should do, in order; a step with a filter shows its rows."""
    lines = lines[undecided(lines)]
    actions, unusable = lines["action"], lines["reason"].str.startswith(f"{UNUSABLE}:")
    found: list[dict[str, Any]] = []
    for action, text in (
        (REVIEW, "Review the {} marked review: the evidence is too weak to decide without you."),
        (RELABEL, "Spot-check the {} with a changed label."),
        (EXCLUDE, "Check the {} marked exclude: no class fits, or the row cannot be read."),
    ):
        if number := int(actions.eq(action).sum()):
            rows = counted(number, "row")
            found.append({"text": text.format(rows), "filter": {"action": action}})
    if not found:
        return [{"text": "There is nothing to do: no label is doubtful enough."}]
    if broken := int(unusable.sum()):
        rows = counted(broken, "row")
        text = f"Repair or remove the {rows} that cannot be read; labels.csv says why."
        found.append({"text": text})
    return [*found, {"text": APPLY}]


def _lead(summary: Mapping[str, Any], trusted: int, decided: int) -> list[str]:
    """How many labels are wrong, and what was done about it."""
    which = "labels that nobody has reviewed" if trusted else "labels"
    lead = [f"of {summary['labeled'] - trusted:,} {which} are probably wrong."]
    if moved := summary["relabeled"]:
        lead.append(
            f"{_changed(moved)}. About {summary['expected_fixed']:,} of these "
            f"changes should be right; about {summary['expected_broken']:,} should replace a label "
            "that was right."
        )
    else:
        lead.append("Only people changed labels." if trusted else "No label was changed.")
    if decided:
        lead.append(f"People have decided {counted(decided, 'row')}.")
    return lead


def _sure(summary: Mapping[str, Any], labeled: int) -> list[str]:
    """How far off the estimate may be."""
    low, high = summary["estimated_noise_interval"]
    if low <= 0 and high >= 1:
        sure = ["There are too few rows to say how far off this number may be."]
    else:
        sure = [
            f"The share of wrong labels is likely between {_percent(low)} and {_percent(high)}, "
            f"which is {low * labeled:,.0f} to {high * labeled:,.0f} labels. This range covers "
            "sampling error only."
        ]
    agreement = summary["accuracy_on_unseen_observed_labels"]
    if agreement is not None:
        sure.append(f"The classifier agrees with {_percent(agreement)} of the labels that it was "
                    "not trained on.")  # fmt: skip
        if 1 - agreement >= WARN_BEYOND * high:
            sure.append(
                f"For the other {_percent(1 - agreement)}, either the label or the classifier is "
                "wrong, so the true number can be far higher than the estimate."
            )
    return [*sure, BLIND_SPOT]


def _changed(number: int) -> str:
    return f"{counted(number, 'label')} {'was' if number == 1 else 'were'} changed"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"
