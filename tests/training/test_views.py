import pytest
import torch
from torch.nn import functional as F

from colafier.nets.normalize import Normalize
from colafier.training import randaugment
from colafier.training.views import make_views, render

SHAPES = [(1, 8, 8), (3, 32, 32), (1, 28, 28), (3, 64, 48), (2, 16, 16)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n, shape, seed=0):
    return torch.randint(256, (n, *shape), generator=generator(seed), dtype=torch.uint8)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["plain", "weak", "strong"])
def test_image_views_keep_shape_and_range(name, shape):
    x = images(40, shape).float() / 255
    view = make_views([name], shape)[name]
    draws = view.draw(40, shape, generator(1))
    before = x.clone()
    out = view.apply(x, draws)
    assert out.shape == x.shape
    assert out.dtype == torch.float32
    assert out.min() >= 0
    assert out.max() <= 1
    assert torch.equal(x, before), "views must not change their input"
    assert all(len(values) == 40 for values in draws.values())


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (12,)])
@pytest.mark.parametrize("name", ["weak", "strong"])
def test_share_of_a_batch_equals_rows_of_the_whole(name, shape):
    """Each process draws for all rows and applies its share."""
    x = torch.rand(30, *shape, generator=generator())
    view = make_views([name], shape)[name]
    draws = view.draw(30, shape, generator(1))
    share = torch.tensor([3, 29, 0, 14])
    part = view.apply(x[share], {key: values[share] for key, values in draws.items()})
    assert torch.equal(part, view.apply(x, draws)[share])


@pytest.mark.parametrize("name", ["weak", "strong"])
def test_same_seed_same_view_other_seed_another(name):
    shape = (3, 32, 32)
    x = images(16, shape).float() / 255
    view = make_views([name], shape)[name]
    first, same, other = (view.apply(x, view.draw(16, shape, generator(s))) for s in (5, 5, 6))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("shape", "border"), [((3, 32, 32), (4, 4)), ((1, 8, 24), (1, 3))])
def test_weak_is_flip_then_crop_of_the_reflected_image(shape, border):
    x = images(60, shape).float() / 255
    view = make_views(["weak"], shape)["weak"]
    draws = view.draw(60, shape, generator(2))
    out = view.apply(x, draws)
    _, height, width = shape
    for i in range(60):
        image = x[i].flip(2) if draws["flip"][i] else x[i]
        padded = F.pad(image[None], (border[1], border[1], border[0], border[0]), "reflect")[0]
        top, left = draws["start"][i] + torch.tensor(border)
        assert torch.equal(out[i], padded[:, top : top + height, left : left + width])


def test_weak_draws_every_start_and_half_of_the_flips():
    draws = make_views(["weak"], (3, 32, 32))["weak"].draw(9000, (3, 32, 32), generator())
    assert 0.47 < draws["flip"].float().mean() < 0.53
    for axis in range(2):
        counts = torch.bincount(draws["start"][:, axis] + 4, minlength=9)
        assert len(counts) == 9
        assert counts.min() > 850


def test_flip_can_be_switched_off():
    views = make_views(["weak", "strong"], (1, 8, 8), flip=False)
    for view in views.values():
        assert not view.draw(500, (1, 8, 8), generator())["flip"].any()


def test_randaugment_draws_as_the_authors_do():
    draws = randaugment.draw(20000, generator())
    drawn = draws["operation"]
    assert 0.48 < (drawn == -1).float().mean() < 0.52
    counts = torch.bincount(drawn[drawn >= 0], minlength=16)
    assert len(counts) == 16
    assert counts.min() > 1100  # 1250 expected
    both = drawn[(drawn >= 0).all(1)]
    assert (both[:, 0] == both[:, 1]).any(), "drawn with replacement"
    assert draws["level"].unique().tolist() == [1, 2, 3, 4]
    assert draws["sign"].unique().tolist() == [-1, 1]


def test_randaugment_in_groups_equals_row_by_row():
    x = images(64, (3, 32, 32)).float() / 255
    draws = randaugment.draw(64, generator(3))
    together = randaugment.apply(x, draws)
    operations = list(randaugment.POOL.values())
    for i in range(64):
        value = (x[i : i + 1] * 255).round()
        for slot in range(2):
            number = int(draws["operation"][i, slot])
            if number >= 0:
                level, sign, place = (draws[k][i : i + 1, slot] for k in ("level", "sign", "place"))
                value = operations[number](value, randaugment.Strength(level, sign, place))
        at = (draws["place"][i, 2] * 32 - 2).clamp(min=0).int().tolist()
        value[:, :, at[0] : at[0] + 5, at[1] : at[1] + 5] = 127
        assert torch.allclose(together[i], value[0] / 255, atol=1e-6)


def test_strong_always_has_the_gray_square():
    shape = (3, 32, 32)
    view = make_views(["strong"], shape)["strong"]
    x = torch.zeros(50, *shape)
    draws = view.draw(50, shape, generator())
    draws["operation"].fill_(-1)
    gray = (view.apply(x, draws) * 255).round() == 127
    sizes = gray[:, 0].sum((1, 2))
    assert sizes.max() == 25
    assert sizes.min() >= 4


def test_vector_views_drop_and_add_noise():
    x = torch.ones(4000, 20)
    dropped, spread = {}, {}
    for name, view in make_views(["weak", "strong"], (20,)).items():
        out = view.apply(x, view.draw(4000, (20,), generator()))
        assert out.shape == x.shape
        assert abs(out.mean() - 1) < 0.02, "scaling keeps the mean"
        quiet = view.apply(torch.zeros_like(x), view.draw(4000, (20,), generator()))
        dropped[name] = (out - quiet == 0).float().mean().item()
        spread[name] = quiet.std().item()
    assert dropped["weak"] == pytest.approx(0.1, abs=0.01)
    assert dropped["strong"] == pytest.approx(0.4, abs=0.01)
    assert 0 < spread["weak"] < spread["strong"] < 0.3


def test_normalize_images_per_channel():
    x = images(5000, (3, 8, 8))
    x[:, 1] //= 4
    x[:, 2] = 200
    normalize = Normalize.fit(x)
    values = x.double() / 255
    assert torch.allclose(normalize.mean.double(), values.mean((0, 2, 3)), atol=1e-7)
    std = values.std((0, 2, 3), correction=0)
    std[2] = 1
    assert torch.allclose(normalize.std.double(), std, atol=1e-6)
    out = normalize(x.float() / 255)
    assert torch.allclose(out.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(out.std((0, 2, 3)), torch.tensor([1.0, 1.0, 0.0]), atol=1e-3)


def test_normalize_vectors_with_constant_and_far_features():
    x = torch.randn(500, 4, generator=generator())
    x[:, 1] = 0.1
    x[:, 2] = 1e6
    x[:, 3] += 10000
    normalize = Normalize.fit(x)
    assert normalize.std[1:3].tolist() == [1, 1]
    out = normalize(x)
    assert out.isfinite().all()
    assert torch.allclose(out[:, [0, 3]].std(0), torch.ones(2), atol=1e-2)


def test_render_normalizes_images_last_and_vectors_first():
    x = images(10, (3, 16, 16))
    view, normalize = make_views(["strong"], (3, 16, 16))["strong"], Normalize.fit(x)
    draws = view.draw(10, (3, 16, 16), generator())
    expected = normalize(view.apply(x.float() / 255, draws))
    assert torch.equal(render(x, view, draws, normalize), expected)

    vectors = 100 + 5 * torch.randn(50, 6, generator=generator())
    weak, normalize = make_views(["weak"], (6,))["weak"], Normalize.fit(vectors)
    draws = weak.draw(50, (6,), generator())
    expected = weak.apply(normalize(vectors), draws)
    assert torch.equal(render(vectors, weak, draws, normalize), expected)
    assert expected.abs().max() < 6, "dropped features are at their mean, not at 0"


@pytest.mark.parametrize("shape", [(8, 8), (), (1, 2, 3, 4)])
def test_rows_of_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"images .* or vectors"):
        make_views(["plain"], shape)


def test_unknown_view_is_refused_with_the_names_that_exist():
    with pytest.raises(ValueError, match="'medium'; there are plain, weak, strong"):
        make_views(["weak", "medium"], (3, 32, 32))
