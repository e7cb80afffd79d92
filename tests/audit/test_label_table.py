"""The result table has every row, in input order, with names as they came."""

import numpy as np
import pandas as pd
import pytest
import torch

from colafier.audit.label_table import COLUMNS, table, with_unusable
from colafier.audit.policy import Decisions
from colafier.evidence.noise_model import NoiseModel, Posterior

ORIGINAL = torch.tensor([1, 0, -1, 1])


def decisions() -> Decisions:
    return Decisions(
        suggested=torch.tensor([1, 1, 0, 0]),
        confidence=torch.tensor([0.9, 0.8, 0.7, 0.6]),
        issue=torch.tensor([False, True, False, True]),
        action=np.array(["keep", "relabel", "keep", "review"], dtype=object),
        reason=np.array(["", "wrong", "", "ambiguous"], dtype=object),
        labels=torch.tensor([1, 1, -1, 1]),
    )


def made(classes: list) -> pd.DataFrame:
    quality = torch.tensor([0.9, 0.2, 1.0, 0.4])
    lid = torch.tensor([1.0, 2.0, torch.nan, 3.0])
    p = torch.full((4, 2), 0.5)
    model = NoiseModel(torch.eye(2), 0.0, 0.0)
    found = Posterior(p, p, quality, model, rate=0.2, interval=(0.1, 0.3))
    return table(
        classes,
        ORIGINAL,
        found,
        decisions(),
        predicted=torch.tensor([1, 1, 0, 0]),
        lid=lid,
        method_labels=torch.tensor([0, 1, -1, 1]),
    )


def test_columns_and_values() -> None:
    lines = made(["cat", "dog"])
    assert tuple(lines.columns) == COLUMNS
    assert lines["original_label"].tolist()[:2] == ["dog", "cat"]
    assert lines["predicted_label"].tolist() == ["dog", "dog", "cat", "cat"]
    assert lines["suggested_label"].tolist() == ["dog", "dog", "cat", "cat"]
    assert lines["label"].tolist()[:2] == ["dog", "dog"]
    assert lines["action"].tolist() == ["keep", "relabel", "keep", "review"]
    assert lines["reason"].tolist() == ["", "wrong", "", "ambiguous"]
    assert lines["is_label_issue"].tolist() == [False, True, False, True]
    assert lines["is_label_issue"].dtype == bool
    assert lines["method_label"].tolist()[:2] == ["cat", "dog"]
    assert lines["confidence"].tolist() == pytest.approx([0.9, 0.8, 0.7, 0.6])


def test_rows_without_a_label_have_no_label_and_no_quality() -> None:
    lines = made(["cat", "dog"])
    assert (
        lines.loc[2, ["original_label", "label", "label_quality", "lid", "method_label"]]
        .isna()
        .all()
    )
    assert lines["label_quality"].drop(2).notna().all()


def test_label_is_the_original_one_except_for_relabels() -> None:
    lines = made(["cat", "dog"])
    moved = lines["label"].ne(lines["original_label"]) & lines["original_label"].notna()
    assert moved.tolist() == lines["action"].eq("relabel").tolist()


def test_classes_keep_their_type() -> None:
    assert made([10, 20])["predicted_label"].tolist() == [20, 20, 10, 10]


def test_unusable_rows_come_out_in_their_places() -> None:
    original = ["cat", "dog", "cat", "eel", None, "dog", None]
    rows, problems = [1, 2, 4, 5], {0: "zero bytes", 3: "not an image", 6: "empty text"}
    lines = with_unusable(made(["cat", "dog"]), rows, problems, original)
    assert lines.index.tolist() == list(range(7))
    assert tuple(lines.columns) == COLUMNS
    assert lines["action"].tolist() == [
        "exclude", "keep", "relabel", "exclude", "keep", "review", "exclude",
    ]  # fmt: skip
    assert lines["reason"][3] == "unusable: not an image"
    for name in ("original_label", "label"):
        assert lines[name].tolist()[0] == "cat"
        assert lines[name].tolist()[3] == "eel"  # a class that no usable row has
        assert pd.isna(lines[name][6])
    assert lines["label"].tolist()[2] == "dog"
    assert (
        lines.loc[[0, 3, 6], ["predicted_label", "confidence", "label_quality"]]
        .isna()
        .all(axis=None)
    )
    assert lines["is_label_issue"].tolist() == [False, False, True, False, False, True, False]
    assert lines["is_label_issue"].dtype == bool


def test_nothing_changes_where_all_rows_can_be_used() -> None:
    lines = made(["cat", "dog"])
    again = with_unusable(lines, [0, 1, 2, 3], {}, ["dog", "cat", None, "dog"])
    pd.testing.assert_frame_equal(again, lines, check_index_type=False)


def test_numbers_as_classes_beside_unusable_rows() -> None:
    lines = with_unusable(made([10, 20]), [0, 1, 2, 3], {4: "not finite"}, [20, 10, None, 20, 30])
    assert lines["original_label"].tolist()[3:] == [20, 30]
