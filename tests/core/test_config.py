"""The config of CoLafier: its variants, what changes over the epochs, and its keywords."""

import inspect
from dataclasses import FrozenInstanceError, asdict, fields, replace
from typing import Any, get_args

import pytest

from colafier import methods
from colafier.core.config import (
    ADAPTIVE,
    AUTHORS,
    PAPER,
    RUN_DEFAULTS,
    VARIANTS,
    CoLafierConfig,
    Levels,
    Variant,
    choose,
)
from colafier.methods.colafier import CoLafier


@pytest.mark.parametrize(
    ("name", "paper", "authors"),
    [
        ("joined_views", False, True),  # facts row 7
        ("soft_prediction", True, False),  # 10
        ("weight_quantile", 0.05, 0.5),  # 16
        ("update_quantile", 0.5, 0.05),  # 17
        ("consistency_on", "probabilities", "logits"),  # 37
        ("mix_alpha", 1.0, 5.0),  # 39
    ],
)
def test_variants_differ_where_paper_and_code_do(name: str, paper: Any, authors: Any) -> None:
    assert getattr(PAPER, name) == paper
    assert getattr(AUTHORS, name) == authors
    assert getattr(choose("paper", **{name: authors}), name) == authors


def test_single_choices_replace_those_of_the_variant_and_none_leaves_them() -> None:
    assert choose() == ADAPTIVE
    assert choose("authors", patience=None) == AUTHORS
    assert choose("paper", patience=3, hard_loss=False) == replace(
        PAPER, patience=3, hard_loss=False
    )
    with pytest.raises(TypeError, match="nothing_like_it"):
        choose(nothing_like_it=1)


def test_each_variant_says_what_it_needs_of_a_run() -> None:
    assert RUN_DEFAULTS.keys() == VARIANTS.keys()
    assert CoLafier().run_defaults == {}
    for variant in ("authors", "paper"):
        chosen = CoLafier(variant=variant).run_defaults
        assert chosen["init"] == "kaiming-fan-out"
        assert chosen["lr_floor"] == 1.0  # a constant rate


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        PAPER.patience = 2  # type: ignore[misc]


def test_levels_rise_after_warm_up() -> None:
    config = choose("authors", warmup=2, ramp=3)
    levels = [config.levels(epoch, 10) for epoch in range(7)]
    assert levels[:2] == [None, None]
    assert levels[2] == Levels(weight=0.5, update=0.05)
    assert levels[3] == Levels(weight=0.75, update=0.525)
    assert levels[4:] == 3 * [Levels(weight=1.0, update=1.0)]


def test_warm_up_and_ramp_scale_with_the_run_unless_chosen() -> None:
    assert (PAPER.warmup_epochs(200), PAPER.ramp_epochs(200)) == (15, 30)
    assert (PAPER.warmup_epochs(40), PAPER.ramp_epochs(40)) == (3, 6)
    chosen = replace(PAPER, warmup=0, ramp=1)
    assert (chosen.warmup_epochs(40), chosen.ramp_epochs(40)) == (0, 1)


@pytest.mark.parametrize(
    ("share", "epochs", "start"),
    [
        (0.4, 10, 6),
        (0.4, 12, 7),
        (0.0, 10, 10),  # never
        (1.0, 10, 3),  # at least one epoch comes after warm-up
        (0.4, 3, 3),  # a run that is nearly all warm-up
        (0.4, 2, 2),
    ],
)
def test_soft_labels_come_last_and_after_warm_up(share: float, epochs: int, start: int) -> None:
    config = replace(PAPER, posterior_share=share, warmup=2)
    assert config.posterior_start(epochs) == start


def test_only_our_variant_ends_with_soft_labels() -> None:
    assert ADAPTIVE.posterior_start(10) < 10
    assert PAPER.posterior_start(10) == AUTHORS.posterior_start(10) == 10


def test_a_single_view_is_the_plain_one() -> None:
    assert PAPER.views == ("weak", "strong")
    assert replace(PAPER, single_view=True).views == ("weak", "strong", "plain")


def test_the_method_takes_each_field_as_a_keyword() -> None:
    parameters = inspect.signature(CoLafier).parameters
    assert list(parameters) == ["variant", *(field.name for field in fields(CoLafierConfig))]
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in parameters.values())
    assert set(get_args(Variant)) == VARIANTS.keys()
    for name, config in VARIANTS.items():
        given = {n: p.default for n, p in parameters.items() if n != "variant"}
        assert choose(name, **given) == config  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_values_of_every_variant_are_allowed_as_keywords(variant: str) -> None:
    values = {name: value for name, value in asdict(VARIANTS[variant]).items() if value is not None}
    method = methods.build("colafier", variant="paper", **values)
    assert isinstance(method, CoLafier)
    assert method.config == VARIANTS[variant]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("variant", "mine"),
        ("warmup", -1),
        ("ramp", 0),
        ("low_quantile", 3.0),
        ("neighbors", 1),
        ("neighbors", -1),
        ("patience", 0),
        ("mix_share", 1.5),
        ("mix_alpha", 0.0),
        ("update_quantile", -0.1),
        ("consistency_on", "features"),
        ("posterior_share", 1.1),
    ],
)
def test_values_without_meaning_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        methods.build("colafier", **{name: value})
