"""The settings of a research run: class defaults, overridden by a preset, then by options.

An unknown name or a value of the wrong type is an error, which lists what is valid.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from colafier._validation import Range, checked
from colafier.methods import REQUIRED, check, hyper_parameters
from colafier.training.config import TrainConfig


@dataclass(frozen=True)
class Settings(TrainConfig):
    """Everything that a research run depends on, so that its record is enough to repeat it."""

    source: str = "digits"
    data: str = ""  # folder with the files of the source; digits needs none
    limit: Annotated[int, Range(2)] | None = None  # only the first rows of the training set
    pad_to: Annotated[int, Range(1)] | None = None  # side of the images after padding
    embedder: str = ""  # frozen net whose features of the images are the rows; "": pixels
    noise: str = "none"


def resolve(
    preset: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    hyper: Mapping[str, Any] | None = None,
    base: Settings | None = None,
) -> Settings:
    """Settings from a preset and overrides; an unknown name in either is an error.

    Args:
        preset: Name of a preset in the package, or a path that ends in `.toml`.
        overrides: Settings that override the preset.
        hyper: Hyper-parameters of the method that override the preset.
        base: Settings to start from in place of the class defaults.
    """
    plain, per_method = _split(read_preset(preset)) if preset else ({}, {})
    kinds = get_type_hints(Settings, include_extras=True) | {"net": str}
    kinds.pop("hyper")
    start = {} if base is None else {name: getattr(base, name) for name in kinds}
    values = checked({**start, **plain, **(overrides or {})}, kinds, "setting")
    method = str(values.get("method", Settings.method))
    tables = {name: check(name, table) for name, table in per_method.items()}
    chosen = {**tables.get(method, {}), **check(method, hyper or {})}
    if base is not None and base.method == method:
        chosen = {**base.hyper, **chosen}
    return Settings(**values, hyper={**_defaults(method, chosen), **chosen})


def refuse_changes(now: Settings, then: Settings) -> None:
    """Refuse to resume a run with settings other than those it was started with."""
    before, after = ({**s.to_dict(), "hyper": None, **s.hyper} for s in (then, now))
    both = [name for name in after if name in before]  # another method has other hyper-parameters
    if changed := [f"{k} was {before[k]}, is {after[k]}" for k in both if before[k] != after[k]]:
        raise ValueError(f"a resumed run keeps its settings; {'; '.join(changed)}")


def preset_names() -> list[str]:
    """Names of the presets in the package."""
    folder = resources.files("colafier.workflows") / "presets"
    return sorted(
        f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")
    )


def read_preset(name: str) -> dict[str, Any]:
    """Read a preset of the package, or any TOML file."""
    if name.endswith(".toml"):
        if not Path(name).is_file():
            raise FileNotFoundError(f"there is no preset file {name}")
        try:
            return tomllib.loads(Path(name).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{name} is not a TOML file: {error}") from error
    if name not in preset_names():
        there = ", ".join(preset_names())
        raise ValueError(f"no preset {name!r}; there are {there}, or give the path of a .toml file")
    file = resources.files("colafier.workflows") / "presets" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def read_pairs(pairs: list[str]) -> dict[str, Any]:
    """Parse `key=value` texts: a value is read as TOML, or else as text; `none` is None."""
    values = {}
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not (name and equals and text):
            raise ValueError(f"write key=value, for example warmup=5, not {pair!r}")
        values[name] = _read_value(text)
    return values


def _read_value(text: str) -> Any:
    if text == "none":
        return None
    if re.fullmatch(r"[+-]?\.\d+", text):  # TOML requires a zero before the point
        return float(text)
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _split(preset: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings of the run, and the tables that are named after methods."""
    plain = {name: value for name, value in preset.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in preset.items() if isinstance(value, dict)}
    return plain, tables


def _defaults(method: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of the method's hyper-parameters; an error if one without default is missing."""
    defaults = {name: default for name, (default, _) in hyper_parameters(method).items()}
    missing = [name for name, value in defaults.items() if value is REQUIRED]
    if missing := [name for name in missing if name not in chosen]:
        raise ValueError(f"{method} needs a value of {missing[0]}: --set {missing[0]}=VALUE")
    return {name: value for name, value in defaults.items() if value is not REQUIRED}
