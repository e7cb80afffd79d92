"""Entries of a suite, the rows of its tables: methods, variants and ablations of CoLafier."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from colafier.core.config import ADAPTIVE, AUTHORS
from colafier.methods import available

STUDIES = ("lid_dis",)  # methods that study a part of another one and purify nothing
PARTS = {  # of the paper's ablation study: what is left out
    "single-view": {"single_view": True},
    "no-noisy-no-hard": {"noisy_loss": False, "hard_loss": False},
    "no-noisy": {"noisy_loss": False},
    "no-hard": {"hard_loss": False},
}
VARIANTS = {"colafier-authors": "authors", "colafier-paper": "paper"}  # beside the default


@dataclass(frozen=True)
class Entry:
    """A row of the tables: a method with hyper-parameters."""

    name: str
    method: str
    hyper: Mapping[str, Any]


def entries_of(content: Mapping[str, Any]) -> Iterator[Entry]:
    """The entries that a suite's file names.

    - `methods`: names of methods, or `["all"]`
    - `entries`: tables with a method and its hyper-parameters
    - `ablations`: variants of CoLafier, each whole and without one of the paper's parts
    - `choices`: whether to add CoLafier without each single choice of `adaptive`
    """
    names = content.get("methods", [])
    if names == ["all"]:
        names = [name for name in available() if name not in STUDIES]
    yield from (Entry(name, name, {}) for name in names)
    for name, table in content.get("entries", {}).items():
        yield Entry(name, table["method"], {k: v for k, v in table.items() if k != "method"})
    for variant in content.get("ablations", []):
        yield from _ablations(variant)
    if content.get("choices"):
        yield from _choices()


def _ablations(variant: str) -> Iterator[Entry]:
    """A variant, and the same without each of the paper's parts."""
    own = {} if variant == "adaptive" else {"variant": variant}
    whole = f"colafier-{variant}" if own else "colafier"
    yield Entry(whole, "colafier", own)
    for name, left_out in PARTS.items():
        yield Entry(f"{whole}:{name}", "colafier", {**own, **left_out})


def _choices() -> Iterator[Entry]:
    """`adaptive` with one choice taken away: the authors' code decides this point."""
    for field in fields(ADAPTIVE):
        theirs = getattr(AUTHORS, field.name)
        if getattr(ADAPTIVE, field.name) != theirs:
            name = f"colafier:{field.name}={theirs}".lower()
            yield Entry(name, "colafier", {field.name: theirs})
