"""The image embedder with its real weights."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from colafier import _optional
from colafier.embed import efficientnet_lite, embed, embedder
from colafier.embed.efficientnet_lite import (
    VARIANTS,
    EfficientNetLite,
    LiteEmbedder,
    pretrained,
)
from colafier.embed.openvino_net import compiled
from colafier.ingest.content import content_key

LITE0 = VARIANTS["efficientnet_lite0"]


@pytest.fixture(scope="module")
def lite(need) -> LiteEmbedder:
    need("images")
    return LiteEmbedder(size=64)


@pytest.fixture(scope="module")
def pictures() -> list[np.ndarray]:
    """Stripes, waves and noise, each in two sizes."""
    rng = np.random.default_rng(0)

    def draw(side: int) -> list[np.ndarray]:
        down, right = np.mgrid[:side, :side] / side
        stripes = (right * 8 % 1 > 0.5) * 255
        waves = 127 + 120 * np.sin(9 * down) * np.cos(9 * right)
        return [stripes.astype(np.uint8), waves.astype(np.uint8)]

    return [*draw(64), *draw(96), rng.integers(0, 256, (64, 64), np.uint8)]


def test_net_without_weights_has_the_shape() -> None:
    with torch.inference_mode():
        assert EfficientNetLite().eval()(torch.rand(2, 3, 33, 47)).shape == (2, 1280)


def test_fused_equals_unfused(need) -> None:
    need("images")
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    fused, unfused = pretrained(), pretrained(fused=False)
    assert len(fused.state_dict()) < len(unfused.state_dict())
    assert torch.allclose(fused(x), unfused(x), atol=1e-4)


@pytest.mark.parametrize("name", VARIANTS)
def test_each_size_has_weights_that_fit_and_features_of_its_own(need, name: str, pictures) -> None:
    need("images")
    features, problems = LiteEmbedder(name, 64)(pictures)
    assert features.shape == (5, 1280)
    assert not problems
    assert 0.05 < (features > 0).mean() < 0.95  # neither dead nor saturated
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    assert (unit @ unit.T)[0, 2] > (unit @ unit.T)[0, 4]  # stripes are more like stripes


def test_joined_embedders_stand_side_by_side_and_share_caches(
    need, tmp_path: Path, pictures
) -> None:
    need("images")
    items = [*pictures, b""]
    keys = [*(content_key(picture) for picture in pictures), ""]
    both = embedder("efficientnet_lite0+efficientnet_lite1", "image", 64)
    assert both.name == "efficientnet_lite0+efficientnet_lite1"
    features, problems = embed(items, keys, both, cache=tmp_path, progress=False)
    assert features.shape == (6, both.num_features) == (6, 2560)
    assert list(problems) == [5]
    assert not features[5].any()
    for place, part in enumerate(both.parts):
        part.net = None  # so that computing again would fail
        alone = embed(pictures, keys[:5], part, cache=tmp_path, progress=False)[0]
        assert np.array_equal(features[:5, 1280 * place : 1280 * (place + 1)], alone)


def test_padding_puts_the_odd_column_last(need) -> None:
    """As TensorFlow does for an even side and a stride of two, unlike PyTorch's own padding."""
    need("images")
    stem = pretrained(fused=False).stem
    x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    padded = torch.nn.functional.pad(x, (0, 1, 0, 1))
    expected = stem.norm(torch.nn.functional.conv2d(padded, stem.conv.weight, stride=2))
    assert torch.allclose(stem(x), expected, atol=1e-5)


def test_features_are_deterministic_and_independent_of_the_batch(lite, pictures) -> None:
    features, problems = lite(pictures)
    assert features.shape == (5, lite.num_features)
    assert features.dtype == np.float32
    assert problems == {}
    assert np.array_equal(features, lite(pictures)[0])
    alone = np.concatenate([lite([picture])[0] for picture in pictures])
    assert np.allclose(features, alone, atol=1e-4)


def test_alike_pictures_have_alike_features(lite, pictures) -> None:
    features = lite(pictures)[0]
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    likeness = unit @ unit.T  # (5, 5)
    assert likeness[0, 2] > max(likeness[0, 1], likeness[0, 4])
    assert likeness[1, 3] > max(likeness[1, 0], likeness[1, 4])


def test_broken_images_are_named(lite, pictures) -> None:
    features, problems = lite([pictures[0], b"", pictures[0]])
    assert list(problems) == [1]
    assert not features[1].any()
    assert np.allclose(features[0], features[2], atol=1e-4)
    assert features[0].any()
    nothing, all_bad = lite([b"", b"x"])
    assert list(all_bad) == [0, 1]
    assert not nothing.any()


def test_from_name_to_cached_features(need, tmp_path: Path, pictures) -> None:
    need("images")
    lite = embedder("efficientnet_lite0", "image", 64)
    keys = [content_key(picture) for picture in pictures]
    fresh, _ = embed(pictures, keys, lite, cache=tmp_path, progress=False)
    lite.net = None  # so that computing again would fail
    cached, _ = embed(pictures, keys, lite, cache=tmp_path, progress=False)
    assert np.array_equal(fresh, cached)


def test_key_names_weights_and_size(need) -> None:
    need("images")
    small, default = embedder("efficientnet_lite0", "image", 64), LiteEmbedder()
    assert default.size == 128
    assert LITE0.sha256 in small.key
    assert small.key != default.key


@pytest.fixture
def other_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package of the same name with other content."""
    folder = tmp_path / LITE0.package
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, LITE0.package, raising=False)
    return folder


def test_other_weights_are_refused(other_package: Path) -> None:
    path = other_package / LITE0.weights
    path.parent.mkdir()
    path.write_bytes(b"other weights")
    with pytest.raises(ValueError, match=r"not the file .* --force-reinstall"):
        pretrained()


@pytest.mark.usefixtures("other_package")
def test_lost_weights_are_an_error_that_helps() -> None:
    with pytest.raises(FileNotFoundError, match="--force-reinstall"):
        pretrained()


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_optional, "find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'colafier\[images\]'"):
        pretrained()


@pytest.mark.parametrize(("name", "size"), [("efficientnet_lite0", 64), ("efficientnet_lite2", 47)])
def test_openvino_computes_the_same(need, name: str, size: int) -> None:
    need("images")
    images = np.random.default_rng(0).integers(0, 256, (5, 3, size, size), np.uint8)
    net = pretrained(name)
    with torch.inference_mode():
        expected = net(torch.from_numpy(images) / 255).numpy()
    run = compiled(net, size, 1)
    assert np.abs(run(images) - expected).max() < 1e-4
    assert np.array_equal(run(images[:2]), run(images)[:2])


def test_without_openvino_torch_computes_the_same(
    need, monkeypatch: pytest.MonkeyPatch, pictures
) -> None:
    need("images")
    fast = LiteEmbedder(size=64)
    monkeypatch.setattr(efficientnet_lite, "find_spec", lambda _: None)
    plain = LiteEmbedder(size=64)
    assert fast.compute != plain.compute
    cosine = torch.nn.functional.cosine_similarity(
        torch.from_numpy(fast(pictures)[0]), torch.from_numpy(plain(pictures)[0])
    )
    assert cosine.min() > 0.99  # bf16 on machines that have it


def test_more_images_than_a_batch_keep_their_places(lite, pictures) -> None:
    many = [pictures[place % 5] for place in range(40)]
    many[20] = b"broken"
    features, problems = lite(many)
    assert list(problems) == [20]
    alone = lite(pictures)[0]
    for place in range(40):
        assert np.allclose(features[place], 0 if place == 20 else alone[place % 5], atol=1e-4)
