import copy
import math

import pytest
import torch
from torch import Tensor, nn

from colafier import nets
from colafier.nets import (
    NETS,
    Backbone,
    Classifier,
    dtype,
    net_factory,
)
from colafier.nets.dtype import backbone_dtype
from colafier.nets.normalize import Normalize, input_statistics
from colafier.nets.resnet import RESNETS

CPU = torch.device("cpu")
IMAGE_NETS = tuple(name for name in NETS if name not in ("mlp", "linear"))
SMALL_NETS = ("resnet8", "convnet", "mlp", "linear")


def rows(n: int, *shape: int) -> Tensor:
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(0))


def flat_parameters(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", NETS)
def test_every_name_builds_and_learns(name: str, channels: int) -> None:
    torch.manual_seed(0)
    net = net_factory(name, (channels, 8, 8), 4, "float32")()
    logits = net(rows(3, channels, 8, 8))
    assert logits.shape == (3, 4)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize("size", [8, 9, 15, 28, 32, 40])
@pytest.mark.parametrize("name", SMALL_NETS)
def test_any_image_size(name: str, size: int) -> None:
    torch.manual_seed(0)
    net = net_factory(name, (1, size, size + 1), 4, "float32")()
    features = net.backbone(rows(2, 1, size, size + 1))
    assert features.shape == (2, net.backbone.num_features)


@pytest.mark.parametrize("name", ["resnet10", "resnet18", "resnet34"])
def test_a_large_net_takes_odd_images(name: str) -> None:
    torch.manual_seed(0)
    net = net_factory(name, (1, 11, 11), 4, "float32")().eval()
    with torch.no_grad():
        assert net.backbone(rows(1, 1, 11, 11)).shape == (1, 512)


@pytest.mark.parametrize("name", ["mlp", "linear"])
def test_vectors(name: str) -> None:
    torch.manual_seed(0)
    assert net_factory(name, (7,), 4)()(rows(5, 7)).shape == (5, 4)


@pytest.mark.parametrize(
    ("name", "layers"), [("resnet8", 8), ("resnet10", 10), ("resnet18", 18), ("resnet34", 34)]
)
def test_a_resnet_has_as_many_layers_as_its_name_says(name: str, layers: int) -> None:
    """Convolutions with a 3x3 window and the head; shortcuts do not count."""
    torch.manual_seed(0)
    net = net_factory(name, (3, 8, 8), 4)()
    convolutions = [
        m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)
    ]
    # resnet8 has three blocks: 1 + 3 * 2 + 1
    assert len(convolutions) + 1 == layers


def test_the_stem_keeps_the_size_and_each_stage_halves_it() -> None:
    torch.manual_seed(0)
    net = net_factory("resnet18", (3, 32, 32), 10, "float32")()
    seen = []
    for layer in net.backbone.module:
        layer.register_forward_hook(lambda *args: seen.append(tuple(args[2].shape[1:])))
    with torch.no_grad():
        net.eval()(rows(1, 3, 32, 32))
    assert seen[0] == (64, 32, 32)
    assert seen[-1] == (512, 4, 4)
    assert sum(p.numel() for p in net.parameters()) == 11_173_962  # the usual CIFAR ResNet-18


def test_two_nets_differ_and_a_seed_repeats_them() -> None:
    for net in ("resnet8", nn.Sequential(nn.Flatten(), nn.Linear(64, 6))):
        make = net_factory(net, (1, 8, 8), 4)
        torch.manual_seed(0)
        first, second = make(), make()
        torch.manual_seed(0)
        again = make()
        assert not torch.equal(flat_parameters(first), flat_parameters(second))
        assert torch.equal(flat_parameters(first), flat_parameters(again))


def test_a_users_module_is_copied_and_its_batch_statistics_start_anew() -> None:
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Conv2d(1, 5, 3), nn.BatchNorm2d(5))
    mine(rows(4, 1, 8, 8))
    before = flat_parameters(mine)
    net = net_factory(mine, (1, 8, 8), 4)()
    assert net.backbone.num_features == 5
    assert torch.equal(net.backbone.module[1].running_mean, torch.zeros(5))
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    assert torch.equal(flat_parameters(mine), before)
    assert mine.training


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(64, 6)),
        nn.Sequential(nn.Flatten(), nn.LazyLinear(6)),
        nn.Conv2d(1, 6, 3),  # a map, averaged over space
        nn.Sequential(nn.Flatten(2), nn.Conv1d(1, 6, 5)),
    ],
    ids=["vector", "lazy", "map", "sequence"],
)
def test_any_module_of_the_users(module: nn.Module) -> None:
    torch.manual_seed(0)
    net = net_factory(module, (1, 8, 8), 4)()
    assert net.backbone(rows(3, 1, 8, 8)).shape == (3, 6)
    assert net(rows(3, 1, 8, 8)).shape == (3, 4)


def test_a_map_is_averaged_over_space() -> None:
    x = rows(3, 2, 5, 4)
    features = Backbone(nn.Identity(), 2, "float32")(x)
    torch.testing.assert_close(features, x.mean((2, 3)))


def test_the_probe_for_the_width_moves_no_statistics() -> None:
    net = net_factory("resnet8", (1, 8, 8), 4)()
    assert net.training
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(int(norm.num_batches_tracked) == 0 for norm in norms)


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="resnet18"):
        net_factory("resnet99", (1, 8, 8), 4)
    with pytest.raises(ValueError, match="needs images"):
        net_factory("resnet8", (64,), 4)
    with pytest.raises(ValueError, match="row of features"):
        net_factory(nn.Flatten(0), (64,), 4)()
    with pytest.raises(ValueError, match="bf16"):
        net_factory("mlp", (64,), 4, "half")


@pytest.mark.parametrize("name", SMALL_NETS)
def test_bf16_is_close_and_features_are_float32(name: str) -> None:
    outputs = []
    for kind in ("float32", "bf16"):
        torch.manual_seed(0)
        net = net_factory(name, (1, 8, 8), 4, kind)()
        x = rows(16, 1, 8, 8)
        assert net.backbone(x).dtype == torch.float32
        logits = net(x)
        assert logits.dtype == torch.float32
        logits.square().mean().backward()
        assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in net.parameters())
        outputs.append(logits.detach())
    apart = (outputs[0] - outputs[1]).norm() / outputs[0].norm()
    assert 0 < apart < 0.05


@pytest.mark.parametrize("own", [False, True])
def test_kaiming_fan_out_has_the_variance_of_the_formula(own: bool) -> None:
    net = nn.Conv2d(3, 128, 3, stride=2) if own else "resnet18"
    torch.manual_seed(0)
    made = net_factory(net, (3, 32, 32), 10, init="kaiming-fan-out")()
    for layer in made.modules():
        if isinstance(layer, nn.Conv2d):
            outputs, _, height, width = layer.weight.shape
            expected = math.sqrt(2 / (outputs * height * width))
            assert layer.weight.std().item() == pytest.approx(expected, rel=0.1)
            assert layer.weight.abs().max() > 2 * expected  # a uniform one ends at 1.7 deviations
        elif isinstance(layer, nn.BatchNorm2d):
            assert (layer.weight == 1).all()
            assert (layer.bias == 0).all()


def test_init_leaves_the_head_and_given_weights_as_they_are() -> None:
    made = []
    for init in ("torch", "kaiming-fan-out"):
        torch.manual_seed(0)
        conv = nn.Conv2d(1, 4, 3)
        net = net_factory(lambda conv=conv: conv, (1, 8, 8), 4, init=init)()
        made.append((net.backbone.module.weight.clone(), net.head.weight.clone()))
    assert all(torch.equal(first, second) for first, second in zip(*made, strict=True))
    with pytest.raises(ValueError, match="kaiming-fan-out"):
        net_factory("resnet8", (3, 8, 8), 4, init="xavier")


def test_input_statistics() -> None:
    x = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8)
    fitted = input_statistics("fitted", x)
    assert torch.equal(fitted.mean, Normalize.fit(x).mean)
    theirs = input_statistics("cifar10-authors", x)
    assert theirs.mean.tolist() == pytest.approx([0.4914, 0.4822, 0.4465])
    assert theirs.std.tolist() == pytest.approx([0.2023, 0.1994, 0.2010])
    for wrong in (x[:, :1], x.flatten(1)):
        with pytest.raises(ValueError, match="three channels"):
            input_statistics("cifar10-authors", wrong)
    with pytest.raises(ValueError, match="fitted"):
        input_statistics("imagenet", x)


def test_precisions() -> None:
    assert backbone_dtype("float32", CPU) == torch.float32
    assert backbone_dtype("bf16", CPU) == torch.bfloat16
    assert backbone_dtype("auto", CPU) in (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("gains", [True, False])
def test_auto_takes_bf16_only_where_the_hardware_gains(
    monkeypatch: pytest.MonkeyPatch, gains: bool
) -> None:
    monkeypatch.setattr(dtype, "_gains_from_bf16", lambda _: gains)
    expected = torch.bfloat16 if gains else torch.float32
    assert backbone_dtype("auto", CPU) == expected


def test_auto_does_not_take_emulated_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """AVX-512 without its bf16 instructions: mkldnn says it is supported, and emulates it."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: True)
    for native in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda native=native: native)
        assert (backbone_dtype("auto", CPU) == torch.bfloat16) == native


def test_names_are_complete() -> None:
    assert {*RESNETS, "convnet", "mlp", "linear"} == set(NETS)
    assert set(IMAGE_NETS) == {*RESNETS, "convnet"}
    assert nets.Classifier is Classifier


def test_a_function_makes_nets_whose_parameters_are_kept() -> None:
    pretrained = nn.Linear(5, 7)
    make = net_factory(lambda: copy.deepcopy(pretrained), (5,), 3)
    first, second = make(), make()
    assert torch.equal(first.backbone.module.weight, pretrained.weight)
    assert first.backbone.module is not second.backbone.module
