import hashlib
import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colafier.benchmark_data.noise import (
    CLASS_MAPS,
    GENERATORS,
    Noise,
    _truncated_normal,
    asymmetric,
    inject,
    instance,
    pair,
    symmetric,
    symmetric_exclusive,
)
from colafier.benchmark_data.sources import Source, arrays, digits

RATES = st.floats(0, 1)
SEEDS = st.integers(0, 2**31)
FLIPPERS = [symmetric, symmetric_exclusive, pair]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def labels_of(n, num_classes, seed=0):
    return torch.randint(num_classes, (n,), generator=generator(seed))


def source_of(n=300, num_classes=4, features=6):
    x = torch.randn(n, features, generator=generator(1))
    names = [str(i) for i in range(num_classes)]
    return arrays(x, labels_of(n, num_classes).numpy(), classes=names)


def assert_rate(wrong, n, probability):
    """The count is within 6 standard deviations of a binomial distribution."""
    bound = 6 * (n * probability * (1 - probability)) ** 0.5 + 1
    assert abs(wrong - n * probability) <= bound


@pytest.mark.parametrize("function", FLIPPERS)
@settings(max_examples=25, deadline=None)
@given(rate=RATES, num_classes=st.integers(2, 30), seed=SEEDS)
def test_rates_within_binomial_bounds(function, rate, num_classes, seed):
    n = 2000
    labels = labels_of(n, num_classes, seed % 7)
    before = labels.clone()
    noisy = function(labels, rate, num_classes, generator(seed))
    assert torch.equal(labels, before)
    assert noisy.dtype == torch.int64
    assert noisy.min() >= 0
    assert noisy.max() < num_classes
    expected = rate * (1 - 1 / num_classes) if function is symmetric else rate
    assert_rate(int((noisy != labels).sum()), n, expected)


@settings(max_examples=25, deadline=None)
@given(rate=RATES, n=st.integers(0, 500), seed=SEEDS)
def test_symmetric_draws_for_an_exact_number_of_rows(rate, n, seed):
    """With very many classes hardly any row draws its own class again."""
    labels = torch.zeros(n, dtype=torch.long)
    changed = int((symmetric(labels, rate, 10**9, generator(seed)) != labels).sum())
    assert round(rate * n) - 1 <= changed <= round(rate * n)


def test_symmetric_kinds_differ_in_true_rate():
    labels = labels_of(100_000, 10)
    inclusive = (symmetric(labels, 0.5, 10, generator()) != labels).float().mean().item()
    exclusive = (symmetric_exclusive(labels, 0.5, 10, generator()) != labels).float().mean().item()
    assert inclusive == pytest.approx(0.45, abs=0.005)
    assert exclusive == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("function", [symmetric, symmetric_exclusive])
def test_symmetric_wrong_labels_are_uniform(function):
    labels = torch.full((40_000,), 2)
    noisy = function(labels, 0.5, 5, generator())
    counts = noisy[noisy != 2].bincount(minlength=5)
    assert counts[2] == 0
    share = counts[[0, 1, 3, 4]] / counts.sum()
    assert torch.allclose(share, torch.full((4,), 0.25), atol=0.02)


def test_rate_one():
    labels = labels_of(500, 6)
    assert (symmetric_exclusive(labels, 1.0, 6, generator()) != labels).all()
    assert torch.equal(pair(labels, 1.0, 6, generator()), (labels + 1) % 6)


def test_asymmetric_follows_the_map():
    labels = labels_of(50_000, 10)
    noisy = asymmetric(labels, 0.4, 10, generator())
    for label in range(10):
        own = noisy[labels == label]
        target = CLASS_MAPS["cifar10"].get(label)
        if target is None:
            assert (own == label).all()
        else:
            assert ((own == label) | (own == target)).all()
            assert_rate(int((own == target).sum()), len(own), 0.4)


def test_asymmetric_in_inject_has_the_map_of_its_source():
    source = digits()
    noisy, manifest = inject("asymmetric:1", source, 0)
    assert torch.equal(noisy[source.labels == 7], torch.ones_like(noisy[source.labels == 7]))
    assert torch.equal(noisy[source.labels == 0], source.labels[source.labels == 0])
    assert 0.45 < manifest.true_rate < 0.55
    with pytest.raises(ValueError, match=r"not for arrays; use pair:0\.4"):
        inject("asymmetric:0.4", source_of(), 0)


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.4, 0.9, 1.0])
def test_truncated_normal_against_rejection(rate):
    found = _truncated_normal(50_000, rate, generator())
    assert found.min() >= 0
    assert found.max() <= 1
    draws = np.random.default_rng(0).normal(rate, 0.1, size=400_000)
    kept = draws[(draws >= 0) & (draws <= 1)]
    assert found.mean().item() == pytest.approx(kept.mean(), abs=0.002)
    assert found.std().item() == pytest.approx(kept.std(), abs=0.002)


@pytest.mark.parametrize("rate", [0.2, 0.4, 0.6])
@pytest.mark.parametrize("kind", ["instance", "instance-raw", "instance-shared"])
def test_instance_rate(kind, rate):
    source = digits()
    noisy, manifest = inject(f"{kind}:{rate}", source, 3)
    mean = _truncated_normal(50_000, rate, generator()).mean().item()
    assert_rate(int((noisy != source.labels).sum()), len(noisy), mean)
    assert manifest.true_rate == pytest.approx((noisy != source.labels).double().mean().item())
    assert noisy.min() >= 0
    assert noisy.max() < 10


def slow_instance(x, labels, rate, num_classes, seed, raw, shared):
    """Chances (n, c) row by row, with the generator's numbers in the order of the function."""
    g = generator(seed)
    rates = _truncated_normal(len(labels), rate, g)
    values = x.double() if raw else x.double() / 255
    if not raw:
        mean = values.mean((0, 2, 3), keepdim=True)
        values = (values - mean) / values.std((0, 2, 3), correction=0, keepdim=True)
    chances = torch.zeros(len(labels), num_classes, dtype=torch.float64)
    drawn = torch.zeros(len(labels), dtype=torch.long)
    projection = None
    for label in range(num_classes):
        if projection is None or not shared:
            projection = torch.randn(x[0].numel(), num_classes, generator=g).double()
        rows = [i for i in range(len(labels)) if labels[i] == label]
        for i in rows:
            likeness = values[i].flatten() @ projection
            others = [c for c in range(num_classes) if c != label]
            highest = max(likeness[c] for c in others)
            total = sum((likeness[c] - highest).exp() for c in others)
            for c in others:
                chances[i, c] = rates[i] * (likeness[c] - highest).exp() / total
            chances[i, label] = 1 - rates[i]
        drawn[rows] = torch.multinomial(chances[rows], 1, generator=g)[:, 0]
    return drawn, chances


@pytest.mark.parametrize(("raw", "shared"), [(False, False), (True, False), (True, True)])
def test_instance_equals_a_slow_loop(raw, shared):
    x = torch.randint(256, (90, 2, 3, 3), generator=generator(), dtype=torch.uint8)
    labels = labels_of(90, 3)
    found = instance(x, labels, 0.5, 3, generator(5), raw=raw, shared=shared)
    expected, chances = slow_instance(x, labels, 0.5, 3, 5, raw, shared)
    assert torch.allclose(chances.sum(1), torch.ones(90, dtype=torch.float64))
    assert torch.equal(found, expected)
    assert (found != labels).any()


def test_instance_depends_on_the_row():
    """Two wrong draws of one image agree far more often than those of other images would."""
    source = digits()
    x, labels = source.x.repeat(2, 1, 1, 1), source.labels.repeat(2)
    noisy = instance(x, labels, 0.6, 10, generator()).view(2, -1)
    both = (noisy != source.labels).all(0)
    assert both.sum() > 300
    assert (noisy[0, both] == noisy[1, both]).float().mean() > 0.7


def test_instance_rate_zero_changes_nothing():
    """The rows' own rates would be above 0 on average, being cut at 0."""
    labels = labels_of(400, 3)
    x = torch.randn(400, 4, generator=generator())
    assert torch.equal(instance(x, labels, 0.0, 3, generator()), labels)


def test_instance_of_a_class_without_rows():
    labels = labels_of(100, 3) * 2  # classes 0, 2, 4 of 5
    noisy = instance(torch.randn(100, 4, generator=generator()), labels, 0.4, 5, generator())
    assert noisy.min() >= 0
    assert noisy.max() < 5


SPECS = sorted(set(GENERATORS) - {"asymmetric"})


@pytest.mark.parametrize("kind", SPECS)
def test_rate_zero_leaves_labels_alone(kind):
    source = source_of()
    noisy, manifest = inject(f"{kind}:0", source, 1)
    assert torch.equal(noisy, source.labels)
    assert manifest.true_rate == 0


@pytest.mark.parametrize("kind", SPECS)
def test_seed_decides_all(kind):
    source = source_of()
    before = source.labels.clone()
    torch.manual_seed(1)
    first, manifest = inject(f"{kind}:0.5", source, 7)
    torch.manual_seed(2)  # the global generator has no part in it
    second, same = inject(f"{kind}:0.5", source, 7)
    other, different = inject(f"{kind}:0.5", source, 8)
    assert torch.equal(first, second)
    assert manifest == same
    assert not torch.equal(first, other)
    assert manifest.sha256 != different.sha256
    assert torch.equal(source.labels, before)


@pytest.mark.parametrize("kind", SPECS)
def test_rows_without_a_label_stay_without(kind):
    source = source_of()
    labels = source.labels.clone()
    labels[::3] = -1
    noisy, manifest = inject(f"{kind}:0.5", replace(source, labels=labels), 0)
    assert (noisy[::3] == -1).all()
    kept = labels >= 0
    assert (noisy[kept] >= 0).all()
    assert manifest.true_rate == pytest.approx((noisy != labels)[kept].double().mean().item())


def test_manifest_is_json_with_a_hash_that_others_can_compute():
    source = source_of(n=10)
    noisy, manifest = inject("none", source, 4)
    assert torch.equal(noisy, source.labels)
    record = json.loads(manifest.to_json())
    assert len(record.pop("sha256")) == 64
    assert record == {
        "kind": "none",
        "requested_rate": 0.0,
        "true_rate": 0.0,
        "seed": 4,
        "n": 10,
        "num_classes": 4,
    }
    known = Source(torch.zeros(3, 1), torch.tensor([0, 1, 2]), ("a", "b", "c"), None, None, "known")
    expected = hashlib.sha256(struct.pack("<3q", 0, 1, 2)).hexdigest()
    assert inject("none", known, 0)[1].sha256 == expected


def test_labels_from_a_file(tmp_path):
    source = source_of(n=20)
    labels = (source.labels.numpy() + (np.arange(20) < 5)) % 4
    np.save(tmp_path / "labels.npy", labels.astype(np.int32))
    noisy, manifest = inject(f"file:{tmp_path / 'labels.npy'}", source, 0)
    assert noisy.tolist() == labels.tolist()
    assert noisy.dtype == torch.int64
    assert manifest.true_rate == 0.25
    assert manifest.requested_rate is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(19, int), r"must hold 20 whole numbers"),
        (np.zeros((20, 1), int), r"must hold 20 whole numbers"),
        (np.zeros(20), "float64"),
        (np.full(20, 4), "from -1 to 3"),
        (np.full(20, -2), "from -1 to 3"),
    ],
)
def test_files_that_do_not_fit(tmp_path, values, message):
    np.save(tmp_path / "labels.npy", values)
    with pytest.raises(ValueError, match=message):
        inject(f"file:{tmp_path / 'labels.npy'}", source_of(n=20), 0)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is missing: give a \.npy file"):
        inject(f"file:{tmp_path / 'labels.npy'}", source_of(), 0)


def test_labels_of_cifar10n(tmp_path):
    source = source_of(n=30)
    worse = (source.labels.numpy() + (np.arange(30) < 3)) % 4
    path = tmp_path / "human.pt"
    torch.save({"clean_label": source.labels.numpy(), "worse_label": worse}, path)
    noisy, manifest = inject(f"cifar10n:worst:{path}", source, 0)
    assert noisy.tolist() == worse.tolist()
    assert manifest.true_rate == pytest.approx(0.1)


def test_parse():
    assert Noise.parse("none") == Noise("none", 0.0)
    assert Noise.parse("symmetric-exclusive:0.25") == Noise("symmetric-exclusive", 0.25)
    assert Noise.parse("file:C:/x.npy") == Noise("file", path="C:/x.npy")
    assert Noise.parse("cifar10n:worst:C:/x.pt") == Noise("cifar10n", key="worst", path="C:/x.pt")


@pytest.mark.parametrize("text", ["", "sym:0.4", "file:", "file", "cifar10n:worst", "none:0.2"])
def test_unknown_noise_is_refused_with_what_exists(text):
    with pytest.raises(ValueError, match=r"write none, symmetric:RATE, .*cifar10n:KEY:PATH"):
        Noise.parse(text)


@pytest.mark.parametrize("text", ["pair", "pair:", "pair:x", "pair:40", "pair:-0.1", "pair:nan"])
def test_rate_outside_is_refused(text):
    with pytest.raises(ValueError, match=r"needs a rate from 0 to 1, as in pair:0\.4"):
        Noise.parse(text)
