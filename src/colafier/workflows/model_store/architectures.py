"""The kinds of classifier that can be stored: rebuilt from net, shape and classes alone."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from colafier.core.subnets import LidDis, LidGen
from colafier.methods.lid_dis import WithoutLabel
from colafier.nets import Classifier
from colafier.nets.ensemble import Ensemble

MakeNet = Callable[[], Classifier]


def _classifier(make_net: MakeNet, num_classes: int, members: int) -> nn.Module:  # noqa: ARG001
    return make_net()


def _ensemble(make_net: MakeNet, num_classes: int, members: int) -> nn.Module:  # noqa: ARG001
    return Ensemble([make_net() for _ in range(members)])


def _without_label(make_net: MakeNet, num_classes: int, members: int) -> nn.Module:  # noqa: ARG001
    return WithoutLabel(LidDis(make_net().backbone, num_classes))


Build = Callable[[MakeNet, int, int], nn.Module]  # from net, number of classes and of members
ARCHITECTURES: dict[str, tuple[tuple[type[nn.Module], ...], Build]] = {
    "classifier": ((Classifier, LidGen), _classifier),
    "ensemble": ((Ensemble,), _ensemble),
    "lid_dis": ((WithoutLabel,), _without_label),
}


def describe(classifier: nn.Module) -> dict[str, Any]:
    """Architecture and number of nets of a classifier; an error if it cannot be rebuilt."""
    for name, (kinds, _) in ARCHITECTURES.items():
        if type(classifier) in kinds:
            members = len(classifier) if isinstance(classifier, Ensemble) else 1
            return {"architecture": name, "members": members}
    raise ValueError(
        f"a {type(classifier).__name__} cannot be rebuilt from the name of its net; let the "
        "method's `deployed()` return a `colafier.nets.Classifier`, or an `Ensemble` of them"
    )


def unstorable(classifier: nn.Module, net: Any) -> str:
    """Why a classifier cannot be stored; empty if it can."""
    if not isinstance(net, str):
        return "a custom net cannot be rebuilt from a name; save its weights with torch.save"
    try:
        describe(classifier)
    except ValueError as error:
        return str(error)
    return ""


def rebuild(architecture: str, make_net: MakeNet, num_classes: int, members: int) -> nn.Module:
    """A new classifier of this architecture, in eval mode; torch's random state is kept."""
    if architecture not in ARCHITECTURES:
        there = ", ".join(ARCHITECTURES)
        raise ValueError(f"no architecture {architecture!r}; there are {there}")
    with torch.random.fork_rng(devices=[]):
        return ARCHITECTURES[architecture][1](make_net, num_classes, members).eval()
