"""The optimizer settings of a run, from which each method makes its optimizers."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn

NAMES = ("adamw", "adam", "sgd")


@dataclass(frozen=True)
class OptimizerSettings:
    """Settings of the run; a method may override some of them for one optimizer."""

    name: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 1e-3
    momentum: float = 0.9  # for sgd only
    lr_floor: float = 1.0  # share of all rates that is left after a half cosine; 1: constant

    def make(
        self, params: Iterable[nn.Parameter] | Iterable[dict[str, Any]], **overrides: float | str
    ) -> torch.optim.Optimizer:
        """Make an optimizer for these parameters; `overrides` replace settings of the run."""
        known = [f.name for f in fields(self) if f.name != "lr_floor"]
        if unknown := sorted(set(overrides) - set(known)):
            raise ValueError(f"no optimizer setting {unknown[0]!r}; there are {', '.join(known)}")
        chosen = replace(self, **overrides)  # type: ignore[arg-type]  # names are checked above
        if chosen.name == "adamw":
            return torch.optim.AdamW(params, chosen.lr, weight_decay=chosen.weight_decay)
        if chosen.name == "adam":
            return torch.optim.Adam(params, chosen.lr, weight_decay=chosen.weight_decay)
        if chosen.name == "sgd":
            return torch.optim.SGD(params, chosen.lr, chosen.momentum, 0, chosen.weight_decay)
        raise ValueError(f"no optimizer {chosen.name!r}; there are {', '.join(NAMES)}")
