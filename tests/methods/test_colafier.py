"""What is special to CoLafier: totals, weights, warm-up, variants, ablations, the label update."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from colafier.core.config import VARIANTS
from colafier.core.relabel import ClassPriorFloor
from colafier.methods.colafier import CoLafier
from colafier.methods.contract import Batch, Labels
from colafier.methods.row_table import RowTable
from colafier.nets import net_factory
from colafier.training.training_set import TrainingSet

ROWS, CLASSES = 48, 3


def rows(kind: str = "vectors", views: tuple[str, ...] = ("weak", "strong")) -> TrainingSet:
    g = torch.Generator().manual_seed(1)
    observed = torch.arange(ROWS) % CLASSES
    if kind == "vectors":
        x = torch.randn(ROWS, 5, generator=g) + observed[:, None]
    else:
        x = torch.randint(0, 256, (ROWS, 1, 8, 8), generator=g).to(torch.uint8)
    return TrainingSet(x, Labels(observed), CLASSES, view_names=views, batch_size=ROWS)


def ready(
    kind: str = "vectors", epochs: int = 10, **settings: Any
) -> tuple[CoLafier, TrainingSet, Batch]:
    """A method set up for these rows, and its first batch."""
    torch.manual_seed(0)
    method = CoLafier(warmup=2, ramp=3, **settings)
    train = rows(kind, method.views)
    net = "mlp" if kind == "vectors" else "convnet"
    method.setup(net_factory(net, train.row_shape, CLASSES), train, epochs)
    (part,) = method.passes(0, train)
    return method, train, next(iter(train.batches(part, 0, 0)))


def at(batch: Batch, epoch: int) -> Batch:
    return Batch(batch.index, batch.y, batch.views, epoch, float(epoch))


def slow_lid(z: Tensor, i: int, k: int) -> float:
    """The paper's estimator for one row, in a loop."""
    distances = sorted(float((z[i] - z[j]).norm()) for j in range(len(z)) if j != i)[:k]
    logs = [torch.tensor(d / distances[-1]).log().item() for d in distances]
    return -1 / (sum(logs) / k)


def test_totals_after_warm_up_row_by_row() -> None:
    """Eq. 3.28-3.29 without the noisy loss, which draws at random, from the paper's formulas."""
    method, _, batch = ready(variant="paper", neighbors=5, noisy_loss=False)
    torch.manual_seed(7)
    terms = method.loss(at(batch, 3))
    torch.manual_seed(7)
    step = torch.randint(1, CLASSES, batch.y.shape)
    wrong = (batch.y + step) % CLASSES
    level = 0.05 + 0.95 * (3 - 2) / 2
    clean_gen = clean_dis = hard_gen = hard_dis = 0.0
    w: list[list[float]] = []
    judged = []
    for view in batch.views:
        features = method.dis.encode(view)
        z, dis = method.dis.judge(features, batch.y)
        _, dis_other = method.dis.judge(features, wrong)
        both = (method.gen(view), dis, dis_other)
        judged.append([logits.detach().softmax(1) for logits in both])
        scores = torch.tensor([slow_lid(z.detach(), i, 5) for i in range(len(z))])
        low, high = scores.quantile(0.001), scores.quantile(level)
        w.append([min(max(float((high - s) / (high - low)), 0), 1) for s in scores])
    for i, y in enumerate(batch.y.tolist()):
        w_clean, w_hard = min(w[0][i], w[1][i]), abs(w[0][i] - w[1][i])
        for gen, dis, dis_other in judged:
            ce = [-float(p[i, y].log()) for p in (gen, dis, dis_other)]
            gce = [(1 - float(p[i, y]) ** 0.7) / 0.7 for p in (gen, dis, dis_other)]
            clean_gen += w_clean * ce[0]
            clean_dis += w_clean * (ce[1] + 0.5 * ce[2])
            hard_gen += w_hard * gce[0]
            hard_dis += w_hard * (gce[1] + 0.5 * gce[2])
    slow = {
        "clean_gen": clean_gen,
        "clean_dis": clean_dis,
        "hard_gen": hard_gen,
        "hard_dis": hard_dis,
    }
    for name, value in slow.items():
        assert float(terms[name].detach()) == pytest.approx(value / len(batch), rel=1e-4), name


def test_warm_up_is_cross_entropy_and_runs_each_backbone_once() -> None:
    method, _, batch = ready("images")
    calls: dict[str, list[int]] = {"gen": [], "dis": []}
    for name, net in (("gen", method.gen), ("dis", method.dis)):
        net.backbone.register_forward_hook(lambda *args, n=name: calls[n].append(len(args[2])))
    terms = method.loss(batch)
    assert set(terms) == {"clean_gen", "clean_dis"}
    assert calls == {"gen": [2 * len(batch)], "dis": [2 * len(batch)]}
    for table in (method.labels, method.patience.wanted):
        assert table.take_staged() is None


def test_after_warm_up_each_view_is_encoded_once_however_many_labels_judge_it() -> None:
    method, _, batch = ready("images", variant="authors")
    calls = []
    method.dis.backbone.register_forward_hook(lambda *args: calls.append(len(args[2])))
    method.loss(at(batch, 3))
    assert sum(calls) == 4 * len(batch)  # two views, and each of them mixed


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({}, set()),
        ({"noisy_loss": False, "hard_loss": False}, {"noisy", "hard"}),
        ({"noisy_loss": False}, {"noisy"}),
        ({"hard_loss": False}, {"hard"}),
    ],
)
def test_ablations_leave_out_their_terms(settings: dict[str, bool], missing: set[str]) -> None:
    method, _, batch = ready(**settings)
    kinds = {name.partition("_")[0] for name in method.loss(at(batch, 4))}
    assert kinds == {"clean", "hard", "noisy", "weight"} - missing


def test_single_view_weighs_by_the_original_rows_and_has_no_hard_weight() -> None:
    method, _, batch = ready(single_view=True)
    assert method.views[-1] == "plain"
    terms = method.loss(at(batch, 4))
    assert float(terms["hard_gen"].detach()) == 0
    assert float(terms["weight_clean"] + terms["weight_noisy"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "paper", "authors"),
    [
        ("joined_views", False, True),  # facts row 7
        ("soft_prediction", True, False),  # 10
        ("weight_quantile", 0.05, 0.5),  # 16
        ("update_quantile", 0.5, 0.05),  # 17
        ("consistency_on", "probabilities", "logits"),  # 37
        ("mix_alpha", 1.0, 5.0),  # 39
    ],
)
def test_variants_differ_where_paper_and_code_do(name: str, paper: Any, authors: Any) -> None:
    assert getattr(VARIANTS["paper"], name) == paper
    assert getattr(VARIANTS["authors"], name) == authors
    assert getattr(CoLafier(variant="paper", **{name: authors}).choices, name) == authors


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_gives_finite_gradients(variant: str) -> None:
    method, _, batch = ready("images", variant=variant)
    terms = method.loss(at(batch, 4))
    torch.stack([t for t in terms.values() if t.requires_grad]).sum().backward()
    gradients = [p.grad for p in (*method.gen.parameters(), *method.dis.parameters())]
    assert all(g is not None and torch.isfinite(g).all() for g in gradients)


def test_losses_of_the_subnets_touch_no_common_parameter() -> None:
    method, _, batch = ready()
    terms = method.loss(at(batch, 4))
    sum(t for n, t in terms.items() if n.endswith("_gen")).backward()
    assert all(p.grad is None for p in method.dis.parameters())


class Stubborn(nn.Module):
    """Says the same class with certainty for every row."""

    def __init__(self, answer: int) -> None:
        super().__init__()
        self.answer = answer
        self.anchor = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        logits = torch.zeros(len(x), CLASSES)
        logits[:, self.answer] = 9.0
        return logits + self.anchor


def wanted(method: CoLafier, batch: Batch, epoch: int) -> Tensor:
    """Labels after one batch whose staged rows are committed."""
    method.loss(at(batch, epoch))
    for table in method.modules():
        if isinstance(table, RowTable):
            table.begin_pass() if (staged := table.take_staged()) is None else table.commit(*staged)
            table.begin_pass()
    return method.labels[batch.index]


def test_a_move_must_be_wanted_in_as_many_epochs_as_patience_says() -> None:
    method, _, batch = ready(patience=2, class_prior_floor=0.0, threshold=-1.0, holdout=False)
    method.gen = Stubborn(1)  # type: ignore[assignment]
    after_one, after_two = wanted(method, batch, 6), wanted(method, batch, 7)
    assert torch.equal(after_one, batch.y)
    assert (after_two != batch.y).any()
    assert set(after_two[after_two != batch.y].tolist()) == {1}


def test_a_label_moves_only_to_the_class_that_the_gate_allows() -> None:
    method, _, batch = ready(patience=1, class_prior_floor=0.0, threshold=-1.0)
    method.gen = Stubborn(1)  # type: ignore[assignment]
    assert torch.equal(wanted(method, batch, 7), batch.y)
    method.allowed.values.fill_(1)
    assert (wanted(method, batch, 8) != batch.y).any()


def test_trusted_rows_keep_their_label_whatever_is_predicted() -> None:
    method, train, batch = ready(patience=1, class_prior_floor=0.0, threshold=-1.0, holdout=False)
    method.labels = RowTable(train.observed, trusted=torch.ones(ROWS, dtype=torch.bool))
    method.gen = Stubborn(1)  # type: ignore[assignment]
    assert torch.equal(wanted(method, batch, 7), batch.y)


def test_a_batch_too_small_for_lid_trains_as_in_warm_up() -> None:
    method, _, batch = ready(variant="authors")
    few = Batch(batch.index[:5], batch.y[:5], tuple(v[:5] for v in batch.views), 6, 6.0)
    assert set(method.loss(few)) == {"clean_gen", "clean_dis"}


def test_held_out_rows_are_never_trained_on_and_come_out() -> None:
    method, train, _ = ready()
    (part,) = method.passes(0, train)
    assert part.rows is not None
    assert 0 < len(part.rows) < train.n
    method.loss(next(iter(train.batches(part, 0, 0))))
    purified = method.purify(train, train.predict(method.deployed()))
    assert purified.labels.shape == purified.quality.shape == (train.n,)
    assert torch.equal(purified.labels, train.observed)  # too few rows to be evidence


def test_a_reopened_run_believes_the_observed_labels_again() -> None:
    method, train, _ = ready()
    weight = next(method.parameters()).clone()
    method.labels.values.copy_((train.observed + 1) % train.num_classes)
    method.history.epochs.values += 1
    method.reset_beliefs(train)
    assert torch.equal(method.labels.values, train.observed)
    assert not method.history.seen.any()
    assert torch.equal(next(method.parameters()), weight)


def test_no_class_vanishes_from_the_predictions() -> None:
    observed = torch.arange(3).repeat(100)
    logits = torch.randn(300, 3) - torch.tensor([0.0, 2.0, 0.0])  # the second class is hardly seen
    floor = ClassPriorFloor(observed, 3, 0.7)
    assert int((floor(logits).argmax(1) == 1).sum()) < 50
    floor.fit(logits)
    assert int((floor(logits).argmax(1) == 1).sum()) == pytest.approx(70, abs=3)
    assert floor.bias[[0, 2]].max() == 0


def test_a_class_that_is_frequent_enough_is_not_lifted() -> None:
    observed = torch.arange(3).repeat(100)
    floor = ClassPriorFloor(observed, 3, 0.7)
    floor.fit(4 * nn.functional.one_hot(observed, 3).float())
    assert floor.bias.max() == 0


def test_the_deployed_classifier_has_the_lift() -> None:
    method, train, _ = ready(class_prior_floor=0.7)
    method.class_prior_floor.bias[1] = 50.0
    assert (train.predict(method.deployed()).argmax(1) == 1).all()


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ValueError, match="adaptive"):
        CoLafier(variant="mine")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("warmup", -1),
        ("ramp", 0),
        ("low_quantile", 3.0),
        ("neighbors", 1),
        ("neighbors", -1),
        ("patience", 0),
        ("mix_share", 1.5),
        ("mix_alpha", 0.0),
        ("update_quantile", -0.1),
    ],
)
def test_values_without_meaning_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        CoLafier(**{name: value})
