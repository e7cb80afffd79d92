import math

import torch
from torch import Tensor, nn

from colafier.core.subnets import LidDis, LidGen
from colafier.nets import Backbone, Classifier

CLASSES, WIDTH = 5, 8


def backbone() -> Backbone:
    return Backbone(nn.Linear(6, WIDTH), WIDTH, "float32")


def lid_dis(seed: int = 0, embedding_scale: float = 1.0) -> LidDis:
    torch.manual_seed(seed)
    return LidDis(backbone(), CLASSES, embedding_scale)


def rows(n: int, d: int = 6) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0))


def slow_representation(features: list[float], label: list[float], dis: LidDis) -> list[float]:
    """Eq. 3.1 for one row: LayerNorm(g_LD(x) + g_LE(y)), with its learned scale and shift."""
    embedding = dis.embedding.weight.tolist()
    merged = []
    for j, feature in enumerate(features):
        merged.append(feature + sum(embedding[j][c] * label[c] for c in range(CLASSES)))
    mean = sum(merged) / WIDTH
    variance = sum((value - mean) ** 2 for value in merged) / WIDTH
    scale, shift = dis.norm.weight.tolist(), dis.norm.bias.tolist()
    return [
        scale[j] * (merged[j] - mean) / math.sqrt(variance + 1e-5) + shift[j] for j in range(WIDTH)
    ]


def test_judge_equals_the_equation_row_by_row() -> None:
    dis = lid_dis()
    nn.init.normal_(dis.norm.weight)
    nn.init.normal_(dis.norm.bias)
    soft = torch.rand(7, CLASSES, generator=torch.Generator().manual_seed(1)).softmax(1)
    features = dis.encode(rows(7))
    z, logits = dis.judge(features, soft)
    expected = [
        slow_representation(f, y, dis)
        for f, y in zip(features.tolist(), soft.tolist(), strict=True)
    ]
    torch.testing.assert_close(z, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    weight, bias = dis.head.weight.tolist(), dis.head.bias.tolist()
    expected_logits = [
        [bias[c] + sum(weight[c][j] * row[j] for j in range(WIDTH)) for c in range(CLASSES)]
        for row in expected
    ]
    torch.testing.assert_close(logits, torch.tensor(expected_logits), rtol=1e-4, atol=1e-5)


def test_a_prediction_without_a_label_is_the_mean_over_all_labels() -> None:
    dis = lid_dis()
    x = rows(7)
    weight, bias = dis.head.weight.tolist(), dis.head.bias.tolist()
    for row, logarithms in zip(dis.encode(x).tolist(), dis(x).tolist(), strict=True):
        mean = [0.0] * CLASSES
        for label in range(CLASSES):
            z = slow_representation(row, [float(label == c) for c in range(CLASSES)], dis)
            powers = [
                math.exp(bias[c] + sum(weight[c][j] * z[j] for j in range(WIDTH)))
                for c in range(CLASSES)
            ]
            for c, power in enumerate(powers):
                mean[c] += power / sum(powers) / CLASSES
        torch.testing.assert_close(logarithms, [math.log(p) for p in mean], rtol=1e-4, atol=1e-5)


def test_class_numbers_equal_one_hot_labels() -> None:
    dis = lid_dis()
    features, labels = dis.encode(rows(20)), torch.arange(20) % CLASSES
    hard = dis.judge(features, labels)
    soft = dis.judge(features, nn.functional.one_hot(labels, CLASSES).float())
    torch.testing.assert_close(hard, soft)


def test_class_numbers_and_one_hot_labels_give_the_same_gradient() -> None:
    gradients = []
    labels = torch.arange(20) % CLASSES
    for y in (labels, nn.functional.one_hot(labels, CLASSES).float()):
        dis = lid_dis()
        dis.judge(dis.encode(rows(20)), y)[1].square().sum().backward()
        gradients.append([p.grad for p in dis.parameters()])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_a_prediction_that_is_the_label_gives_the_identical_representation() -> None:
    """Facts 3.1: label and prediction must be exactly one point, which holds the update back."""
    dis = lid_dis()
    features = dis.encode(rows(20))
    labels = torch.arange(20) % CLASSES
    prediction = labels.clone()
    prediction[10:] = (prediction[10:] + 1) % CLASSES
    z, z_prediction = dis.judge(features, labels)[0], dis.judge(features, prediction)[0]
    assert torch.equal(z[:10], z_prediction[:10])
    assert (z[10:] != z_prediction[10:]).any(1).all()


def test_the_embedding_is_linear_in_the_label() -> None:
    """A mixed row's embedding is the mix of the embeddings (facts, row 42)."""
    dis = lid_dis()
    one_hot = torch.eye(CLASSES)
    mixed = 0.3 * one_hot[1] + 0.7 * one_hot[4]
    expected = 0.3 * dis.embedding(one_hot[1]) + 0.7 * dis.embedding(one_hot[4])
    torch.testing.assert_close(dis.embedding(mixed), expected)


def test_embedding_scale_is_the_standard_deviation_at_the_start() -> None:
    torch.manual_seed(0)
    for scale in (1.0, 0.2):
        dis = LidDis(Backbone(nn.Linear(6, 512), 512, "float32"), 20, scale)
        assert abs(float(dis.embedding.weight.detach().std()) / scale - 1) < 0.05


def test_gen_is_backbone_and_head() -> None:
    torch.manual_seed(0)
    net = Classifier(backbone(), CLASSES)
    x = rows(4)
    gen = LidGen(net)
    assert torch.equal(gen(x), net(x))
    assert gen(x).shape == (4, CLASSES)


def test_one_backbone_pass_serves_all_labels() -> None:
    dis = lid_dis()
    calls = []
    dis.backbone.register_forward_hook(lambda *_: calls.append(1))
    features = dis.encode(rows(4))
    for label in range(3):
        dis.judge(features, torch.full((4,), label))
    assert len(calls) == 1
