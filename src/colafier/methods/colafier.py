"""CoLafier, Zhang, Hu and Rundensteiner, SDM 2024: two subnets guided by LID purify the labels.

LID-dis judges a row with a label, LID-gen classifies the row; both see two views of it. LID scores
weight their losses, and LID with the subnets' difference moves labels from epoch to epoch.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from colafier._validation import Range, within
from colafier.core import losses, safeguards
from colafier.core.config import CHOICE_NAMES, choose
from colafier.core.functional import draw_other
from colafier.core.lid import lid, reach
from colafier.core.mixing import drawn_views, mix, mixed_labels
from colafier.core.relabel import (
    ClassPriorFloor,
    RelabelPatience,
    candidate,
    decide,
    difference,
    union_scores,
)
from colafier.core.schedules import cosine, ramp, scaled
from colafier.core.subnets import LidDis, LidGen
from colafier.core.weights import position, split, view_scores
from colafier.methods._row_history import RowHistory
from colafier.methods.contract import (
    Batch,
    Engine,
    MakeNet,
    MakeOptimizer,
    Method,
    Pass,
    Passes,
    Purified,
    Terms,
    TrainSet,
)
from colafier.methods.row_table import RowTable
from colafier.nets.averaged import Averaged

AUTHORS_EPOCHS = 200
VOTERS = (
    "LID-gen, weak view",
    "LID-gen, strong view",
    "LID-dis, weak view",
    "LID-dis, strong view",
)


@dataclass(frozen=True)
class _Seen:
    """What both subnets say about the rows of a batch, a tensor for each view."""

    gen: tuple[Tensor, ...]  # logits of LID-gen (b, c)
    features: tuple[Tensor, ...]  # of LID-dis (b, d)
    z: tuple[Tensor, ...]  # with the label (b, d)
    dis: tuple[Tensor, ...]  # logits of LID-dis with the label (b, c)
    dis_other: tuple[Tensor, ...]  # and with the wrong label (b, c)


class CoLafier(Method):
    """Two subnets on two views; LID weights their losses and, with their difference, moves labels.

    Args:
        variant: `paper`, `authors` or `adaptive` (ours); see `colafier.core.config`.
        warmup: Epochs of plain training, T_0; by default scaled from 15 in 200.
        ramp: Epochs in which the upper quantiles rise, tau; by default scaled from 30 in 200.
        other_weight: Weight of the wrong-label terms, lambda*.
        consistency_weight: lambda_cons.
        low_quantile: Level of the lower quantiles, epsilon_low.
        threshold: Reliability that a prediction needs, epsilon_k.
        single_view: Ablation: weights and updates from the original rows, so no hard weight.
        hard_loss: Whether the hard loss is there (ablation).
        noisy_loss: Whether the noisy loss is there (ablation).
        neighbors: This and all that follow: a single choice other than the variant's.
    """

    reference = (
        "Zhang, Hu, Rundensteiner: CoLafier: Collaborative noisy label purifier with local "
        "intrinsic dimensionality guidance, SDM"
    )
    year = 2024
    num_nets = 2

    def __init__(
        self,
        *,
        variant: Literal["adaptive", "authors", "paper"] = "adaptive",
        warmup: Annotated[int, Range(0)] | None = None,
        ramp: Annotated[int, Range(1)] | None = None,
        other_weight: Annotated[float, Range(0)] = 0.5,
        consistency_weight: Annotated[float, Range(0)] = 10.0,
        low_quantile: Annotated[float, Range(0, 1)] = 0.001,
        threshold: Annotated[float, Range()] = 0.1,
        single_view: bool = False,
        hard_loss: bool = True,
        noisy_loss: bool = True,
        neighbors: Annotated[int, Range(0)] | None = None,
        joined_views: bool | None = None,
        soft_prediction: bool | None = None,
        weight_quantile: Annotated[float, Range(0, 1)] | None = None,
        update_quantile: Annotated[float, Range(0, 1)] | None = None,
        mix_alpha: Annotated[float, Range(0, low_open=True)] | None = None,
        consistency_on: Literal["logits", "probabilities"] | None = None,
        embedding_scale: Annotated[float, Range(0)] | None = None,
        mix_share: Annotated[float, Range(0, 1)] | None = None,
        class_prior_floor: Annotated[float, Range(0, 1)] | None = None,
        patience: Annotated[int, Range(1)] | None = None,
        average: Annotated[float, Range(0)] | None = None,
        rate_floor: Annotated[float, Range(0, 1)] | None = None,
        holdout: bool | None = None,
    ) -> None:
        arguments = dict(locals())
        super().__init__()
        self.choices = choose(variant, {name: arguments[name] for name in CHOICE_NAMES})
        within(low_quantile, 0, 1, "low_quantile")
        within(warmup, 0, inf, "warmup")
        within(ramp, 1, inf, "ramp")
        self.warmup = warmup
        self.ramp = ramp
        self.other_weight = other_weight
        self.consistency_weight = consistency_weight
        self.low_quantile = low_quantile
        self.threshold = threshold
        self.single_view = single_view
        self.hard_loss = hard_loss
        self.noisy_loss = noisy_loss
        self.views = ("weak", "strong", "plain") if single_view else ("weak", "strong")

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both subnets, and what is kept for each row."""
        self.epochs = epochs
        self.num_classes = train.num_classes
        self.warmup_epochs = scaled(15, epochs, AUTHORS_EPOCHS, self.warmup)
        self.ramp_epochs = scaled(30, epochs, AUTHORS_EPOCHS, self.ramp)
        self.gen = LidGen(make_net())
        self.dis = LidDis(make_net().backbone, self.num_classes, self.choices.embedding_scale)
        self.averaged = Averaged(self.gen, 0.0) if self.choices.average else None
        known = train.observed[train.labeled]
        self.class_prior_floor = ClassPriorFloor(
            known, self.num_classes, self.choices.class_prior_floor
        )
        self.reset_beliefs(train)

    def reset_beliefs(self, train: TrainSet) -> None:
        """Believe the observed labels again: nets that go on with moved ones would confirm them."""
        self.labels = RowTable(train.observed, trusted=train.trusted)
        self.allowed = RowTable(train.observed)  # the class that the gate lets a label move to
        self.patience = RelabelPatience(train.observed, self.choices.patience)
        self.history = RowHistory(train.observed, len(VOTERS))

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """One for each subnet: their losses touch no common parameter."""
        return {"gen": make(self.gen.parameters()), "dis": make(self.dis.parameters())}

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """One walk over the labeled rows that are not held out; these open or close the gate."""
        rows = safeguards.trained_on(train) if self.choices.holdout else None
        floor = self.choices.rate_floor
        own = None if floor == 1 else cosine(epoch, self.epochs, floor)
        yield Pass(rows, lr_scale=own)
        if epoch + 1 >= self.warmup_epochs:
            self._survey(train)

    def loss(self, batch: Batch) -> Terms:
        """Both subnets' clean, hard and noisy losses, Eq. 3.28-3.29; stages the label update."""
        labels = self.labels[batch.index]  # (b,)
        wrong = self.local_slice(draw_other(self.all_gather(labels), self.num_classes))  # (b,)
        seen = self._look(batch.views[:2], labels, wrong)
        weighing = seen if not self.single_view else self._glance(batch.views[2], labels, wrong)
        all_labels = self.all_gather(labels)
        scores = self._scores(weighing, all_labels)
        self._remember(batch, labels, scores, seen, weighing)
        if batch.epoch < self.warmup_epochs or not self._enough(all_labels):
            whole = torch.ones(len(batch), device=labels.device)
            return self._clean(whole, seen, labels)
        level = self._level(batch.epoch, self.choices.weight_quantile)
        places = [self.local_slice(position(s, s, self.low_quantile, level)) for s in scores]
        clean, hard, noisy = split(places[0], places[-1])
        terms = self._clean(clean, seen, labels)
        if self.hard_loss:
            terms["hard_gen"] = losses.hard(hard, seen.gen, labels)
            terms["hard_dis"] = losses.hard(
                hard, seen.dis, labels, seen.dis_other, self.other_weight
            )
        if self.noisy_loss:
            terms |= self._noisy(noisy, batch, seen, labels)
        self._move_labels(batch, labels, weighing, all_labels)
        return terms | {"weight_clean": clean.mean(), "weight_noisy": noisy.mean()}

    def update(self, batch: Batch, engine: Engine) -> Terms:
        """One step of both subnets; the averaged copy follows."""
        terms = super().update(batch, engine)
        if self.averaged is not None:
            epoch_steps = int(self.averaged.steps) / max(batch.progress, 1e-9)  # on average so far
            self.averaged.decay = 1 - 1 / max(self.choices.average * epoch_steps, 1)
            self.averaged.follow(self.gen)
        return terms

    def deployed(self) -> nn.Module:
        """LID-gen, averaged over the steps and with rare classes lifted if so chosen."""
        gen = self.gen if self.averaged is None else self.averaged.net
        return nn.Sequential(gen, self.class_prior_floor) if self.choices.class_prior_floor else gen

    def resolved(self) -> dict[str, Any]:
        """Warm-up and ramp in epochs of this run, and the choices of the variant."""
        return {"warmup": self.warmup_epochs, "ramp": self.ramp_epochs, **asdict(self.choices)}

    def rows_now(self) -> dict[str, Tensor]:
        """Labels, and LID of the labels that this epoch was trained with."""
        history = self.history
        now = {"labels": self.labels, "judged": history.judged, "lid": history.lid}
        return {name: table.values for name, table in now.items()}

    def purify(self, train: TrainSet, probabilities: Tensor) -> Purified:
        """Labels that stand the test of held-out rows; quality and LID of the observed labels."""
        labels = self.labels.values  # (n,)
        observed = train.observed.to(labels.device)
        known = observed.clamp(min=0)  # rows without a label hold -1
        p = probabilities.to(labels.device)  # (n, c)
        of_observed = p.gather(1, known[:, None])[:, 0]  # (n,)
        quality = torch.where(self.history.seen, self.history.mean_observed(), of_observed).clamp(
            0, 1
        )
        columns = {"lid": self.history.mean_lid()}
        votes = dict(zip(VOTERS, self.history.votes.values.long().T, strict=True))
        trajectory = self.history.trajectory()
        if not self.choices.holdout:
            return Purified(labels, quality, columns, votes=votes, trajectory=trajectory)
        evidence = safeguards.gather_evidence(train, p)
        settled = safeguards.settle(evidence, p, known, labels.clamp(min=0))
        fixed = (observed < 0) | train.trusted.to(labels.device)
        settled = torch.where(fixed, observed, settled)
        return Purified(settled, quality, columns, asdict(evidence), votes, trajectory)

    def _survey(self, train: TrainSet) -> None:
        """Predict all rows: how far rare classes must be lifted, and where labels may move to."""
        if not (self.choices.class_prior_floor or self.choices.holdout):
            return
        p = train.predict(self.deployed()).to(self.labels.values.device)  # (n, c)
        logits = (
            p.clamp(min=1e-12).log() - self.class_prior_floor.bias
        )  # (n, c), but for a constant
        self.class_prior_floor.fit(logits[train.labeled.to(p.device)])
        if self.choices.holdout:
            p = self.class_prior_floor(logits).softmax(1)
            observed = train.observed.to(p.device).clamp(min=0)
            evidence = safeguards.gather_evidence(train, p)
            self.allowed.values.copy_(safeguards.settle(evidence, p, observed, observed))

    def _look(self, views: Sequence[Tensor], labels: Tensor, wrong: Tensor) -> _Seen:
        """Send views through both subnets: one pass each, as one batch, so BatchNorm sees all."""
        x = torch.cat(list(views))
        features = self.dis.encode(x).chunk(len(views))
        z, dis = zip(*(self.dis.judge(f, labels) for f in features), strict=True)
        _, dis_other = zip(*(self.dis.judge(f, wrong) for f in features), strict=True)
        return _Seen(self.gen(x).chunk(len(views)), features, z, dis, dis_other)

    @torch.no_grad()
    def _glance(self, view: Tensor, labels: Tensor, wrong: Tensor) -> _Seen:
        return self._look([view], labels, wrong)

    @torch.no_grad()
    def _scores(self, seen: _Seen, all_labels: Tensor) -> list[Tensor]:
        """LID of all processes' rows with their labels, for each view."""
        joined = self.choices.joined_views
        among = all_labels.repeat(len(seen.z)) if joined else all_labels
        return view_scores([self.all_gather(z) for z in seen.z], self._k(all_labels, among), joined)

    @torch.no_grad()
    def _observed_scores(
        self, batch: Batch, labels: Tensor, seen: _Seen, scores: list[Tensor]
    ) -> Tensor:
        """LID of the rows with their observed labels, among the rows with the labels now (b,)."""
        observed, all_labels = self.all_gather(batch.y), self.all_gather(labels)
        all_scores = torch.stack(scores).mean(0)  # right for those whose label has not moved
        rows = (observed != all_labels).nonzero()[:, 0]  # (m,)
        if self.choices.joined_views:  # their scores come from another pool
            rows = torch.arange(len(observed), device=observed.device)
        k = self._k(observed, all_labels)[rows]
        moved = []
        for features, z in zip(seen.features, seen.z, strict=True):
            z_observed = self.all_gather(self.dis.judge(features, batch.y)[0])  # (all b, d)
            moved.append(lid(z_observed[rows], k, self.all_gather(z), rows))
        return self.local_slice(all_scores.index_put((rows,), torch.stack(moved).mean(0)))

    def _enough(self, all_labels: Tensor) -> bool:
        """Whether a batch is large enough for LID to mean something."""
        return len(all_labels) >= int(self._k(all_labels, all_labels).median()) + 2

    def _level(self, epoch: int, start: float) -> float:
        return ramp(epoch, self.warmup_epochs, self.ramp_epochs, start, 1.0)

    def _clean(self, weight: Tensor, seen: _Seen, labels: Tensor) -> Terms:
        dis = losses.clean(weight, seen.dis, labels, seen.dis_other, self.other_weight)
        return {"clean_gen": losses.clean(weight, seen.gen, labels), "clean_dis": dis}

    def _noisy(self, weight: Tensor, batch: Batch, seen: _Seen, labels: Tensor) -> Terms:
        """Noisy losses of both subnets; only a share of the views may be mixed, see `mix_share`."""
        gen_rows = torch.zeros_like(weight)
        dis_rows = torch.zeros_like(weight)
        for x, rows, counts in drawn_views(batch.views[:2], weight, self.choices.mix_share):
            mixed = mix(x, self.choices.mix_alpha)
            own = labels[rows]
            targets = (own, own[mixed.partner], mixed.keep)
            soft = mixed_labels(own, mixed, self.num_classes)
            gen = losses.mixed(self.gen(mixed.x), *targets)
            dis = losses.mixed(self.dis.judge(self.dis.encode(mixed.x), soft)[1], *targets)
            gen_rows = gen_rows.index_add(0, rows, counts * gen)
            dis_rows = dis_rows.index_add(0, rows, counts * dis)
        apart = losses.consistency(seen.dis, seen.dis_other, self.choices.consistency_on)
        return {
            "noisy_gen": losses.noisy(weight, gen_rows),
            "noisy_dis": losses.noisy(weight, dis_rows, apart, self.consistency_weight),
        }

    @torch.no_grad()
    def _remember(
        self, batch: Batch, labels: Tensor, scores: list[Tensor], seen: _Seen, weighing: _Seen
    ) -> None:
        """Running sums for `purify`, and this epoch's LID for the metrics."""
        lid_now = self.local_slice(torch.stack(scores).mean(0))  # (b,)
        p = torch.stack([g.softmax(1) for g in seen.gen]).mean(0)  # (b, c)
        of_observed = p.gather(1, batch.y[:, None])[:, 0]  # (b,)
        observed_lid = self._observed_scores(batch, labels, weighing, scores)
        self.history.write(batch.index, labels, lid_now, observed_lid, of_observed)
        done = batch.epoch / max(self.epochs, 1)
        self.history.note(batch.index, done, of_observed, [*seen.gen, *seen.dis])

    @torch.no_grad()
    def _move_labels(self, batch: Batch, labels: Tensor, seen: _Seen, all_labels: Tensor) -> None:
        """Stage the next epoch's labels: a move must be wanted for `patience` epochs in a row."""
        level = self._level(batch.epoch, self.choices.update_quantile)
        views = []
        for gen, dis, features, z in zip(seen.gen, seen.dis, seen.features, seen.z, strict=True):
            p = self.class_prior_floor(gen).softmax(1)  # (b, c)
            prediction = p.argmax(1)  # (b,)
            z_prediction, dis_prediction = self.dis.judge(
                features, p if self.choices.soft_prediction else prediction
            )
            all_prediction = self.all_gather(prediction)
            both = torch.cat([all_labels, all_prediction])
            k, k_prediction = self._k(all_labels, both), self._k(all_prediction, both)
            scores = union_scores(
                self.all_gather(z), self.all_gather(z_prediction), k, k_prediction
            )
            differences = (difference(p, dis.softmax(1)), difference(p, dis_prediction.softmax(1)))
            gathered = (self.all_gather(differences[0]), self.all_gather(differences[1]))
            views.append(candidate(scores, gathered, all_prediction, self.low_quantile, level))
        new = self.local_slice(decide(views, all_labels, self.threshold))
        if self.choices.holdout:
            new = torch.where(new == self.allowed[batch.index], new, labels)
        self.labels.write(batch.index, self.patience.settle(batch.index, labels, new))

    def _k(self, labels: Tensor, reference_labels: Tensor) -> Tensor:
        """Number of neighbors of each row (b,): the fixed one, or by label counts."""
        if self.choices.neighbors:
            return torch.full_like(labels, self.choices.neighbors)
        return reach(labels, reference_labels)
