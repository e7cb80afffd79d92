"""A decisions.json is checked before it is believed; then it is applied to the label table."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colafier.audit.label_table import COLUMNS
from colafier.readers import json_files
from colafier.review import decisions
from colafier.review.apply import apply_decisions, check
from colafier.review.decided import (
    REVIEW_COLUMNS,
    REVIEWED_AT,
    REVIEWED_FROM,
    REVIEWED_TO,
    REVIEWED_WHY,
    DecidedRows,
)
from colafier.review.decisions import Review

PRINT = "f" * 64
NAMES = ["cat/1.png", 'cat/"2",\n<b>.png', "dog/3.png", "dog/ד4.png", "5.png"]


def lines() -> pd.DataFrame:
    """A table of five rows as text, as in labels.csv; the last one has no original label."""
    cells = {
        "row": ["0", "1", "2", "3", "4"],
        "name": NAMES,
        "original_label": ["cat", "cat", "dog", "dog", ""],
        "predicted_label": ["cat", "dog", "dog", "cat", "cat"],
        "suggested_label": ["cat", "dog", "dog", "cat", "cat"],
        "confidence": ["0.9", "0.8", "0.7", "0.6", "0.9"],
        "label_quality": ["0.9", "0.1", "0.7", "0.4", ""],
        "is_label_issue": ["False", "True", "False", "True", "False"],
        "action": ["keep", "relabel", "keep", "review", "keep"],
        "label": ["cat", "dog", "dog", "dog", ""],
        "reason": ["", "wrong", "", "ambiguous", ""],
        "lid": ["1", "2", "1", "2", ""],
        "method_label": ["cat", "dog", "cat", "dog", ""],
    }
    return pd.DataFrame(cells, dtype=str)


def one(row: int, choice: str, label: str | None, **other: Any) -> dict[str, Any]:
    original = lines()["original_label"][row] or None
    made = {"row": row, "name": NAMES[row], "original": original, "choice": choice, "label": label}
    return made | {"at": "2026-11-16T09:59:00Z"} | other


def content(*records: dict[str, Any], **other: Any) -> dict[str, Any]:
    head = {"format": decisions.FORMAT, "fingerprint": PRINT, "rows": 5}
    return head | {"saved": "2026-11-16T10:00:00.123Z", "decisions": list(records)} | other


def read(tmp_path: Path, value: Any) -> Review:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    (tmp_path / "decisions.json").write_bytes(text)
    return decisions.read(tmp_path / "decisions.json")


def applied(tmp_path: Path, *records: dict[str, Any], to: pd.DataFrame | None = None) -> Any:
    table = lines() if to is None else to
    review = read(tmp_path, content(*records))
    return apply_decisions(table, review, PRINT, "decisions.json")


ALL = (
    one(0, "other", "dog"),
    one(1, "keep", "cat"),
    one(2, "exclude", None, at="2026-11-16T11:00:00+01:00"),
    one(3, "suggestion", "cat"),
    one(4, "suggestion", "cat"),
)


def test_every_choice_is_applied_and_recorded(tmp_path: Path) -> None:
    done = applied(tmp_path, *ALL)
    assert done["label"].tolist() == ["dog", "cat", "dog", "cat", "cat"]
    assert done["action"].tolist() == ["relabel", "keep", "exclude", "relabel", "relabel"]
    assert done[REVIEWED_FROM].tolist() == ["cat", "dog", "dog", "dog", ""]
    assert done[REVIEWED_TO].tolist() == ["dog", "cat", "", "cat", "cat"]
    assert done[REVIEWED_WHY].tolist() == [
        "other", "keep: wrong", "exclude", "suggestion: ambiguous", "suggestion",
    ]  # fmt: skip
    assert done[REVIEWED_AT].tolist()[1:3] == ["2026-11-16T09:59:00Z", "2026-11-16T10:00:00Z"]


def test_rows_and_what_was_found_stay(tmp_path: Path) -> None:
    done = applied(tmp_path, *ALL[:2])
    assert tuple(done.columns) == ("row", "name", *COLUMNS, *REVIEW_COLUMNS)
    found = [name for name in lines().columns if name not in ("label", "action")]
    pd.testing.assert_frame_equal(done[found], lines()[found])
    assert done[["label", "action"]].iloc[2:].equals(lines()[["label", "action"]].iloc[2:])
    assert (done[list(REVIEW_COLUMNS)].iloc[2:] == "").all(axis=None)


def test_twice_is_the_same_as_once(tmp_path: Path) -> None:
    once = applied(tmp_path, *ALL)
    pd.testing.assert_frame_equal(applied(tmp_path, *ALL, to=once), once)


def test_the_later_decision_counts_in_any_order(tmp_path: Path) -> None:
    early = one(1, "keep", "cat")
    late = one(1, "exclude", None, at="2026-11-16T09:59:00.5Z")
    ways = [
        applied(tmp_path, second, to=applied(tmp_path, first))
        for first, second in ((early, late), (late, early))
    ]
    pd.testing.assert_frame_equal(*ways)
    assert ways[0].loc[1, ["action", REVIEWED_FROM, REVIEWED_WHY]].tolist() == [
        "exclude",
        "dog",
        "exclude: wrong",
    ]


def test_saved_and_read_again(tmp_path: Path) -> None:
    review = read(tmp_path, content(*ALL))
    decisions.save(review, tmp_path / "again.json")
    assert decisions.read(tmp_path / "again.json") == review
    assert len(review.decisions) == 5


def broken(change: Any) -> dict[str, Any]:
    made = copy.deepcopy(content(*ALL))
    change(made)
    return made


BAD_FORM = {
    "not JSON": (b"{", "it is not JSON"),
    "too deep": (b"[" * 100_000, "nested more than 50 levels deep"),
    "not UTF-8": (b'"\xff"', "it is not UTF-8"),
    "key twice": (b'{"format": 1, "format": 2}', "the key 'format' appears twice"),
    "list": ([1], "must be an object"),
    "format": (
        broken(lambda c: c.update(format="colafier-decisions-1")),
        "format must be",
    ),
    "no decisions": (broken(lambda c: c.update(decisions={})), "decisions must be a list"),
    "more at the top": (broken(lambda c: c.update(extra=1)), "extra is no key"),
    "less at the top": (broken(lambda c: c.pop("rows")), "rows is missing"),
    "rows as text": (broken(lambda c: c.update(rows="5")), "rows must be a whole number"),
    "saved": (broken(lambda c: c.update(saved="today")), "'today' is not a time"),
    "record": (broken(lambda c: c["decisions"].append(3)), "decisions.5 must be an object"),
    "more": (broken(lambda c: c["decisions"][0].update(note="")), "decisions.0.note is no key"),
    "less": (broken(lambda c: c["decisions"][1].pop("at")), "decisions.1.at is missing"),
    "row as text": (broken(lambda c: c["decisions"][0].update(row="0")), "row must be a whole"),
    "row as truth": (broken(lambda c: c["decisions"][0].update(row=True)), "row must be a whole"),
    "row as float": (broken(lambda c: c["decisions"][0].update(row=0.0)), "row must be a whole"),
    "choice": (broken(lambda c: c["decisions"][0].update(choice="skip")), "choice must be one of"),
    "choice as list": (broken(lambda c: c["decisions"][0].update(choice=[])), "choice must be one"),
    "label": (broken(lambda c: c["decisions"][0].update(label=["dog"])), "label must be text or"),
    "time": (broken(lambda c: c["decisions"][0].update(at="2026-11-16")), "is not a time"),
    "no zone": (broken(lambda c: c["decisions"][0].update(at="2026-11-16T09:59:00")), "time zone"),
    "before time": (
        broken(lambda c: c["decisions"][0].update(at="0001-01-01T00:00:00+23:00")),
        "is not a time",
    ),
}


@pytest.mark.parametrize(("value", "says"), BAD_FORM.values(), ids=BAD_FORM)
def test_a_file_of_another_form_is_refused(tmp_path: Path, value: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(tmp_path, value)


BAD_FIT = {
    "rows": (content(*ALL, rows=6), "is about 6 rows, but this run has 5"),
    "below": (content(one(0, "keep", "cat") | {"row": -1}), "there is no row -1; rows are 0 to 4"),
    "beyond": (content(one(0, "keep", "cat") | {"row": 5}), "there is no row 5"),
    "twice": (content(ALL[1], ALL[1]), "row 1 is decided twice"),
    "name": (
        content(one(0, "keep", "cat", name="x")),
        "its name is 'cat/1.png' in this run, not 'x'",
    ),
    "original": (
        content(one(0, "keep", "cat", original="dog")),
        "original label is 'cat', not 'dog'",
    ),
    "no class": (content(one(0, "other", "eel")), "no class 'eel'; the classes are cat, dog"),
    "empty class": (content(one(0, "other", "")), "no class ''"),
    "kept another": (content(one(0, "keep", "dog")), "the label to keep is 'cat', not 'dog'"),
    "kept none": (content(one(4, "keep", "cat")), "the label to keep is None"),
    "no label": (content(one(0, "suggestion", None)), "the choice 'suggestion' needs a label"),
    "excluded with": (content(one(0, "exclude", "cat")), "an excluded row has no label"),
}


@pytest.mark.parametrize(("value", "says"), BAD_FIT.values(), ids=BAD_FIT)
def test_decisions_that_do_not_fit_are_refused(tmp_path: Path, value: Any, says: str) -> None:
    review = read(tmp_path, value)
    with pytest.raises(ValueError, match=says):
        check(review, lines(), PRINT, "decisions.json")


def test_another_data_set_is_refused_with_both_fingerprints(tmp_path: Path) -> None:
    review = read(tmp_path, content(*ALL))
    with pytest.raises(ValueError, match=f"another data set.*{PRINT}.*'eeee'"):
        check(review, lines(), "eeee", "decisions.json")


def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_files, "MAX_BYTES", 100)
    with pytest.raises(ValueError, match="no more than 100 are read"):
        read(tmp_path, content(*ALL))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is not a regular file"):
        decisions.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        decisions.read(tmp_path / "none.json")


def judged_again() -> pd.DataFrame:
    """What a second training finds, in its own types, with the decided labels as original ones."""
    found = lines()
    found["original_label"] = ["dog", "cat", None, "cat", "cat"]
    found["label"] = found["original_label"]
    found["action"], found["reason"] = "keep", ""
    found["label_quality"] = [1.0, 1.0, np.nan, 1.0, 1.0]
    found["is_label_issue"] = False
    return found


def test_decided_rows_are_carried_over(tmp_path: Path) -> None:
    before = applied(tmp_path, *ALL)
    decided = DecidedRows.from_table(before, PRINT)
    assert decided.labels() == {0: "dog", 1: "cat", 2: None, 3: "cat", 4: "cat"}
    assert decided.trusted([0, 2, 4]).tolist() == [True, False, True]
    done = decided.carry_over(judged_again())
    names = ["label", "action", "reason", *REVIEW_COLUMNS]
    pd.testing.assert_frame_equal(done[names], before[names], check_dtype=False)
    assert done["original_label"].tolist() == ["cat", "cat", "dog", "dog", None]
    assert done["label_quality"].tolist()[:2] == [0.0, 1.0]
    assert done["label_quality"].isna().tolist() == [False, False, True, False, True]
    assert done["is_label_issue"].tolist() == [True, False, False, True, False]


def test_other_rows_are_as_the_later_run_found_them(tmp_path: Path) -> None:
    decided = DecidedRows.from_table(applied(tmp_path, ALL[0]), PRINT)
    again = judged_again()
    done = decided.carry_over(again)
    assert len(decided) == 1
    pd.testing.assert_frame_equal(
        done.loc[1:, list(again.columns)], again.loc[1:], check_dtype=False
    )
    assert (done.loc[1:, list(REVIEW_COLUMNS)] == "").all(axis=None)


def test_decisions_are_told_apart(tmp_path: Path) -> None:
    digests = {
        DecidedRows.from_table(applied(tmp_path, *some), PRINT).digest() for some in (ALL, ALL[:4])
    }
    assert len(digests) == 2
    assert len(DecidedRows.from_table(lines(), PRINT)) == 0
