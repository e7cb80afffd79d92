"""Label noise: pure functions of labels and a generator, and a manifest of what was injected."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from colafier._io import content_digest
from colafier.benchmark_data import safe_load
from colafier.benchmark_data.sources import Source, cifar10n
from colafier.ingest.labels import check_class_numbers
from colafier.nets.inference import as_float
from colafier.nets.normalize import Normalize

# Classes that are taken for each other; the classes that are not here keep their labels.
CLASS_MAPS: dict[str, dict[int, int]] = {
    "cifar10": {9: 1, 2: 0, 3: 5, 5: 3, 4: 7},  # truck, bird, cat, dog, deer
    "digits": {7: 1, 2: 7, 3: 8, 5: 6, 6: 5},
}
SPREAD = 0.1  # standard deviation of a row's own rate in instance-dependent noise


def symmetric(labels: Tensor, rate: float, num_classes: int, generator: torch.Generator) -> Tensor:
    """A share of exactly `rate` of the rows gets a uniform class, which may be the true one.

    The true rate is therefore `rate * (1 - 1 / num_classes)`: 0.36 for 0.4 and ten classes.
    """
    n = len(labels)
    rows = torch.randperm(n, generator=generator)[: round(rate * n)]
    noisy = labels.clone()
    noisy[rows] = torch.randint(num_classes, (len(rows),), generator=generator)
    return noisy


def symmetric_exclusive(
    labels: Tensor, rate: float, num_classes: int, generator: torch.Generator
) -> Tensor:
    """Each label, with probability `rate`, becomes one of the other classes."""
    shift = torch.randint(1, num_classes, (len(labels),), generator=generator)
    other = (labels + shift) % num_classes  # (n,)
    return _flip(labels, other, rate, generator)


def asymmetric(
    labels: Tensor,
    rate: float,
    num_classes: int,
    generator: torch.Generator,
    class_map: Mapping[int, int] = CLASS_MAPS["cifar10"],
) -> Tensor:
    """Each label of a class in the map, with probability `rate`, becomes the class it maps to.

    The true rate is lower: with the map of CIFAR-10 only 5 of 10 classes change, 0.2 for 0.4.
    """
    target = torch.tensor([class_map.get(label, label) for label in range(num_classes)])  # (c,)
    return _flip(labels, target[labels], rate, generator)


def pair(labels: Tensor, rate: float, num_classes: int, generator: torch.Generator) -> Tensor:
    """Each label, with probability `rate`, becomes the next class."""
    return _flip(labels, (labels + 1) % num_classes, rate, generator)


def instance(
    x: Tensor,
    labels: Tensor,
    rate: float,
    num_classes: int,
    generator: torch.Generator,
    *,
    raw: bool = False,
    shared: bool = False,
) -> Tensor:
    """Instance-dependent noise: the row itself decides which wrong class, and how probably.

    Each row has its own rate, normal around `rate` within [0, 1], and a random projection of its
    pixels says which wrong classes it resembles.

    Args:
        x: Images or vectors.
        labels: True labels.
        rate: Mean of the rows' rates; 0 changes nothing.
        num_classes: How many classes there are.
        generator: Source of all randomness.
        raw: Project values as they are (images: 0 to 255) rather than normalized. Nearly all wrong
            labels of a class then go to one other class.
        shared: One projection for all classes rather than one for each true class.
    """
    noisy = labels.clone()
    if rate == 0:
        return noisy
    normalize = Normalize.fit(x)
    rates = _truncated_normal(len(labels), rate, generator)  # (n,)
    features = x[0].numel()
    projection = torch.randn(features, num_classes, generator=generator)  # (f, c)
    for label in range(num_classes):
        if label > 0 and not shared:
            projection = torch.randn(features, num_classes, generator=generator)
        rows = (labels == label).nonzero()[:, 0]
        if len(rows) == 0:
            continue
        values = x[rows].float() if raw else normalize(as_float(x[rows]))
        likeness = values.flatten(1) @ projection  # (rows, c)
        likeness[:, label] = -torch.inf
        chance = likeness.double().softmax(1) * rates[rows, None]  # (rows, c)
        chance[:, label] = 1 - rates[rows]
        noisy[rows] = torch.multinomial(chance, 1, generator=generator)[:, 0]
    return noisy


@dataclass(frozen=True)
class Noise:
    """What noise to inject, as written in a setting."""

    kind: str
    rate: float | None = None  # None for labels from a file
    key: str = ""
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> "Noise":
        """From "none", "KIND:RATE", "file:PATH" or "cifar10n:KEY:PATH"."""
        kind, _, rest = text.partition(":")
        if text == "none":
            return cls("none", 0.0)
        if kind == "file" and rest:
            return cls(kind, path=rest)
        if kind == "cifar10n" and ":" in rest:
            key, _, path = rest.partition(":")
            return cls(kind, key=key, path=path)
        if kind not in GENERATORS:
            kinds = ", ".join(f"{name}:RATE" for name in GENERATORS)
            raise ValueError(
                f"cannot read noise {text!r}; write none, {kinds}, file:PATH or cifar10n:KEY:PATH"
            )
        try:
            rate = float(rest)
        except ValueError:
            rate = -1.0
        if not 0 <= rate <= 1:
            raise ValueError(f"noise {text!r} needs a rate from 0 to 1, as in {kind}:0.4")
        return cls(kind, rate)


@dataclass(frozen=True)
class Manifest:
    """What was injected, so that others can check that they have the same labels."""

    kind: str
    requested_rate: float | None
    true_rate: float  # share of labeled rows whose label is wrong
    seed: int
    n: int
    num_classes: int
    sha256: str  # of the labels as little-endian int64

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))


def inject(spec: str, source: Source, seed: int) -> tuple[Tensor, Manifest]:
    """Labels (n,) with the noise of a spec (see `Noise.parse`), and a manifest.

    Rows without a label stay without; the truth in `source` is not changed.
    """
    noise = Noise.parse(spec)
    known = source.labels >= 0  # (n,)
    observed = source.labels.clone()
    if noise.kind == "file":
        observed = _from_file(Path(noise.path), source)
    elif noise.kind == "cifar10n":
        observed = cifar10n(noise.path, noise.key, source.labels)
    elif noise.rate:
        labeled = source
        if not known.all():
            labeled = replace(source, x=source.x[known], labels=source.labels[known])
        generator = torch.Generator().manual_seed(seed)
        observed[known] = GENERATORS[noise.kind](labeled, noise.rate, generator)
    wrong = (observed != source.labels)[known]
    digest = content_digest(observed.numpy().astype("<i8").tobytes())
    true_rate = wrong.double().mean().item()
    return observed, Manifest(
        noise.kind, noise.rate, true_rate, seed, len(observed), source.num_classes, digest
    )


Generate = Callable[[Source, float, torch.Generator], Tensor]


def _class_conditional(function: Callable[..., Tensor]) -> Generate:
    return lambda s, rate, generator: function(s.labels, rate, s.num_classes, generator)


def _instance(*, raw: bool = False, shared: bool = False) -> Generate:
    return lambda s, rate, generator: instance(
        s.x, s.labels, rate, s.num_classes, generator, raw=raw, shared=shared
    )


def _mapped(source: Source, rate: float, generator: torch.Generator) -> Tensor:
    if source.name not in CLASS_MAPS:
        raise ValueError(
            f"asymmetric noise has a class map for {' and '.join(CLASS_MAPS)} only, "
            f"not for {source.name}; use pair:{rate}"
        )
    class_map = CLASS_MAPS[source.name]
    return asymmetric(source.labels, rate, source.num_classes, generator, class_map)


GENERATORS: dict[str, Generate] = {
    "symmetric": _class_conditional(symmetric),
    "symmetric-exclusive": _class_conditional(symmetric_exclusive),
    "asymmetric": _mapped,
    "pair": _class_conditional(pair),
    "instance": _instance(),
    "instance-raw": _instance(raw=True),
    "instance-shared": _instance(raw=True, shared=True),  # as published: raw pixels as well
}


def _flip(labels: Tensor, other: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Each label replaced by the other one with probability `rate`."""
    flipped = torch.rand(len(labels), generator=generator, dtype=torch.float64) < rate
    return torch.where(flipped, other, labels)


def _truncated_normal(n: int, mean: float, generator: torch.Generator) -> Tensor:
    """Draws (n,) from a normal distribution cut to [0, 1], by its inverse."""
    ends = torch.tensor([-mean, 1 - mean], dtype=torch.float64) / SPREAD
    low, high = torch.special.ndtr(ends)
    uniform = torch.rand(n, generator=generator, dtype=torch.float64)
    draws: Tensor = mean + SPREAD * torch.special.ndtri(low + (high - low) * uniform)
    return draws.clamp(0, 1)


def _from_file(path: Path, source: Source) -> Tensor:
    """Labels of a `.npy` file, checked against the source."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: give a .npy file with one class number per row"
        )
    array = safe_load.load_npy(path)
    n = len(source.labels)
    if array.shape != (n,):
        raise ValueError(f"{path} has shape {array.shape}; it must hold {n} whole numbers")
    return check_class_numbers(array, source.num_classes, f"{path}: labels", lowest=-1)
