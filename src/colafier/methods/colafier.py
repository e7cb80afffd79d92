"""CoLafier, Zhang, Hu and Rundensteiner, SDM 2024: two subnets guided by LID purify the labels.

LID-dis judges a row with a label, LID-gen classifies the row; both see two views of it. LID scores
weight their losses, and LID with the subnets' difference moves labels from epoch to epoch. On rows
that are vectors, the default ends with epochs of our own: LID-gen is trained on soft labels, the
posterior of each row's class.
"""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from colafier.core import losses
from colafier.core.config import RUN_DEFAULTS, choose, with_choices
from colafier.core.holdout_check import LAST_LOOK
from colafier.core.safeguards import Safeguards, no_streak
from colafier.core.step import RowExchange, Step, colafier_step, observed_scores
from colafier.core.subnets import LidDis, LidGen
from colafier.evidence import out_of_fold
from colafier.evidence.config import EvidenceConfig
from colafier.evidence.labels import Labels
from colafier.evidence.noise_model import Posterior, posterior
from colafier.methods import _holdout
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
    RowTable,
    Terms,
    TrainSet,
)

VOTERS = (
    "LID-gen, weak view",
    "LID-gen, strong view",
    "LID-dis, weak view",
    "LID-dis, strong view",
)


class CoLafier(Method):
    """Two subnets on two views; LID weights their losses and, with their difference, moves labels.

    Args:
        variant: `paper`, `authors` or `adaptive` (ours); see `colafier.core.config`.
        warmup: Epochs of plain training, T_0; by default scaled from 15 in 200.
        ramp: Epochs in which the upper quantiles rise, tau; by default scaled from 30 in 200.
        other_weight: Weight of the terms with a random other label, lambda*.
        consistency_weight: Weight of the consistency loss, lambda_cons.
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
    has_posterior: Tensor  # whether the soft labels of the last epochs have been made

    @with_choices
    def __init__(self, **choices: Any) -> None:
        super().__init__()
        self.config = choose(**choices)
        self.run_defaults = RUN_DEFAULTS[choices.get("variant", "adaptive")]
        self.views = self.config.views

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Both subnets, the safeguards, and what is kept for each row."""
        self.epochs = epochs
        # only vectors have out-of-fold predictions; with them, no row has to be held out
        vectors = len(train.row_shape) == 1
        self.posterior_start = self.config.posterior_start(epochs) if vectors else epochs
        holdout = self.config.holdout and not vectors
        self.gen = LidGen(make_net())
        self.dis = LidDis(make_net().backbone, train.num_classes, self.config.embedding_scale)
        known = train.observed[train.labeled]
        self.guards = Safeguards(self.config, self.gen, known, train.num_classes, holdout)
        softened = train.n if vectors and self.config.posterior_share else 0
        self.targets = RowTable(torch.zeros(softened, train.num_classes))  # the soft labels
        self.history = RowHistory(train.observed, len(VOTERS))
        self.reset_beliefs(train)

    def reset_beliefs(self, train: TrainSet) -> None:
        """Believe the observed labels again; moved labels would only be confirmed by these nets.

        The holdout check stays as it is: once it has ended, its rows have been trained on.
        """
        self.labels = RowTable(train.observed, trusted=train.trusted)
        self.streak = RowTable(no_streak(train.observed))
        self.register_buffer("has_posterior", torch.zeros((), dtype=torch.bool))
        original = train.original
        decided = train.trusted if original is None else train.observed != original  # (n,)
        self.history.forget(decided, train.observed)

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """One for each subnet: their losses have no parameter in common."""
        return {"gen": make(self.gen.parameters()), "dis": make(self.dis.parameters())}

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """One pass over the labeled rows that are not held out, then the safeguards look at it.

        In the last epochs on vectors, one pass of LID-gen over all labeled rows with soft labels.
        """
        if epoch >= self.posterior_start:
            if not self.has_posterior:  # also where a finished run continues in these epochs
                self._take_posterior(train, train.predict(self.deployed()))
            yield Pass(optimizers=("gen",))
            return
        if epoch >= LAST_LOOK * self.epochs:
            self.guards.check.end()
        yield Pass(_holdout.trained_on(train, self.guards.check))
        if epoch + 1 >= self.config.warmup_epochs(self.epochs):
            self._survey(train)

    def loss(self, batch: Batch) -> Terms:
        """The terms of both subnets; stages the label update. On soft labels, that of LID-gen."""
        if batch.epoch >= self.posterior_start:
            return self._soft_loss(batch)
        labels = self.labels[batch.index]  # (b,)
        step = colafier_step(
            self.gen,
            self.dis,
            batch.views,
            labels,
            self.config,
            self.config.levels(batch.epoch, self.epochs),
            self.guards.floor.bias,
            self._exchange(),
        )
        self._remember(batch, labels, step)
        if step.proposed is not None:
            index = batch.index
            settled, streak = self.guards.relabel(labels, step.proposed, self.streak[index])
            self.labels.write(index, settled)
            self.streak.write(index, streak)
        return step.terms | step.weights

    def update(self, batch: Batch, engine: Engine) -> Terms:
        """One step of both subnets; the average of LID-gen follows."""
        terms = super().update(batch, engine)
        self.guards.average.follow(self.gen, batch.progress)
        return terms

    def deployed(self) -> nn.Module:
        """LID-gen, averaged and with rare classes lifted if so chosen."""
        return self.guards.deploy(self.gen)

    def resolved(self) -> dict[str, Any]:
        """The config, with warm-up and ramp in epochs of this run."""
        warmup, ramp = (
            f(self.epochs) for f in (self.config.warmup_epochs, self.config.ramp_epochs)
        )
        return asdict(self.config) | {"warmup": warmup, "ramp": ramp}

    def rows_now(self) -> dict[str, Tensor]:
        """Labels, and LID of the labels that this epoch was trained with."""
        history = self.history
        now = {"labels": self.labels, "judged": history.judged, "lid": history.lid}
        return {name: table.values for name, table in now.items()}

    def purify(self, train: TrainSet, probabilities: Tensor) -> Purified:
        """The labels that are believed at the end; quality and LID of the observed labels."""
        p = probabilities.cpu()  # (n, c)
        if self.posterior_start < self.epochs:
            quality = self._take_posterior(train, p).quality  # (n,)
        else:
            known = train.observed.clamp(min=0)  # (n,) rows without a label hold -1
            quality = self.history.quality(p.gather(1, known[:, None])[:, 0])
        fixed = train.trusted | ~train.labeled
        return Purified(
            torch.where(fixed, train.observed, self.labels.values.cpu()),
            quality,
            {"lid": self.history.mean_lid()},
            self.guards.check.figures(),
            dict(zip(VOTERS, self.history.votes.values.long().T, strict=True)),
            self.history.trajectory(),
        )

    def _soft_loss(self, batch: Batch) -> Terms:
        """Cross entropy of LID-gen with the soft labels, in both views."""
        views = self.gen(torch.cat(batch.views[:2])).chunk(2)
        return {"soft_gen": losses.soft(views, self.targets[batch.index])}

    def _take_posterior(self, train: TrainSet, p: Tensor) -> Posterior:
        """Make the soft labels, and believe the likeliest class of each row.

        They are the posterior of the noise model, given the predictions of LID-gen, the out-of-fold
        predictions and the observed labels. Where the case against an observed label is weak, it
        stays as it is: otherwise LID-gen would learn to contradict clean labels.

        Args:
            train: The training rows, which are vectors.
            p: What LID-gen predicts (n, c).
        """
        labels = Labels(train.observed, train.original, train.trusted)
        unseen = train.out_of_fold()  # (n, c)
        assert unseen is not None  # the rows are vectors
        config = EvidenceConfig()
        found = posterior(out_of_fold.pooled(p, unseen, labels, config.out_of_fold_weight), labels)
        differs = found.probabilities.argmax(1) != train.observed  # (n,)
        weak = differs & labels.doubtful & ~out_of_fold.may_move(found, p, unseen, labels, config)
        soft = found.probabilities.clone()  # (n, c)
        soft[weak] = one_hot(train.observed[weak], soft.shape[1]).to(soft)
        self.targets.values.copy_(soft)
        self.labels.values.copy_(soft.argmax(1))
        self.has_posterior.fill_(True)
        return found

    @torch.no_grad()
    def _remember(self, batch: Batch, labels: Tensor, step: Step) -> None:
        """Running sums for `purify`, and this epoch's LID for the metrics."""
        observed_lid = observed_scores(
            step, self.dis, labels, batch.y, self.config, self._exchange()
        )
        p = torch.stack([logits.softmax(1) for logits in step.trained.gen]).mean(0)  # (b, c)
        of_observed = p.gather(1, batch.y[:, None])[:, 0]  # (b,)
        self.history.write(batch.index, labels, step.lid, observed_lid, of_observed)
        done = batch.epoch / max(self.epochs, 1)
        votes = [*step.trained.gen, *step.trained.dis]
        self.history.note(batch.index, done, of_observed, votes)

    def _survey(self, train: TrainSet) -> None:
        """Predict rows for the safeguards: how far rare classes are lifted, whether labels move."""
        floor, check = self.guards.floor, self.guards.check
        self.guards.average.refresh(train.update_batch_norm)
        averaged = self.guards.average.deploy(self.gen)  # without the lift of rare classes
        if floor.surveys:
            p = train.predict(averaged)  # (n, c)
            floor.fit(p[train.labeled].clamp(min=1e-12).log().to(floor.bias.device))
        if not check.ended:
            train.update_batch_norm(self.dis)
            held, observed = _holdout.evidence(train, check)  # (m,), (m,)
            gen, dis = (train.predict(net, held) for net in (averaged, self.dis))
            check.look(gen, dis, observed)

    def _exchange(self) -> RowExchange:
        return RowExchange(self.all_gather, self.local_slice)
