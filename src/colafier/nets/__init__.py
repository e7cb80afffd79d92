"""Networks: `net_factory` makes classifiers from the name of a backbone, or from any module."""

import copy
from collections.abc import Callable
from math import prod

import torch
from torch import nn

from colafier.nets.classifier import Backbone, Classifier
from colafier.nets.dtype import check_dtype
from colafier.nets.initialization import check_init, initialize
from colafier.nets.resnet import RESNETS, resnet
from colafier.nets.small import convnet, linear, mlp

__all__ = ["NETS", "Backbone", "Classifier", "net_factory"]

VECTOR_NETS = {"mlp": mlp, "linear": linear}  # these flatten images to vectors
NETS = (*RESNETS, "convnet", *VECTOR_NETS)
VECTOR_WIDTH = 256


def net_factory(
    net: str | nn.Module | Callable[[], nn.Module],
    row_shape: tuple[int, ...],
    num_classes: int,
    dtype: str = "auto",
    init: str = "torch",
) -> Callable[[], Classifier]:
    """A function that makes a new classifier at each call.

    Args:
        net: A name in `NETS`; or a module that maps rows to features, of which each classifier
            gets a copy with newly initialized parameters; or a function that makes such a module,
            whose parameters are kept as they are (for example, pretrained ones).
        row_shape: Shape of one row, (channels, height, width) or (features,).
        num_classes: Number of classes.
        dtype: Number type of the backbone: `auto`, `float32` or `bf16`.
        init: How new weights start: `torch` or `kaiming-fan-out`.
    """
    check_dtype(dtype)
    check_init(init)
    if isinstance(net, str):
        _check_name(net, row_shape)

    def make() -> Classifier:
        module = _new_module(net, row_shape)
        if isinstance(net, str | nn.Module):
            initialize(module, init)
        width = _num_features(module, row_shape)
        return Classifier(Backbone(module, width, dtype), num_classes)

    return make


def _check_name(name: str, row_shape: tuple[int, ...]) -> None:
    if name not in NETS:
        raise ValueError(f"no net {name!r}; there are {', '.join(NETS)}")
    if name not in VECTOR_NETS and len(row_shape) != 3:
        raise ValueError(
            f"{name} needs images (channels, height, width), rows here are {row_shape}; "
            f"use {' or '.join(VECTOR_NETS)}"
        )


def _new_module(
    net: str | nn.Module | Callable[[], nn.Module], row_shape: tuple[int, ...]
) -> nn.Module:
    if isinstance(net, str):
        return _by_name(net, row_shape)
    return _fresh_copy(net) if isinstance(net, nn.Module) else net()


def _by_name(name: str, row_shape: tuple[int, ...]) -> nn.Module:
    if name in VECTOR_NETS:
        return VECTOR_NETS[name](prod(row_shape), VECTOR_WIDTH)
    if name == "convnet":
        return convnet(row_shape[0])
    return resnet(row_shape[0], *RESNETS[name])


def _fresh_copy(module: nn.Module) -> nn.Module:
    """A copy with newly initialized layers, so that two nets of one method differ."""
    fresh = copy.deepcopy(module)
    for layer in fresh.modules():
        if callable(reset := getattr(layer, "reset_parameters", None)):
            reset()
    return fresh


def _num_features(module: nn.Module, row_shape: tuple[int, ...]) -> int:
    """The width of the features, found by a forward pass of two blank rows."""
    was_training = module.training
    with torch.no_grad():
        features = module.eval()(torch.zeros(2, *row_shape))
    module.train(was_training)
    if not isinstance(features, torch.Tensor) or features.dim() < 2:
        raise ValueError("a backbone must give a tensor with a row of features for each input row")
    return features.shape[1]
