from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from colafier.ingest.labels import (
    LONGEST,
    EncodedLabels,
    check_class_numbers,
    check_two_classes,
    class_names,
    class_numbers,
)


@pytest.mark.parametrize(
    ("y", "missing", "classes"),
    [
        ([0, 1, -1], -1, [0, 1]),
        ([0.0, 1.0, np.nan], np.nan, [0.0, 1.0]),
        (pd.Series(["a", "b", None]), None, ["a", "b"]),
        (pd.Series([3, 4, None], dtype="Int64"), None, [3, 4]),
        ([False, True, None], None, [False, True]),
    ],
)
def test_missing_among_labels_of_any_type(y: Any, missing: Any, classes: list[Any]) -> None:
    found = EncodedLabels.of(y, missing)
    assert found.classes.tolist() == classes
    assert found.numbers.tolist() == [0, 1, -1]
    written = found.written(torch.tensor([1, 1, -1])).tolist()
    assert written[:2] == [classes[1]] * 2
    assert written[2] == -1 if missing == -1 else pd.isna(written[2])


def test_nothing_is_missing_that_is_not_said_to_be() -> None:
    assert EncodedLabels.of(["a", "b", ""], -1).numbers.tolist() == [1, 2, 0]
    assert EncodedLabels.of([0, 1, -1]).numbers.tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a", "a"], r"the labels of 2 rows are of one class \(a\): there is nothing to learn"),
        ([None, None], "no class"),
        (["a", 1], "texts and numbers"),
        ([0.0, 1.0, np.nan], "missing_label=np.nan"),
        ([0.0, 1.0, np.inf], "infinity"),
        ([0.5, 1.5, 2.5], "continuous"),
    ],
)
def test_labels_that_cannot_be_learned_from(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EncodedLabels.of(np.array(y, dtype=object if None in y or "a" in y else None))


def test_names_of_whole_numbers_are_sorted_as_numbers() -> None:
    assert class_names(["10", "9", None, "-1", "9"]) == ["-1", "9", "10"]
    assert class_names(["10", "9", "a"]) == ["10", "9", "a"]
    assert class_names([None]) == []


def test_numbers_by_known_classes() -> None:
    found = class_numbers(["b", None, "a", "c"], ["a", "b"])
    assert (found.tolist(), found.dtype) == ([1, -1, 0, -1], torch.int64)
    assert class_numbers([7, 5], [5, 7]).tolist() == [1, 0]
    assert class_numbers([], ["a"]).shape == (0,)


def test_class_numbers_are_checked() -> None:
    found = check_class_numbers(np.array([0, 2, -1], np.int8), 3, "labels", lowest=-1)
    assert (found.tolist(), found.dtype) == ([0, 2, -1], torch.int64)
    for bad in ([0, 3], [0, -1], [0.0, 1.0], [[0], [1]], ["a", "b"]):
        with pytest.raises(ValueError, match="labels must be whole numbers from 0 to 2, one per"):
            check_class_numbers(np.array(bad), 3, "labels")


def test_two_classes_are_needed() -> None:
    check_two_classes(["a", "b"], "they")
    with pytest.raises(ValueError, match=r"they are of one class \(a\): there is nothing to learn"):
        check_two_classes(["a"], "they")


def test_texts_are_no_classes() -> None:
    assert class_names(["a" * LONGEST, "b"]) == ["a" * LONGEST, "b"]
    with pytest.raises(ValueError, match=r"a label has 1,001 characters.*name the column of the"):
        class_names(["a" * (LONGEST + 1), "b"])
