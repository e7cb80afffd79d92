"""The report's words, numbers and safety, without a browser."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from own_data import colafier

from colafier.report import evidence, figures, headline, page

HOSTILE = "</script><script>alert(1)</script>&\"'\u202e\u2028<!--"
SUMMARY = {
    "fingerprint": "abc", "rows": 4, "labeled": 4, "unusable": 0, "classes": 2,
    "estimated_noise_rate": 0.25, "estimated_noise_interval": [0.2, 0.3],
    "estimated_wrong_labels": 1, "actions": {}, "relabeled": 1, "expected_fixed": 1,
    "expected_broken": 0, "accuracy_on_unseen_observed_labels": 0.9, "implied_accuracy": 0.95,
    "input": {"kind": "table"},
}  # fmt: skip


def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "row": ["0", "1", "2", "3"],
            "name": ["0", "1", "2", HOSTILE],
            "original_label": ["cat", "dog", "NA", ""],
            "predicted_label": ["dog", "cat", "NA", "cat"],
            "suggested_label": ["dog", "dog", "NA", "cat"],
            "confidence": ["0.9", "0.8", "0.7", "0.6"],
            "label_quality": ["0.05", "0.8", "0.7", ""],
            "is_label_issue": ["True", "False", "False", "False"],
            "action": ["relabel", "keep", "review", "keep"],
            "label": ["dog", "dog", "NA", ""],
            "reason": ["wrong", "", "ambiguous", ""],
            "lid": ["9.5", "1.5", "", "2"],
        }
    )


def finished(out: Path, lines: pd.DataFrame | None = None, **summary: Any) -> Path:
    out.mkdir(exist_ok=True)
    (table() if lines is None else lines).to_csv(out / "labels.csv", index=False)
    (out / "summary.json").write_text(json.dumps({**SUMMARY, **summary}))
    (out / "config.json").write_text(json.dumps({"options": {"source": f"/data/{HOSTILE[2:6]}"}}))
    (out / "metrics.jsonl").write_text('{"epoch": 0, "loss": 2}\n{"epoch": 1, "loss": 1}\n')
    return out


def data(out: Path) -> dict[str, Any]:
    """What the scripts of the page see."""
    html = (out / "report.html").read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(found)


def test_everything_of_the_table_is_in_the_page(tmp_path: Path) -> None:
    page.write(finished(tmp_path))
    found = data(tmp_path)
    columns = found["columns"]
    names = [*found["classes"], None]  # -1 takes the last
    assert [names[i] for i in columns["original"]] == ["cat", "dog", "NA", None]
    assert [names[i] for i in columns["predicted"]] == ["dog", "cat", "NA", "cat"]
    assert [names[i] for i in columns["suggested"]] == ["dog", "dog", "NA", "cat"]
    assert [names[i] for i in columns["label"]] == ["dog", "dog", "NA", None]
    assert [found["actions"][i] for i in columns["action"]] == table()["action"].tolist()
    assert columns["quality"] == [500, 8000, 7000, None]
    assert columns["lid"] == [9.5, 1.5, None, 2.0]
    assert found["names"][3] == HOSTILE
    assert (found["fingerprint"], found["rows"], found["to_review"]) == ("abc", 4, 2)


def test_hostile_texts_stay_inside_of_the_data(tmp_path: Path) -> None:
    lines = table().assign(original_label=HOSTILE, label=HOSTILE, suggested_label="cat")
    page.write(finished(tmp_path, lines))
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count("<script") == 2
    assert "alert(1)</script>" not in html
    assert "\u202e" not in html
    assert HOSTILE in data(tmp_path)["classes"]


def test_a_text_that_looks_like_a_place_of_the_template_is_left_alone(tmp_path: Path) -> None:
    lines = table().assign(name="@SCRIPT@ @DATA@ @STYLE@")
    config = {"options": {"source": "/data/@STYLE@"}}
    (finished(tmp_path, lines) / "config.json").write_text(json.dumps(config))
    page.write(tmp_path)
    assert "<title>@STYLE@: colafier report" in (tmp_path / "report.html").read_text(
        encoding="utf-8"
    )
    assert data(tmp_path)["names"] == ["@SCRIPT@ @DATA@ @STYLE@"] * 4


def test_nothing_is_fetched_and_only_our_script_runs(tmp_path: Path) -> None:
    page.write(finished(tmp_path))
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\"'\s)]+", html)) == {"http://www.w3.org/2000/svg"}
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe-eval" not in policy
    script = "".join(page._part(f"{name}.js") for name in page.SCRIPTS)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    first = page.write(finished(tmp_path)).read_bytes()
    assert page.write(tmp_path).read_bytes() == first


def test_names_that_are_row_numbers_take_no_room(tmp_path: Path) -> None:
    lines = table()
    page.write(finished(tmp_path, lines.assign(name=lines["row"])))
    assert data(tmp_path)["names"] is None


def test_the_command_writes_it_again(tmp_path: Path) -> None:
    out = finished(tmp_path / "out")
    assert "report.html" in colafier("report", out)
    assert (out / "report.html").exists()


@pytest.mark.parametrize("missing", ["labels.csv", "summary.json"])
def test_an_unfinished_run_is_refused(tmp_path: Path, missing: str) -> None:
    out = finished(tmp_path / "out")
    (out / missing).unlink()
    assert "not the folder of a finished run" in colafier("report", out, code=2)
    assert not (out / "report.html").exists()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    out = finished(tmp_path / "out")
    (out / "config.json").write_text("{")
    assert "config.json is damaged" in colafier("report", out, code=2)


def test_many_rows_make_a_small_page(tmp_path: Path) -> None:
    n = 20_000
    lines = pd.concat([table()] * (n // 4), ignore_index=True)
    lines = lines.assign(
        row=np.arange(n).astype(str), name=[f"cat/photo_{i}.jpg" for i in range(n)]
    )
    page.write(finished(tmp_path, lines, rows=n))
    assert (tmp_path / "report.html").stat().st_size < 60 * n + 100_000


def words(**summary: Any) -> dict[str, Any]:
    return headline.headline({**SUMMARY, **summary}, table())


def test_headline_says_how_many_and_how_sure() -> None:
    found = words(labeled=1000, estimated_wrong_labels=250)
    assert found["big"] == "about 250"
    assert "20.0% and 30.0%" in found["sure"][0]
    assert "200 to 300" in found["sure"][0]
    assert "agrees with 90.0%" in found["sure"][1]
    assert "far higher" not in " ".join(found["sure"])


def test_headline_warns_if_the_classifier_knows_little() -> None:
    found = words(estimated_noise_interval=[0.05, 0.1], accuracy_on_unseen_observed_labels=0.55)
    assert "far higher than the estimate" in " ".join(found["sure"])


def test_headline_of_few_rows_claims_nothing() -> None:
    assert "too few rows" in words(estimated_noise_interval=[0.0, 1.0])["sure"][0]


def test_steps_lead_to_their_rows() -> None:
    steps = words()["next"]
    assert [step.get("filter") for step in steps] == [
        {"action": "review"}, {"action": "relabel"}, None,
    ]  # fmt: skip
    assert "1 row marked review" in steps[0]["text"]
    assert "colafier apply" in steps[-1]["text"]
    calm = headline.steps(table().assign(action="keep"))
    assert calm == [{"text": "There is nothing to do: no label is doubtful enough."}]


def reviewed() -> pd.DataFrame:
    others = dict.fromkeys(("reviewed_from", "reviewed_to", "reviewed_why"), "")
    return table().assign(reviewed_at=["2026-11-16T09:59:00Z", "", "", ""], **others)


def test_headline_after_a_review_is_about_the_other_rows() -> None:
    summary = {**SUMMARY, "labeled": 1001, "trusted": 1, "estimated_wrong_labels": 250}
    found = headline.headline({**summary, "relabeled": 0}, reviewed())
    assert found["lead"] == [
        "of 1,000 labels that nobody has reviewed are probably wrong.",
        "Only people changed labels.",
        "People have decided 1 row.",
    ]
    assert "200 to 300" in found["sure"][0]
    assert [step.get("filter") for step in found["next"]] == [{"action": "review"}, None]


def test_decided_rows_are_not_shown_for_review_again(tmp_path: Path) -> None:
    page.write(finished(tmp_path))
    evidence.write(tmp_path, {"format": evidence.FORMAT, "rows": [{"row": 0}, {"row": 2}]})
    page.write(finished(tmp_path, reviewed()))
    found = data(tmp_path)
    assert [entry["row"] for entry in found["evidence"]["rows"]] == [2]
    assert found["to_review"] == 1
    assert found["applied"] == {"0": "2026-11-16T09:59:00Z"}
    assert found["rows"] == 4
    lines = reviewed().assign(label_quality=[0.05, 0.8, 0.7, np.nan])
    assert evidence.doubtful(lines) == [2, 1]


def scored(out: Path, lines: pd.DataFrame | None = None, **record: Any) -> Path:
    """The folder of a run whose truth is known: cat was wrong, dog right, NA wrong."""
    lines = table().assign(method_label=["dog", "dog", "cat", ""]) if lines is None else lines
    finished(out, lines)
    (out / "record.json").write_text(json.dumps({"method": "colafier", **record}))
    (out / "noise.json").write_text(json.dumps({"kind": "pair", "true_rate": 0.25}))
    found = {"format": evidence.FORMAT, "classes": ["cat", "dog", "NA"], "truth": [1, 1, 0, -1],
             "rows": [], "others": {}}  # fmt: skip
    (out / evidence.NAME).write_text(json.dumps(found))
    return out


def test_a_run_with_known_truth_is_scored(tmp_path: Path) -> None:
    page.write(scored(tmp_path, test_accuracy=0.875))
    found = data(tmp_path)
    assert found["columns"]["truth"] == [1, 1, 0, -1]
    text = " ".join(found["scores"])
    assert "2 of 3 original labels are wrong (66.7%)" in text
    assert "1 label was changed: 1 wrong label became right, 0 right labels became wrong" in text
    assert "33.3% of the labels were right before, 66.7% are right now" in text
    assert "100.0% of the changed labels were wrong, and 50.0% of the wrong labels" in text
    assert "the method itself ended with, 100.0% are right" in text
    assert "right about 87.5% of the test rows" in text
    assert set(found["figures"]["lid"]["groups"]) == {
        "kept, original label right", "kept, original label wrong",
        "changed, original label wrong", "changed, original label right",
    }  # fmt: skip
    assert dict(found["about"])["Scores"] == [["method", "colafier"], ["test_accuracy", "0.875"]]
    assert dict(found["about"])["Injected noise"] == [["kind", "pair"], ["true_rate", "0.25"]]


def test_a_scored_run_has_the_same_page_otherwise(tmp_path: Path) -> None:
    page.write(finished(tmp_path / "plain"))
    page.write(scored(tmp_path / "scored", table()))
    plain, with_truth = data(tmp_path / "plain"), data(tmp_path / "scored")
    assert plain["scores"] is None
    for key in ("title", "subtitle", "fingerprint", "headline", "to_review", "applied"):
        assert plain[key] == with_truth[key]


def test_a_scored_run_without_changes_says_so(tmp_path: Path) -> None:
    lines = table().assign(label=table()["original_label"], action="keep")
    page.write(scored(tmp_path, lines))
    text = " ".join(data(tmp_path)["scores"])
    assert "No label was changed" in text
    assert "of the changed labels" not in text


@pytest.mark.parametrize(
    "config",
    [{"options": {"source": "/data/digits", "method": "elr"}, "recipe": {"net": "mlp"}},
     {"source": "digits", "method": "elr", "noise": "pair:0.3", "hyper": {"ratio": 0.5}}],
)  # fmt: skip
def test_title_and_settings_come_from_the_config(tmp_path: Path, config: dict[str, Any]) -> None:
    (finished(tmp_path) / "config.json").write_text(json.dumps({**config, "classes": ["cat"]}))
    page.write(tmp_path)
    found = data(tmp_path)
    assert found["title"] == "digits"
    assert found["subtitle"].startswith("4 rows, 2 classes, method elr")
    shown = [name for _, pairs in found["about"] for name, _ in pairs]
    assert "method" in shown
    assert "classes" not in shown


def test_lid_histogram_counts_every_row_once() -> None:
    lid = np.concatenate([np.random.default_rng(0).gamma(2, 2, 500), [1e6]])
    lines = pd.DataFrame(
        {"original_label": "a", "label": ["a", "b"] * 250 + ["b"], "lid": lid.astype(str)}
    )
    found = figures.lid_histogram(lines)
    assert {name: sum(c) for name, c in found["groups"].items()} == {"kept": 250, "changed": 251}
    assert found["edges"] == sorted(found["edges"])
    assert found["edges"][-1] < 100  # one huge value does not hide the rest


def test_no_lid_no_picture() -> None:
    assert figures.lid_histogram(table().assign(lid="")) is None


def test_confusion_of_many_classes_keeps_those_that_move() -> None:
    original = [str(i) for i in range(40)] * 2
    label = [str(i) for i in range(40)] + ["39" if i < 3 else str(i) for i in range(40)]
    found = figures.confusion(pd.DataFrame({"original_label": original, "label": label}), limit=4)
    assert found["classes"] == ["0", "1", "2", "39"]
    assert found["counts"][0] == [1, 0, 0, 1]
    assert found["left_out"] == 36


def test_classes_are_counted() -> None:
    lines = table().assign(label_quality=[0.25, 1.0, 0.5, ""])
    found = {line["class"]: line for line in figures.per_class(lines, ["dog", "dog", "cat", ""])}
    assert found["cat"]["expected_wrong"] == 0.8  # rounded
    assert (found["cat"]["before"], found["cat"]["after"], found["cat"]["moved_out"]) == (1, 0, 1)
    assert (found["dog"]["before"], found["dog"]["after"], found["dog"]["moved_in"]) == (1, 2, 1)
    assert (found["cat"]["right_before"], found["cat"]["right_after"]) == (0.0, None)
    assert (found["dog"]["right_before"], found["dog"]["right_after"]) == (1.0, 1.0)


def test_curves_leave_out_what_no_epoch_has() -> None:
    assert figures.curves([{"loss": 2.0}, {"loss": None, "other": 3}]) == {"loss": [2.0, None]}
