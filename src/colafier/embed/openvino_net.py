"""EfficientNet-Lite on OpenVINO, which computes it more than twice as fast as PyTorch on a CPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from colafier._optional import required
from colafier.embed.images import EXTRA

Floats = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]
Features = Callable[[Pixels], Floats]


def compiled(net: nn.Module, size: int, threads: int) -> Features:
    """A function from images (b, 3, size, size) as bytes to features (b, d).

    The graph is written layer by layer: PyTorch's own exporter needs ten seconds for it.

    Args:
        net: A fused `EfficientNetLite`.
        size: Side of the images in pixels.
        threads: That may be used.
    """
    openvino = required("openvino", EXTRA)
    ops = openvino.opset13
    images = ops.parameter([-1, 3, size, size], np.uint8)
    x = ops.divide(ops.subtract(ops.convert(images, "f32"), _number(127)), _number(128))
    x = ops.clamp(_convolution(ops, x, net.stem), 0, 6)
    for block in net.blocks:  # type: ignore[union-attr]
        y = x
        if block.expand is not None:
            y = ops.clamp(_convolution(ops, y, block.expand), 0, 6)
        y = ops.clamp(_convolution(ops, y, block.depthwise), 0, 6)
        y = _convolution(ops, y, block.project)
        x = ops.add(x, y) if block.residual else y
    x = ops.clamp(_convolution(ops, x, net.head), 0, 6)
    x = ops.reduce_mean(x, np.array([2, 3]), False)
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    run = openvino.Core().compile_model(openvino.Model([x], [images]), "CPU", settings)

    def features(some: Pixels) -> Floats:
        found: Floats = run(some)[0].copy()  # the next call writes over it
        return found

    return features


def _convolution(ops: Any, x: Any, layer: Any) -> Any:
    """A fused convolution; `same_upper` is TensorFlow's padding."""
    conv = layer.conv
    weight = _array(conv.weight)  # (out, in / groups, k, k)
    strides = list(conv.stride)
    if conv.groups > 1:
        weight = weight.reshape(conv.groups, -1, *weight.shape[1:])
        y = ops.group_convolution(x, weight, strides, [0, 0], [0, 0], [1, 1], "same_upper")
    else:
        y = ops.convolution(x, weight, strides, [0, 0], [0, 0], [1, 1], "same_upper")
    return ops.add(y, _array(conv.bias).reshape(1, -1, 1, 1))


def _array(parameter: Tensor) -> Floats:
    return parameter.detach().contiguous().numpy()


def _number(value: float) -> Floats:
    return np.array(value, np.float32)
