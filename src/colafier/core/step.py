"""One training step of CoLafier as a pure function: views and labels in, losses and labels out.

It keeps nothing from one step to the next, so it can be used in any training loop: see
examples/plain_loop.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from colafier.core import losses
from colafier.core.config import CoLafierConfig, Levels
from colafier.core.functional import draw_other
from colafier.core.lid import lid, neighbors
from colafier.core.mixing import drawn_views, mix, mixed_labels
from colafier.core.relabel import candidate, decide, difference, union_scores
from colafier.core.subnets import LidDis
from colafier.core.weights import position, split, view_scores

Terms = dict[str, Tensor]


def _same(t: Tensor) -> Tensor:
    return t


@dataclass(frozen=True)
class RowExchange:
    """How several processes share a batch; by default, one process has all of it."""

    all_gather: Callable[[Tensor], Tensor] = _same  # rows of all processes, without gradient
    local_slice: Callable[[Tensor], Tensor] = _same  # this process's part of gathered rows


ONE_PROCESS = RowExchange()


@dataclass(frozen=True)
class Judged:
    """What both subnets give for the rows of a batch, one tensor for each view."""

    gen: tuple[Tensor, ...]  # logits of LID-gen (b, c)
    features: tuple[Tensor, ...]  # of LID-dis (b, d)
    z: tuple[Tensor, ...]  # of LID-dis with the label (b, d)
    dis: tuple[Tensor, ...]  # logits of LID-dis with the label (b, c)
    dis_other: tuple[Tensor, ...]  # logits of LID-dis with the random other label (b, c)


@dataclass(frozen=True)
class Step:
    """The outcome of one step."""

    terms: Terms  # clean, hard and noisy loss of each subnet, by name
    weights: Terms  # mean clean and noisy weight, by name; empty in warm-up
    lid: Tensor  # (b,) LID of the rows with their labels, mean of the views
    proposed: Tensor | None  # (b,) labels for the next epoch; None in warm-up
    trained: Judged  # both views
    scored: Judged  # the views that LID is taken from: the same, but for the ablation

    @property
    def loss(self) -> Tensor:
        """The sum of all terms: no parameter is in the terms of both subnets."""
        return torch.stack(list(self.terms.values())).sum()


def colafier_step(
    gen: nn.Module,
    dis: LidDis,
    views: Sequence[Tensor],
    labels: Tensor,
    config: CoLafierConfig,
    levels: Levels | None,
    class_bias: Tensor | float = 0.0,
    rows: RowExchange = ONE_PROCESS,
) -> Step:
    """The terms whose sums are the losses of LID-gen and LID-dis, Eq. 3.28-3.29, and new labels.

    Args:
        gen: LID-gen.
        dis: LID-dis.
        views: Two views of the rows (b, ...); for the ablation `single_view` also the plain rows.
        labels: Labels now (b,).
        config: Hyper-parameters.
        levels: Of this epoch, as `config.levels` gives them. None: warm-up, which is the clean loss
            with weight 1. A batch too small for LID is treated in the same way.
        class_bias: Added to LID-gen's logits when it proposes labels (c,).
        rows: How several processes share the batch.
    """
    all_labels = rows.all_gather(labels)  # (all b,)
    other = rows.local_slice(draw_other(all_labels, dis.num_classes))  # (b,)
    trained = judge(gen, dis, views[:2], labels, other)
    scored = trained
    if config.single_view:
        with torch.no_grad():
            scored = judge(gen, dis, views[2:], labels, other)
    scores = _label_scores(scored, all_labels, config, rows)  # a (all b,) for each view
    mean_lid = rows.local_slice(torch.stack(scores).mean(0))  # (b,)
    if levels is None or not _enough(all_labels, config):
        terms = _clean_terms(torch.ones_like(mean_lid), trained, labels, config)
        return Step(terms, {}, mean_lid, None, trained, scored)
    places = [
        rows.local_slice(position(score, score, config.low_quantile, levels.weight))
        for score in scores
    ]
    clean, hard, noisy = split(places[0], places[-1])
    terms = _clean_terms(clean, trained, labels, config)
    if config.hard_loss:
        terms |= _hard_terms(hard, trained, labels, config)
    if config.noisy_loss:
        terms |= _noisy_terms(noisy, gen, dis, views[:2], trained, labels, config)
    weights = {"weight_clean": clean.mean(), "weight_noisy": noisy.mean()}
    proposed = _propose(dis, scored, all_labels, config, levels.update, class_bias, rows)
    return Step(terms, weights, mean_lid, proposed, trained, scored)


def judge(
    gen: nn.Module, dis: LidDis, views: Sequence[Tensor], labels: Tensor, other: Tensor
) -> Judged:
    """Send views through both subnets, all views as one batch so that BatchNorm sees all rows.

    Args:
        gen: LID-gen.
        dis: LID-dis.
        views: Views of the rows (b, ...).
        labels: Labels now (b,).
        other: A random other label for each row (b,).
    """
    x = torch.cat(list(views))  # (views x b, ...)
    features = dis.encode(x).chunk(len(views))
    z, of_labels = zip(*(dis.judge(f, labels) for f in features), strict=True)
    _, of_other = zip(*(dis.judge(f, other) for f in features), strict=True)
    return Judged(gen(x).chunk(len(views)), features, z, of_labels, of_other)


@torch.no_grad()
def observed_scores(
    step: Step,
    dis: LidDis,
    labels: Tensor,
    observed: Tensor,
    config: CoLafierConfig,
    rows: RowExchange = ONE_PROCESS,
) -> Tensor:
    """LID of the rows with their observed labels, among the rows with the labels of now (b,).

    Args:
        step: The step of this batch.
        dis: LID-dis.
        labels: Labels now (b,).
        observed: Observed labels (b,).
        config: Hyper-parameters.
        rows: How several processes share the batch.
    """
    all_observed, all_labels = rows.all_gather(observed), rows.all_gather(labels)  # (all b,)
    all_scores = rows.all_gather(step.lid)  # (all b,) right where the label has not moved
    moved = (all_observed != all_labels).nonzero()[:, 0]  # (m,)
    if config.joined_views:  # those scores have neighbors in both views
        moved = torch.arange(len(all_observed), device=observed.device)
    k = neighbors(all_observed, all_labels, config.neighbors)[moved]  # (m,)
    scores = []
    for features, z in zip(step.scored.features, step.scored.z, strict=True):
        z_observed = rows.all_gather(dis.judge(features, observed)[0])  # (all b, d)
        scores.append(lid(z_observed[moved], k, rows.all_gather(z), moved))
    return rows.local_slice(all_scores.index_put((moved,), torch.stack(scores).mean(0)))


def _label_scores(
    scored: Judged, all_labels: Tensor, config: CoLafierConfig, rows: RowExchange
) -> list[Tensor]:
    """LID of all processes' rows with their labels, one (all b,) tensor for each view."""
    among = all_labels.repeat(len(scored.z)) if config.joined_views else all_labels
    k = neighbors(all_labels, among, config.neighbors)  # (all b,)
    return view_scores([rows.all_gather(z.detach()) for z in scored.z], k, config.joined_views)


def _enough(all_labels: Tensor, config: CoLafierConfig) -> bool:
    """Whether a batch is large enough for LID to mean something."""
    k = neighbors(all_labels, all_labels, config.neighbors)
    return len(all_labels) >= int(k.median()) + 2


def _clean_terms(weight: Tensor, judged: Judged, labels: Tensor, config: CoLafierConfig) -> Terms:
    of_dis = losses.clean(weight, judged.dis, labels, judged.dis_other, config.other_weight)
    return {"clean_gen": losses.clean(weight, judged.gen, labels), "clean_dis": of_dis}


def _hard_terms(weight: Tensor, judged: Judged, labels: Tensor, config: CoLafierConfig) -> Terms:
    of_dis = losses.hard(weight, judged.dis, labels, judged.dis_other, config.other_weight)
    return {"hard_gen": losses.hard(weight, judged.gen, labels), "hard_dis": of_dis}


def _noisy_terms(
    weight: Tensor,
    gen: nn.Module,
    dis: LidDis,
    views: Sequence[Tensor],
    judged: Judged,
    labels: Tensor,
    config: CoLafierConfig,
) -> Terms:
    """Noisy losses of both subnets; `mix_share` says how many of the views are mixed."""
    of_gen = torch.zeros_like(weight)  # (b,)
    of_dis = torch.zeros_like(weight)  # (b,)
    for x, drawn, counts in drawn_views(views, weight, config.mix_share):
        mixed = mix(x, config.mix_alpha)
        own = labels[drawn]
        targets = (own, own[mixed.partner], mixed.keep)
        soft = mixed_labels(own, mixed, dis.num_classes)
        gen_rows = losses.mixed(gen(mixed.x), *targets)
        dis_rows = losses.mixed(dis.judge(dis.encode(mixed.x), soft)[1], *targets)
        of_gen = of_gen.index_add(0, drawn, counts * gen_rows)
        of_dis = of_dis.index_add(0, drawn, counts * dis_rows)
    apart = losses.consistency(judged.dis, judged.dis_other, config.consistency_on)  # (b,)
    return {
        "noisy_gen": losses.noisy(weight, of_gen),
        "noisy_dis": losses.noisy(weight, of_dis, apart, config.consistency_weight),
    }


@torch.no_grad()
def _propose(
    dis: LidDis,
    scored: Judged,
    all_labels: Tensor,
    config: CoLafierConfig,
    level: float,
    class_bias: Tensor | float,
    rows: RowExchange,
) -> Tensor:
    """Labels for the next epoch (b,): LID-gen's prediction where every view supports it."""
    views = []
    for logits, of_labels, features, z in zip(
        scored.gen, scored.dis, scored.features, scored.z, strict=True
    ):
        p = (logits + class_bias).softmax(1)  # (b, c)
        prediction = p.argmax(1)  # (b,)
        judged_with = p if config.soft_prediction else prediction
        z_prediction, of_prediction = dis.judge(features, judged_with)
        all_prediction = rows.all_gather(prediction)  # (all b,)
        both = torch.cat([all_labels, all_prediction])  # (2 all b,)
        counts = [neighbors(some, both, config.neighbors) for some in (all_labels, all_prediction)]
        scores = union_scores(rows.all_gather(z), rows.all_gather(z_prediction), *counts)
        label_apart = rows.all_gather(difference(p, of_labels.softmax(1)))  # (all b,)
        prediction_apart = rows.all_gather(difference(p, of_prediction.softmax(1)))  # (all b,)
        apart = (label_apart, prediction_apart)
        views.append(candidate(scores, apart, all_prediction, config.low_quantile, level))
    return rows.local_slice(decide(views, all_labels, config.threshold))
