"""One step of CoLafier: its totals from the paper's formulas, warm-up, ablations, the proposal."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from colafier.core.config import ADAPTIVE, AUTHORS, PAPER, VARIANTS, Levels
from colafier.core.step import RowExchange, Step, colafier_step, observed_scores
from colafier.core.subnets import LidDis, LidGen
from colafier.nets import net_factory

B, CLASSES, K = 48, 3, 5
LABELS = torch.arange(B) % CLASSES
LATE = Levels(weight=1.0, update=1.0)
SMALL = replace(PAPER, neighbors=K)


def rows(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(B, *shape, generator=torch.Generator().manual_seed(seed))


VECTORS = [rows(5) + LABELS[:, None], rows(5, seed=2) + LABELS[:, None]]
PLAIN = rows(5, seed=3) + LABELS[:, None]


def subnets(net: str = "mlp", shape: tuple[int, ...] = (5,)) -> tuple[LidGen, LidDis]:
    torch.manual_seed(0)
    make = net_factory(net, shape, CLASSES)
    return LidGen(make()), LidDis(make().backbone, CLASSES)


def slow_lid(z: list[list[float]], i: int, k: int = K) -> float:
    """The paper's estimator for one row, in a loop."""
    r = sorted(math.dist(z[i], other) for j, other in enumerate(z) if j != i)[:k]
    return -1 / (sum(math.log(distance / r[-1]) for distance in r) / k)


def slow_quantile(scores: list[float], level: float) -> float:
    ordered = sorted(scores)
    place = level * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def slow_place(score: float, among: list[float], high: float) -> float:
    q_low, q_high = slow_quantile(among, 0.001), slow_quantile(among, high)
    return (q_high - score) / (q_high - q_low)


@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_totals_row_by_row(variant: str) -> None:
    """Eq. 3.28-3.29: the sums over clean, hard and noisy loss, from the paper's formulas.

    The authors look for neighbors in both views, compare logits, and draw another lambda. One
    lambda is drawn for each mixed view; it and the partners are drawn again for the loop.
    """
    gen, dis = subnets()
    config, level = replace(VARIANTS[variant], neighbors=K), 0.6
    theirs = variant == "authors"
    torch.manual_seed(7)
    step = colafier_step(gen, dis, VECTORS, LABELS, config, Levels(level, 1.0))
    torch.manual_seed(7)
    other = (LABELS + torch.randint(1, CLASSES, LABELS.shape)) % CLASSES
    mixed_views = []
    for view in VECTORS:
        alpha = 5.0 if theirs else 1.0
        share = float(torch.distributions.Beta(alpha, alpha).sample())
        mixed_views.append((view, max(share, 1 - share), torch.randperm(B)))
    judged, z_views, w, mixed = [], [], [], []
    with torch.no_grad():
        for view, keep, partner in mixed_views:
            features = dis.encode(view)
            z, of_labels = dis.judge(features, LABELS)
            _, of_other = dis.judge(features, other)
            logits = (gen(view), of_labels, of_other)
            judged.append([[some.softmax(1).tolist(), some.tolist()] for some in logits])
            z_views.append(z.tolist())
            x = keep * view + (1 - keep) * view[partner]
            one_hot = torch.eye(CLASSES)[LABELS]
            soft = keep * one_hot + (1 - keep) * one_hot[partner]
            _, of_soft = dis.judge(dis.encode(x), soft)
            mixed.append([p.log_softmax(1).tolist() for p in (gen(x), of_soft)])
    for view in range(2):
        among = z_views[view] + z_views[1 - view] if theirs else z_views[view]
        scores = [slow_lid(among, i) for i in range(B)]
        w.append([min(max(slow_place(s, scores, level), 0), 1) for s in scores])
    total_gen = total_dis = 0.0
    for i, y in enumerate(LABELS.tolist()):
        first, second = w[0][i], w[1][i]
        clean, hard = min(first, second), abs(first - second)
        noisy = min(1 - first, 1 - second)
        for view in range(2):
            p_gen, p_dis, p_other = (p[i] for p, _ in judged[view])
            ce = [-math.log(p[y]) for p in (p_gen, p_dis, p_other)]
            gce = [(1 - p[y] ** 0.7) / 0.7 for p in (p_gen, p_dis, p_other)]
            _, keep, partner = mixed_views[view]
            y_partner = int(LABELS[partner[i]])
            mix = [-keep * p[i][y] - (1 - keep) * p[i][y_partner] for p in mixed[view]]
            one, two = (of[theirs][i] for of in judged[view][1:])  # probabilities or logits
            dot = sum(a * b for a, b in zip(one, two, strict=True))
            turned = 1 - dot / (math.hypot(*one) * math.hypot(*two))
            total_gen += clean * ce[0] + hard * gce[0] + noisy * mix[0]
            total_dis += clean * (ce[1] + 0.5 * ce[2]) + hard * (gce[1] + 0.5 * gce[2])
            total_dis += noisy * (mix[1] + 10 * turned)
    parts = {name: term.item() for name, term in step.terms.items()}
    of_gen = sum(value for name, value in parts.items() if name.endswith("_gen"))
    of_dis = sum(value for name, value in parts.items() if name.endswith("_dis"))
    assert of_gen == pytest.approx(total_gen / B, rel=1e-4)
    assert of_dis == pytest.approx(total_dis / B, rel=1e-4)
    assert step.loss.item() == pytest.approx((total_gen + total_dis) / B, rel=1e-4)


@pytest.mark.parametrize("soft", [True, False])
def test_the_proposal_row_by_row(soft: bool) -> None:
    """Eq. 3.30-3.40 and 3.5-3.8 for each row, with a bias that LID-gen's logits get."""
    gen, dis = subnets()
    config = replace(SMALL, soft_prediction=soft, threshold=0.05)
    bias = torch.tensor([0.0, 0.3, 0.0])
    step = colafier_step(gen, dis, VECTORS, LABELS, config, Levels(1.0, 0.9), bias)
    views = []
    with torch.no_grad():
        for view in VECTORS:
            features, p = dis.encode(view), (gen(view) + bias).softmax(1)
            prediction = p.argmax(1)
            z, of_label = dis.judge(features, LABELS)
            z_other, of_prediction = dis.judge(features, p if soft else prediction)
            both = z.tolist() + z_other.tolist()
            p_label, p_prediction = of_label.softmax(1).tolist(), of_prediction.softmax(1).tolist()
            views.append((p.tolist(), prediction.tolist(), both, p_label, p_prediction))
    expected = []
    every = [[_spread(both, i) for i in range(2 * B)] for _, _, both, _, _ in views]
    for i, y in enumerate(LABELS.tolist()):
        moves = views[0][1][i] == views[1][1][i]
        for (p, _, _, p_label, p_prediction), scores in zip(views, every, strict=True):
            t = []
            for score, judged in ((scores[i], p_label), (scores[B + i], p_prediction)):
                apart = sum(abs(a - b) for a, b in zip(p[i], judged[i], strict=True))
                t.append(min(1, max(0, slow_place(score, scores, 0.9) * (2 - apart) / 2)))
            moves = moves and t[1] > t[0] and t[1] > 0.05
        expected.append(views[0][1][i] if moves else y)
    assert step.proposed is not None
    assert step.proposed.tolist() == expected
    assert expected != LABELS.tolist()


def _spread(z: list[list[float]], i: int) -> float:
    """LID of one row where another may lie on the same point, at a distance that counts 1e-12."""
    r = sorted(max(math.dist(z[i], other), 1e-12) for j, other in enumerate(z) if j != i)[:K]
    return -1 / (sum(math.log(distance / r[-1]) for distance in r) / K)


def test_lid_is_the_mean_of_the_views_and_of_observed_labels_where_asked() -> None:
    gen, dis = subnets()
    observed = LABELS.clone()
    observed[::5] = (observed[::5] + 1) % CLASSES
    step = colafier_step(gen, dis, VECTORS, LABELS, SMALL, None)
    of_observed = observed_scores(step, dis, LABELS, observed, SMALL)
    now, expected = [], []
    for i in range(B):
        now.append(sum(slow_lid(z.tolist(), i) for z in step.scored.z) / 2)
        lids = []
        for view in VECTORS:
            with torch.no_grad():
                features = dis.encode(view)
                z, z_observed = dis.judge(features, LABELS)[0], dis.judge(features, observed)[0]
            z[i] = z_observed[i]
            lids.append(slow_lid(z.tolist(), i))
        expected.append(sum(lids) / 2)
    torch.testing.assert_close(step.lid, torch.tensor(now), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(of_observed, torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_observed_labels_have_scores_of_their_own_where_views_are_joined() -> None:
    """The scores of the step have neighbors in both views, those of observed labels in one."""
    gen, dis = subnets()
    config = replace(AUTHORS, neighbors=K)
    step = colafier_step(gen, dis, VECTORS, LABELS, config, None)
    apart = colafier_step(gen, dis, VECTORS, LABELS, SMALL, None)
    of_observed = observed_scores(step, dis, LABELS, LABELS, config)
    torch.testing.assert_close(of_observed, apart.lid)
    assert not torch.allclose(of_observed, step.lid)


def test_warm_up_is_cross_entropy_and_runs_each_backbone_once() -> None:
    gen, dis = subnets("convnet", (1, 8, 8))
    calls: dict[str, list[int]] = {"gen": [], "dis": []}
    for name, net in (("gen", gen), ("dis", dis)):
        net.backbone.register_forward_hook(lambda *args, n=name: calls[n].append(len(args[2])))
    step = colafier_step(gen, dis, [rows(1, 8, 8), rows(1, 8, 8, seed=2)], LABELS, ADAPTIVE, None)
    assert set(step.terms) == {"clean_gen", "clean_dis"}
    assert step.weights == {}
    assert step.proposed is None
    assert calls == {"gen": [2 * B], "dis": [2 * B]}
    ce = sum(nn.functional.cross_entropy(logits, LABELS) for logits in step.trained.gen)
    torch.testing.assert_close(step.terms["clean_gen"], ce)


def test_after_warm_up_each_view_is_encoded_once_however_many_labels_judge_it() -> None:
    gen, dis = subnets("convnet", (1, 8, 8))
    calls = []
    dis.backbone.register_forward_hook(lambda *args: calls.append(len(args[2])))
    colafier_step(gen, dis, [rows(1, 8, 8), rows(1, 8, 8, seed=2)], LABELS, AUTHORS, LATE)
    assert sum(calls) == 4 * B  # two views, and each of them mixed


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("noisy", [True, False])
def test_ablations_leave_out_their_terms(hard: bool, noisy: bool) -> None:
    config = replace(ADAPTIVE, hard_loss=hard, noisy_loss=noisy)
    step = colafier_step(*subnets(), VECTORS, LABELS, config, LATE)
    kinds = {name.partition("_")[0] for name in step.terms}
    assert kinds == {"clean", *(["hard"] if hard else []), *(["noisy"] if noisy else [])}


def test_single_view_weighs_by_the_plain_rows_and_has_no_hard_weight() -> None:
    config = replace(ADAPTIVE, single_view=True)
    step = colafier_step(*subnets(), [*VECTORS, PLAIN], LABELS, config, LATE)
    assert float(step.terms["hard_gen"].detach()) == 0
    assert float(step.weights["weight_clean"] + step.weights["weight_noisy"]) == pytest.approx(1)
    assert len(step.scored.z) == 1
    assert not step.scored.z[0].requires_grad


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_gives_finite_gradients(variant: str) -> None:
    gen, dis = subnets("convnet", (1, 8, 8))
    views = [rows(1, 8, 8), rows(1, 8, 8, seed=2)]
    colafier_step(gen, dis, views, LABELS, VARIANTS[variant], LATE).loss.backward()
    gradients = [p.grad for p in (*gen.parameters(), *dis.parameters())]
    assert all(g is not None and torch.isfinite(g).all() for g in gradients)


def test_losses_of_the_subnets_touch_no_common_parameter() -> None:
    gen, dis = subnets()
    step = colafier_step(gen, dis, VECTORS, LABELS, ADAPTIVE, LATE)
    torch.stack([t for n, t in step.terms.items() if n.endswith("_gen")]).sum().backward()
    assert all(p.grad is None for p in dis.parameters())


def test_a_batch_too_small_for_lid_trains_as_in_warm_up() -> None:
    few = [view[:5] for view in VECTORS]
    step = colafier_step(*subnets(), few, LABELS[:5], AUTHORS, LATE)
    assert set(step.terms) == {"clean_gen", "clean_dis"}
    assert step.proposed is None


def test_a_step_keeps_nothing_and_changes_nothing() -> None:
    gen, dis = subnets()
    before = [value.clone() for net in (gen, dis) for value in net.state_dict().values()]
    labels = LABELS.clone()
    steps = []
    for _ in range(2):
        torch.manual_seed(3)
        steps.append(colafier_step(gen, dis, VECTORS, labels, ADAPTIVE, LATE))
    first, second = steps
    assert torch.equal(first.loss, second.loss)
    assert first.proposed is not None
    assert second.proposed is not None
    assert torch.equal(first.proposed, second.proposed)
    after = [value for net in (gen, dis) for value in net.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert torch.equal(labels, LABELS)


def test_two_processes_score_their_rows_among_all() -> None:
    """Each process has half of the rows; what it gathers from the other is played back."""
    gen, dis = subnets()
    config = replace(SMALL, noisy_loss=False)
    torch.manual_seed(5)
    seen: list[Tensor] = []

    def record(t: Tensor) -> Tensor:
        seen.append(t.detach())
        return t

    whole = colafier_step(gen, dis, VECTORS, LABELS, config, LATE, rows=RowExchange(record))
    halves: list[Step] = []
    for half in (slice(0, B // 2), slice(B // 2, B)):
        replay = iter(seen)
        torch.manual_seed(5)
        exchange = RowExchange(lambda _, r=replay: next(r), lambda t, h=half: t[h])
        views = [view[half] for view in VECTORS]
        halves.append(colafier_step(gen, dis, views, LABELS[half], config, LATE, rows=exchange))
    torch.testing.assert_close(torch.cat([half.lid for half in halves]), whole.lid)
    proposed = torch.cat([half.proposed for half in halves if half.proposed is not None])
    assert whole.proposed is not None
    assert torch.equal(proposed, whole.proposed)
    mean = sum(half.loss for half in halves) / 2
    torch.testing.assert_close(mean, whole.loss)
