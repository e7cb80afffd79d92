"""A setting is the class default, then the preset, then what is given; mistakes are named."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from colafier.methods import build
from colafier.workflows.settings import (
    Settings,
    preset_names,
    read_pairs,
    read_preset,
    resolve,
)

PRESETS = Path(__file__).parents[2] / "src" / "colafier" / "workflows" / "presets"


def test_presets_of_the_package() -> None:
    assert preset_names() == ["cifar10", "cifar10n", "digits"]


@pytest.mark.parametrize("name", preset_names())
def test_preset_resolves_and_goes_into_json(name: str) -> None:
    settings = resolve(name)
    again = json.loads(json.dumps(settings.to_dict()))
    hyper = again.pop("hyper")
    assert resolve(overrides=again, hyper=hyper) == settings


@pytest.mark.parametrize("name", preset_names())
def test_preset_holds_differences_only(name: str) -> None:
    defaults = {f.name: f.default for f in fields(Settings)}
    for key, value in read_preset(name).items():
        if isinstance(value, dict):
            default = resolve(overrides={"method": key}).hyper
            same = [k for k, v in value.items() if default[k] == v]
        else:
            same = [key] if defaults[key] == value and key != "source" else []
        assert not same, f"{name}: {same} are the defaults already"


@pytest.mark.parametrize("name", preset_names())
def test_preset_says_purpose_launch_line_and_time(name: str) -> None:
    head = (PRESETS / f"{name}.toml").read_text().splitlines()[:3]
    assert [line.split()[1] for line in head] == ["Purpose:", "Launch:", "Time:"]
    assert f"colafier train --preset {name}" in head[1]


@pytest.mark.parametrize("name", ["cifar10", "cifar10n"])
@pytest.mark.parametrize("variant", ["adaptive", "paper", "authors"])
def test_cifar_presets_have_the_settings_of_the_paper(name: str, variant: str) -> None:
    chosen = {} if variant == "adaptive" else {"variant": variant}
    settings = resolve(name, hyper=chosen)
    assert (settings.epochs, settings.batch_size, settings.lr) == (200, 128, 0.001)
    assert (settings.weight_decay, settings.net) == (0.001, "resnet34")
    assert settings.hyper["variant"] == variant
    method = build("colafier", **settings.hyper)
    rate = settings.settled(method.run_defaults, (3, 32, 32)).lr_floor
    assert rate == (0.02 if variant == "adaptive" else 1.0)  # the paper's is constant
    config = method.config
    assert (config.warmup_epochs(200), config.ramp_epochs(200)) == (15, 30)


def test_later_wins(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('epochs = 7\nnet = "mlp"\n[colafier]\nwarmup = 2\nramp = 3\n[ce]\n')
    assert resolve().epochs == Settings.epochs
    assert resolve(str(mine)).epochs == 7
    settings = resolve(str(mine), {"epochs": 9}, {"warmup": 4})
    assert (settings.epochs, settings.net) == (9, "mlp")
    assert (settings.hyper["warmup"], settings.hyper["ramp"]) == (4, 3)
    assert "warmup" not in resolve(str(mine), {"method": "ce"}).hyper


def test_hyper_parameters_are_complete() -> None:
    assert {"variant", "warmup", "ramp"} <= set(resolve().hyper)


@pytest.mark.parametrize(
    ("overrides", "hyper", "says"),
    [
        ({"epoch": 3}, {}, r"no setting 'epoch'; there are .*batch_size.*epochs"),
        ({"epochs": "3"}, {}, "epochs must be a whole number.*, not '3'"),
        ({"epochs": True}, {}, "epochs must be a whole number"),
        ({"flip": 1}, {}, "flip must be true or false"),
        ({"limit": 2.5}, {}, "limit must be a whole number.* or none"),
        ({"lr": "fast"}, {}, "lr must be a number"),
        ({"lr": float("nan")}, {}, "lr must be a number.*, not nan"),
        ({"limit": 0}, {}, "limit must be .*at least 2"),
        ({"lr_floor": 1.5}, {}, "lr_floor must be .*0 to 1.*, not 1.5"),
        ({"epochs": 0}, {}, "epochs must be .*1 to 100000"),
        ({"init": "zeros"}, {}, "init must be .*kaiming-fan-out"),
        ({"input_statistics": "imagenet"}, {}, "input_statistics must be .*cifar10-authors"),
        ({"batch_size": 7, "devices": 4}, {}, "at least 8"),
        ({"hyper": {}}, {}, "no setting 'hyper'"),
        ({}, {"warm": 3}, r"no hyper-parameter of colafier 'warm'; there are .*warmup"),
        ({}, {"warmup": "x"}, "warmup must be a whole number"),
        ({"method": "nothing"}, {}, "nothing"),
    ],
)
def test_mistakes_are_named(overrides: dict, hyper: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        resolve(overrides=overrides, hyper=hyper)


def test_a_table_of_another_method_is_checked_too(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text("[colafier]\nwarmups = 2\n")
    with pytest.raises(ValueError, match="warmups"):
        resolve(str(mine), {"method": "ce"})


@pytest.mark.parametrize("content", [b"a = [", b"\xff\xfe"])
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes) -> None:
    mine = tmp_path / "mine.toml"
    with pytest.raises(FileNotFoundError, match=r"no preset file .*mine\.toml"):
        resolve(str(mine))
    mine.write_bytes(content)
    with pytest.raises(ValueError, match=r"mine\.toml is not a TOML file"):
        resolve(str(mine))


def test_unknown_preset_names_the_others() -> None:
    with pytest.raises(ValueError, match="cifar10, cifar10n, digits"):
        resolve("cifar100")


def test_whole_number_stands_for_a_float() -> None:
    lr = resolve(overrides={"lr": 1}).lr
    assert lr == 1.0
    assert isinstance(lr, float)


def test_read_pairs() -> None:
    pairs = read_pairs(
        ["a=3", "b=.5", "b2=0.5", "c=true", "d=paper", "e=none", "f=[1, 2]", "g = x=y"]
    )
    assert pairs == {
        "a": 3, "b": 0.5, "b2": 0.5, "c": True, "d": "paper", "e": None, "f": [1, 2], "g": "x=y",
    }  # fmt: skip


@pytest.mark.parametrize("pair", ["warmup", "=3", "warmup="])
def test_read_pairs_refuses(pair: str) -> None:
    with pytest.raises(ValueError, match="key=value"):
        read_pairs([pair])
