from pathlib import Path
from typing import Any

import pytest

from colafier.report import comparison_page
from colafier.report.comparison import FIGURES, Run, figures_of, grouped, mean_and_deviation
from colafier.report.curve_chart import chart

ACCURACY = next(figure for figure in FIGURES if figure.key == "test_accuracy")


def run(seed: int = 1, folder: str = "", accuracy: float | None = 0.9, **settings: Any) -> Run:
    own = {"method": "ce", "kind": "train", "source": "digits", "noise": "pair:0.3", **settings}
    figures = {"seconds": 3.0} | ({} if accuracy is None else {"test_accuracy": accuracy})
    epochs = [{"test_accuracy": accuracy / 2}, {"test_accuracy": accuracy}] if accuracy else [{}]
    return Run(Path(folder or f"runs/{own['method']}{seed}"), seed, own, figures, epochs)


def names(*runs: Run) -> list[str]:
    return [group.name for group in grouped(runs)]


def test_runs_that_differ_only_in_the_seed_are_one_group() -> None:
    groups = grouped([run(2), run(1, method="elr"), run(1), run(3)])
    assert [(group.name, group.seeds) for group in groups] == [("ce", "1, 2, 3"), ("elr", "1")]


def test_groups_are_named_by_what_differs() -> None:
    assert names(run()) == ["ce"]
    assert names(run(noise="pair:0.3"), run(noise="pair:0.4")) == ["ce, pair:0.3", "ce, pair:0.4"]
    assert names(run(epochs=2, flip=True), run(epochs=2, flip=False)) == [
        "ce, flip=true",
        "ce, flip=false",
    ]
    # a hyper-parameter that only one method has distinguishes nothing
    assert names(run(method="gce", q=0.7), run(method="ce")) == ["gce", "ce"]
    assert names(run(method="gce", q=0.7), run(method="gce", q=0.5)) == ["gce, q=0.7", "gce, q=0.5"]


def test_a_repeated_seed_is_not_averaged() -> None:
    """The same settings before and after a change of the code are two groups."""
    groups = grouped(
        [run(seed, f"{when}/seed{seed}") for when in ("old", "new") for seed in (1, 2)]
    )
    assert [(group.name, group.seeds) for group in groups] == [
        ("ce (old)", "1, 2"),
        ("ce (new)", "1, 2"),
    ]
    assert names(run(1, "runs/a"), run(1, "runs/b")) == ["ce (runs/a)", "ce (runs/b)"]


def test_mean_and_sample_deviation() -> None:
    assert mean_and_deviation([0.5]) == (0.5,)
    assert mean_and_deviation([1, 2, 3, 4]) == pytest.approx((2.5, (5 / 3) ** 0.5))
    assert ACCURACY.text([0.9, 0.95]) == "92.5 ± 3.5"
    assert ACCURACY.text([0.9]) == "90.0"
    assert ACCURACY.text([]) == "-"


def test_figures_that_no_run_has_are_left_out() -> None:
    groups = grouped([run(accuracy=None)])
    assert [figure.key for figure in figures_of(groups)] == ["seconds"]
    assert groups[0].curve("test_accuracy") is None


def test_a_curve_is_the_mean_of_the_runs_that_have_the_epoch() -> None:
    (group,) = grouped([run(1, accuracy=0.8), run(2, accuracy=0.6), run(3, accuracy=None)])
    curve = group.curve("test_accuracy")
    assert curve is not None
    assert curve.has_band
    expected = [(1, 0.35, 0.1 / 2**0.5), (2, 0.7, 0.2 / 2**0.5)]
    assert [*map(pytest.approx, expected)] == list(curve.points)


def test_a_chart_draws_lines_bands_and_single_epochs() -> None:
    (group,) = grouped([run(1, accuracy=0.8), run(2, accuracy=0.6)])
    curve = group.curve("test_accuracy")
    assert curve is not None
    drawn = chart({0: ("ce", curve)}, "Test accuracy")
    assert drawn.count("<polyline") == drawn.count("<polygon") == 1
    one = chart({9: ("x", type(curve)(((1, 1.0, 0.0),), False))}, "Test accuracy")
    assert "<circle" in one
    assert "nan" not in drawn + one


def test_the_page_escapes_everything_and_fetches_nothing() -> None:
    hostile = "<script>alert(1)</script>@TITLE@\"'&"
    groups = grouped([run(1, f"runs/{hostile}", method=hostile), run(1, method="elr")])
    page = comparison_page.page(groups, {Path(f"out/{hostile}"): hostile})
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;@TITLE@" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "default-src 'none'" in page
    assert "1 left out" in page
    assert page.count('<td class="n best">') == 1


def test_only_an_older_page_is_replaced(tmp_path: Path) -> None:
    groups = grouped([run()])
    path = tmp_path / "compare.html"
    assert comparison_page.write(groups, {}, path) == path
    comparison_page.write(groups, {}, path)
    other = tmp_path / "notes.html"
    other.write_text("mine")
    with pytest.raises(FileExistsError, match="not a page of colafier compare"):
        comparison_page.write(groups, {}, other)
    assert other.read_text() == "mine"
