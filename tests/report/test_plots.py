"""The report's pictures from Python."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colafier.report import plots

ORIGINAL = ["cat", "cat", "dog", "dog", None, "cat"]
LABELS = ["cat", "dog", "dog", "dog", None, "cat"]
TRUTH = ["cat", "dog", "dog", "cat", "dog", "cat"]
EPOCHS = [{"loss": 2.0, "labels_changed": 0.0}, {"loss": 1.0, "labels_changed": 7.0}]


@pytest.fixture(autouse=True)
def _axes_without_a_screen(need: Callable[[str], None]) -> Any:
    need("plots")
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    yield
    plt.close("all")


def table(times: int = 1) -> pd.DataFrame:
    quality = [0.9, 0.1, 0.8, 0.6, np.nan, 0.7]
    lid = [1.0, 9.0, 2.0, 3.0, np.nan, 1.5]
    columns = {"original_label": ORIGINAL, "label": LABELS, "label_quality": quality, "lid": lid}
    return pd.DataFrame({name: times * values for name, values in columns.items()})


def test_lid_has_a_shape_for_each_group() -> None:
    ax = plots.lid(table(20))
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts == ["kept (80)", "changed (20)"]
    assert np.concatenate([p.get_data().values for p in ax.patches]).sum() == pytest.approx(2)


def test_groups_of_a_few_rows_have_no_shape() -> None:
    texts = [text.get_text() for text in plots.lid(table(5)).get_legend().get_texts()]
    assert texts == ["kept (20)"]


def test_lid_is_parted_by_the_truth() -> None:
    texts = [text.get_text() for text in plots.lid(table(20), 20 * TRUTH).get_legend().get_texts()]
    assert texts == [
        "kept, original label right (60)",
        "kept, original label wrong (20)",
        "changed, original label wrong (20)",
    ]


def test_axes_come_back_as_they_went_in() -> None:
    import matplotlib.pyplot as plt

    _, (first, second, third, fourth) = plt.subplots(1, 4)
    assert plots.lid(table(20), ax=first) is first
    assert plots.confusion(table(), ax=second) is second
    assert plots.per_class(table(), ax=third) is third
    assert plots.curve(EPOCHS, ax=fourth) is fourth
    assert len(plt.get_fignums()) == 1


def test_confusion_shows_all_counts() -> None:
    ax = plots.confusion(table())
    shown = {(t.get_position(), t.get_text()) for t in ax.texts}
    assert shown == {((0, 0), "2"), ((1, 0), "1"), ((1, 1), "2")}


def test_classes_before_and_after() -> None:
    ax = plots.per_class(table(), TRUTH)
    before, after = (
        [bar.get_height() for bar in bars] for bars in (ax.containers[0], ax.containers[1])
    )
    assert before == pytest.approx(
        [1 / 3, 0.5], abs=1e-3
    )  # cat: 1 of 3 is a dog; dog: 1 of 2 is a cat
    assert after == pytest.approx([0.0, 1 / 3], abs=1e-3)


def test_classes_expected() -> None:
    ax = plots.per_class(table())
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([1.3 / 3, 0.3], abs=0.02)


def test_numbers_as_classes() -> None:
    lines = table().replace({"cat": 1.0, "dog": 2.0})  # as pandas reads 1, 2 and an empty cell
    ticks = [t.get_text() for t in plots.confusion(lines).get_yticklabels()]
    assert ticks == ["1", "2"]


def test_curve() -> None:
    (line,) = plots.curve(EPOCHS, "loss").lines
    assert line.get_xydata().tolist() == [[1, 2], [2, 1]]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.curve(EPOCHS, "nonsense"), "labels_changed, loss"),
        (lambda: plots.lid(table().drop(columns="lid")), "no LID"),
        (lambda: plots.confusion(table().drop(columns="label")), "no column 'label'"),
    ],
)
def test_what_is_missing_is_named(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
