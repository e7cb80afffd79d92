"""Tables: means, averages, ranks, marks, and what is missing."""

from pathlib import Path

import pytest
from small_suite import made_up, small_suite, write

from colafier.bench import tables
from colafier.bench.results import Results
from colafier.bench.scores import collect

SCORES = {"ce": 0.5, "gce": 0.7, "jocor": 0.7}


def test_averages_and_ranks(tmp_path: Path) -> None:
    suite, results = small_suite(tmp_path), Results(tmp_path, "small")
    write(results, suite.runs("", list(SCORES)), SCORES)
    found = collect(suite, results)
    test = found.scores["test_accuracy"]
    assert found.order[-1] == "ce"
    assert set(found.order) == set(SCORES)  # other entries that have records are shown, too
    assert test.average("ce") == pytest.approx(51.5)
    assert test.cells["ce"][0].deviation == pytest.approx(0.5**0.5)  # of 51 and 52
    assert (test.mean_rank("ce"), test.mean_rank("gce"), test.mean_rank("jocor")) == (3, 1.5, 1.5)
    assert test.below("gce") == 0
    assert found.knows_rate == {"jocor"}
    assert found.missing == found.outdated == ()


def test_markdown_shows_everything(tmp_path: Path) -> None:
    suite, results = small_suite(tmp_path), Results(tmp_path, "small")
    write(results, suite.runs("", list(SCORES)), SCORES)
    text = tables.markdown(collect(suite, results))
    assert (
        "| entry | sym. 50 % (40.0 % wrong) | pair 20 % (40.0 % wrong) | average | mean rank |"
        in text
    )
    assert "| gce | **71.50 ± 0.71** | **71.50 ± 0.71** | **71.50** | **1.5** |" in text
    assert "| jocor † |" in text
    assert "†: the method is told the true noise rate" in text
    assert "| (before) | 60.00 ± 0.00 | 60.00 ± 0.00 | 60.00 |  |" in text
    assert text.index("last epoch") < text.index("last ten") < text.index("Oracle:")
    assert "missing" not in text.partition("## About")[2]
    assert "Commits: 0123456789+changes." in text


def test_a_partial_suite_says_what_is_missing(tmp_path: Path) -> None:
    suite, results = small_suite(tmp_path), Results(tmp_path, "small")
    runs = suite.runs()
    write(results, runs[:-1], SCORES)
    results.append(made_up(runs[-1], 0.9, error="ValueError: no"))
    found = collect(suite, results)
    assert [run.key for run in found.missing] == [("digits", "gce", "pair:0.2", 2)]
    text = tables.markdown(found)
    assert "**1 runs of the suite are missing:** gce (pair:0.2 seed 2)." in text
    assert "71.00 (1)" in text  # one seed, where others have two


def test_an_entry_without_a_column_has_no_rank(tmp_path: Path) -> None:
    suite, results = small_suite(tmp_path), Results(tmp_path, "small")
    write(results, [r for r in suite.runs() if r.key[1:3] != ("gce", "pair:0.2")], SCORES)
    found = collect(suite, results)
    test = found.scores["test_accuracy"]
    assert test.average("gce") is test.mean_rank("gce") is None
    assert found.order == ("ce", "gce")
    assert "| gce | **71.50 ± 0.71** |  |  |  |" in tables.markdown(found)


def test_optional_seeds_and_other_settings(tmp_path: Path) -> None:
    suite, results = small_suite(tmp_path), Results(tmp_path, "small")
    write(results, suite.runs("", ["ce"], seeds=[1, 2, 3, 4]), SCORES)
    found = collect(suite, results, ["ce"])
    assert len(found.scores["test_accuracy"].cells["ce"][0].values) == 3  # not the tuning seed 4
    assert not found.missing
    results.append(made_up(suite.runs()[0], 0.5, settings="older"))
    found = collect(suite, results, ["ce"])
    assert len(found.outdated) == 1
    assert "1 runs have other settings than the suite has now" in tables.notes(found)


def test_latex_is_escaped(tmp_path: Path) -> None:
    suite, results = small_suite(tmp_path), Results(tmp_path, "small")
    scores = {"co_teaching": 0.7, "ce": 0.5}
    write(results, suite.runs("", list(scores)), scores)
    text = tables.latex(collect(suite, results, list(scores)))
    assert r"co\_teaching $\dagger$ & \textbf{71.50 $\pm$ 0.71}" in text
    assert r"sym. 50 \% (40.0 \% wrong)" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\bottomrule") == 6


def test_a_plot_is_written(tmp_path: Path, need: object) -> None:
    need("plots")  # type: ignore[operator]
    from colafier.bench.plot import plot

    suite, results = small_suite(tmp_path), Results(tmp_path, "small")
    scores = {**SCORES, "elr": 0.72, "mixup": 0.71, "cal": 0.05}  # the last one is cut off
    write(results, suite.runs("", list(scores)), scores)
    plot(collect(suite, results), tmp_path / "small.png")
    assert (tmp_path / "small.png").stat().st_size > 10_000
