"""Suites: every run has valid settings and starts; fair numbers of epochs; hashes of settings."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from small_suite import TEXT, small_suite

from colafier.audit.pipeline import train_method
from colafier.bench.entries import STUDIES
from colafier.bench.suite import FOLDER, Run, load_suite, suite_names
from colafier.core.config import ADAPTIVE, AUTHORS
from colafier.evidence.labels import Labels
from colafier.methods import available, build, find

NAMES = suite_names()
SHAPES = {"digits": (1, 8, 8), "fashion_mnist": (1, 32, 32), "cifar10": (3, 32, 32)}


def starts(run: Run, net: str) -> None:
    """One step of a run with four rows."""
    settings = replace(run.settings, epochs=1, batch_size=4, net=net)
    torch.manual_seed(0)
    if settings.embedder:
        x = torch.randn(4, 1280)
    else:
        x = torch.randint(256, (4, *SHAPES[settings.source])).to(torch.uint8)
    trained = train_method(x, Labels(torch.arange(4) % 2), 10, settings)
    assert len(trained.history.epochs) == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_run_of_a_suite_starts(name: str) -> None:
    runs = {}
    for run in load_suite(name).runs("folder"):  # seeds and rates of a noise change nothing here
        runs[run.part, run.entry.name, str(run.settings.hyper)] = run
    nets: dict[tuple[str, str], Run] = {}
    for run in runs.values():
        starts(run, "linear")  # the methods with all their settings
        nets.setdefault((run.part, run.settings.net), run)
    for run in nets.values():
        starts(run, run.settings.net)  # the nets on rows of the right shape


@pytest.mark.parametrize("name", NAMES)
def test_runs_of_a_suite_have_different_hashes(name: str) -> None:
    suite = load_suite(name)
    runs = [*suite.runs("folder", seeds=[1]), *suite.runs("folder", ["colafier"], seeds=[2])]
    assert len({(run.part, run.digest()) for run in runs}) == len(runs)


def test_the_mini_suites_have_all_methods_but_studies() -> None:
    methods = [name for name in available() if name not in STUDIES]
    for name in ("digits", "features", "fm-mini"):
        assert [entry.name for entry in load_suite(name).entries] == methods


@pytest.mark.parametrize("method", [m for m in available() if find(m).preparation(15)[0]])
@pytest.mark.parametrize("suite", ["digits", "features", "table1a"])
def test_a_net_that_starts_in_mid_run_trains_as_long_as_others(method: str, suite: str) -> None:
    chosen = load_suite(suite)
    epochs = chosen.parts[0].settings["epochs"]
    (run,) = chosen.runs("folder", [method], ["pair:0.4"], [1])
    built = build(method, **run.settings.hyper)

    class Rows:
        n, num_classes = 4, 2
        observed, original = torch.arange(4) % 2, None
        trusted, labeled = torch.zeros(4, dtype=torch.bool), torch.ones(4, dtype=torch.bool)

    built.setup(lambda: torch.nn.Linear(2, 2), Rows(), run.settings.epochs)  # type: ignore[arg-type]
    first = getattr(built, "first_epochs", None) or built.warmup_epochs
    assert run.settings.epochs - first == epochs
    short = build(method)
    short.setup(lambda: torch.nn.Linear(2, 2), Rows(), epochs)  # type: ignore[arg-type]
    assert first == (getattr(short, "first_epochs", None) or short.warmup_epochs)


def test_paper_suites_have_the_papers_settings() -> None:
    for name in ("table1a", "table1b", "table2", "ablation"):
        for run in load_suite(name).runs("folder"):
            if not find(run.entry.method).preparation(200)[0]:
                s = run.settings
                assert (s.epochs, s.batch_size, s.lr, s.weight_decay) == (200, 128, 1e-3, 1e-3)
                assert (s.lr_floor, s.dtype, s.limit) == (1.0, "float32", None)
                assert s.net == ("resnet18" if name == "table1a" else "resnet34")


def test_baselines_have_one_setting_per_kind_of_noise() -> None:
    runs = load_suite("table1a").runs("folder", ["dividemix"], seeds=[1])
    weights = {run.noise: run.settings.hyper["unlabeled_weight"] for run in runs}
    assert weights == {
        "symmetric:0.2": 25, "symmetric:0.5": 25, "symmetric:0.8": 25, "asymmetric:0.4": 0,
    }  # fmt: skip


def test_each_choice_of_adaptive_is_taken_away_once() -> None:
    changed = [f.name for f in fields(ADAPTIVE)
               if getattr(ADAPTIVE, f.name) != getattr(AUTHORS, f.name)]  # fmt: skip
    entries = [e for e in load_suite("ablation-mini").entries if "=" in e.name]
    assert [list(entry.hyper) for entry in entries] == [[name] for name in changed]


def test_files_of_labels_are_found(tmp_path: Path) -> None:
    (tmp_path / "CIFAR-10_human.pt").touch()
    suite = load_suite("features")
    (run,) = suite.runs(str(tmp_path / "cifar-10-batches-py"), ["ce"], ["cifar10n:worst"], [1])
    assert run.settings.noise == f"cifar10n:worst:{tmp_path / 'CIFAR-10_human.pt'}"
    (run,) = load_suite("fm-mini").runs("", ["ce"])
    assert run.settings.noise == f"file:{FOLDER / 'fmnist10k_instance40.npy'}"


def test_files_of_labels_lie_next_to_the_suite(tmp_path: Path) -> None:
    suite = small_suite(tmp_path, TEXT.replace("pair:0.2", "file:mine.npy"))
    assert f"file:{tmp_path / 'mine.npy'}" in {run.settings.noise for run in suite.runs()}


def test_choosing_runs(tmp_path: Path) -> None:
    suite = small_suite(tmp_path)
    assert len(suite.runs()) == 2 * 2 * 2
    (run,) = suite.runs("", ["elr"], ["instance:0.1"], [7])  # none of the suite's
    assert run.key == ("digits", "elr", "instance:0.1", 7)
    assert suite.entry("colafier-paper").hyper == {"variant": "paper"}
    powers = {run.noise: run.settings.hyper["power"] for run in suite.runs("", ["gce"])}
    assert powers == {"symmetric:0.5": 0.7, "pair:0.2": 0.5}


def test_the_hash_covers_settings_and_not_where_data_is(tmp_path: Path) -> None:
    suite = small_suite(tmp_path)
    here, there = (suite.runs(folder)[0].digest() for folder in ("here", "there"))
    assert here == there
    longer = small_suite(tmp_path, TEXT.replace("epochs = 1", "epochs = 2"))
    assert longer.runs()[0].digest() != here


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title", "titel", "'titel'"),
        ("epochs", "epoch", "'epoch'"),
        ("noises", "noise", "noises"),
        ("[1, 2]", "[1, 2", "not a suite"),
    ],
)
def test_mistakes_in_a_suite_are_explained(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        small_suite(tmp_path, TEXT.replace(old, new, 1)).runs()


def test_unknown_names_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"digits.*features"):
        load_suite("digit")
    with pytest.raises(ValueError, match=r"no entry 'clafier'.*ce, gce"):
        small_suite(tmp_path).runs("", ["clafier"])
