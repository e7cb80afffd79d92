"""The first thing a report says, in plain words: how many labels are wrong, how sure, what next."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from colafier.audit.policy import EXCLUDE, RELABEL, REVIEW, UNUSABLE
from colafier.review.decisions import undecided

Headline = dict[str, Any]
PERCENT = 100
FAR = 2  # times the upper end of the estimate: disagreement beyond that is a warning
APPLY = {"text": "Save what you decided as decisions.json, then: colafier apply OUT decisions.json"}
BLIND = (
    "Labels that are wrong in just the way in which the classifier is wrong cannot be seen, "
    "so that there may be more."
)


def of_purify(summary: Mapping[str, Any], lines: pd.DataFrame) -> Headline:
    """For a run on a user's own data, from its summary.json."""
    trusted = summary.get("trusted", 0)  # by people, before this training
    labeled = summary["labeled"] - trusted
    rate, (low, high) = summary["estimated_noise_rate"], summary["estimated_noise_interval"]
    wrong, moved = summary["estimated_wrong_labels"], summary["relabeled"]
    others = "labels that nobody has decided" if trusted else "labels"
    lead = [f"of {labeled:,} {others} are probably wrong."]
    if moved:
        lead.append(
            f"{moved:,} labels were changed: about {summary['expected_fixed']:,} of these changes "
            f"should be right, about {summary['expected_broken']:,} should hit a label that was "
            "right before."
        )
    else:
        lead.append("No label was changed but by people." if trusted else "No label was changed.")
    if low <= 0 and high >= 1:
        sure = ["There are too few rows to say how far off this number may be."]
    else:
        sure = [
            f"Between {_percent(low)} and {_percent(high)}, which is {low * labeled:,.0f} to "
            f"{high * labeled:,.0f} labels, as far as chance in the rows goes."
        ]
    if decided := int((~undecided(lines)).sum()):
        lead.append(f"People have decided {decided:,} row{'' if decided == 1 else 's'}.")
    if summary["accuracy_on_unseen_observed_labels"] is not None:
        sure.append(_agreement(summary["accuracy_on_unseen_observed_labels"], high))
    return {
        "title": "Wrong labels",
        "big": f"about {wrong:,}",
        "share": _percent(rate),
        "lead": lead,
        "sure": [*sure, BLIND],
        "next": _with(steps(lines), APPLY),
    }


def of_train(record: Mapping[str, Any], lines: pd.DataFrame) -> Headline:
    """For a research run, from its record.json; where the truth is known, it speaks."""
    labeled = int(lines["original_label"].ne("").sum())
    changed = int(lines["action"].eq(RELABEL).sum())
    before = record.get("labels_right_before")
    own = {"text": "For labels of your own, with review: colafier purify SOURCE -o OUT"}
    said: Headline = {"title": "Wrong labels", "next": _with(steps(lines), own)}
    if before is not None:
        after, fixed, broken = (
            record[name] for name in ("labels_right_after", "labels_fixed", "labels_broken")
        )
        lead = [
            f"of {labeled:,} labels are wrong.",
            f"{changed:,} labels were changed. That made {fixed:,} of the wrong ones right, and "
            f"{broken:,} of the right ones wrong. So {_percent(before)} of the labels were right "
            f"before, and {_percent(after)} are after.",
        ]
        sure = ["The truth is known in this run, so these numbers are counted, not estimated."]
        if record.get("precision") is not None and record.get("recall") is not None:
            sure.append(
                f"{_percent(record['precision'])} of the changed labels were wrong, and "
                f"{_percent(record['recall'])} of the wrong labels were changed."
            )
        wrong = round((1 - before) * labeled)
        return {**said, "big": f"{wrong:,}", "share": _percent(1 - before), "lead": lead,
                "sure": sure}  # fmt: skip
    share = _percent(changed / max(labeled, 1))
    sure = ["The truth is not known here."]
    right = record.get("diagnostics", {}).get("observed_right")
    if isinstance(right, int | float):
        sure.append(f"From held-out rows, about {_percent(right)} of the labels seem to be right.")
    lead = [f"of {labeled:,} labels were changed."]
    return {**said, "title": "Changed labels", "big": f"{changed:,}", "share": share, "lead": lead,
            "sure": [*sure, BLIND]}  # fmt: skip


def steps(lines: pd.DataFrame) -> list[dict[str, Any]]:
    """What a person should do, in order; a step with a filter shows its rows."""
    lines = lines[undecided(lines)]
    actions, unusable = lines["action"], lines["reason"].str.startswith(f"{UNUSABLE}:")
    found: list[dict[str, Any]] = []
    for action, text in (
        (REVIEW, "Look at the {} marked review: here the evidence is not enough to decide."),
        (RELABEL, "Spot-check the {} with a changed label."),
        (EXCLUDE, "Look at the {} to exclude: without a class that fits, or not readable."),
    ):
        if number := int(actions.eq(action).sum()):
            rows = f"{number:,} row{'' if number == 1 else 's'}"
            found.append({"text": text.format(rows), "filter": {"action": action}})
    if not found:
        return [{"text": "Nothing has to be done: no label is doubtful enough."}]
    if broken := int(unusable.sum()):
        found.append({"text": f"Repair or remove what cannot be read: {broken:,} in labels.csv."})
    return found


def _with(found: list[dict[str, Any]], last: dict[str, Any]) -> list[dict[str, Any]]:
    """Steps with what comes after them, if there is anything to do."""
    return [*found, last] if any("filter" in step for step in found) else found


def _agreement(met: float, high: float) -> str:
    """What a classifier's agreement with labels that it has not seen says of the estimate."""
    said = f"Asked about labels that it had not seen, the classifier agreed with {_percent(met)}."
    if 1 - met < FAR * high:
        return said
    return (
        f"{said} With the other {_percent(1 - met)} either the label or the classifier is wrong, "
        "so that the true number can be far higher than the estimate."
    )


def _percent(share: float) -> str:
    return f"{PERCENT * share:.1f}\u00a0%"  # stays in one line
