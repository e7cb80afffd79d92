"""DivideMix: each net splits the rows for the other, which treats doubtful rows as unlabeled.

The split fits a mixture of two Gaussians to the losses; training on both parts is MixMatch.
"""

import warnings
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from colafier.core.functional import cross_entropy
from colafier.core.mixing import mixup
from colafier.core.schedules import scaled
from colafier.methods._class_prior import prior_loss
from colafier.methods._two_nets import TAGS, InTurns
from colafier.methods.contract import (
    Batch,
    MakeNet,
    Pass,
    Passes,
    Range,
    Terms,
    TrainSet,
)
from colafier.methods.row_table import RowTable
from colafier.nets.inference import evaluating

AUTHORS_EPOCHS = 300


class DivideMix(InTurns):
    """Two nets with semi-supervised training: only rows that the other net finds clean have labels.

    Args:
        warmup: Epochs of plain training; by default scaled from 10 in 300.
        ramp: Epochs after it in which the unlabeled loss rises; by default scaled from 16 in 300.
        threshold: Probability of being clean above which a row counts as labeled, tau.
        temperature: Temperature that sharpens the targets, T.
        alpha: Parameter of Beta(alpha, alpha), from which the shares in a mix are drawn.
        unlabeled_weight: Weight of the unlabeled loss, lambda_u.
        penalty: Weight of the confidence penalty in the warm-up.
        batch_size: Labeled rows in a step after the warm-up, with as many unlabeled ones.

    Note:
        The authors set lambda_u to 0 for asymmetric and 20 % symmetric noise, to 25 for more noise
        (the default of their code) and to 50 for 90 %. They use the penalty for asymmetric noise
        only, where losses would not form two groups without it. Both defaults here are meant for
        noise that depends on the class or the row. What the authors do at 90 % noise (losses
        averaged over epochs, a threshold of 0.6) is left out. They train with SGD and divide the
        rate by 10 after half of the run. Predictions for targets are made in eval mode. Rows
        without a label join the unlabeled ones. If hardly any label is found clean, those most
        likely to be clean are added, so that there is something to train on. In short runs on few
        rows the scaled warm-up is a handful of steps; set a longer one.
    """

    reference = (
        "Li, Socher, Hoi: DivideMix: Learning with noisy labels as semi-supervised learning, ICLR"
    )
    year = 2020
    views = ("weak", "weak")

    def __init__(
        self,
        *,
        warmup: Annotated[int, Range(0)] | None = None,
        ramp: Annotated[int, Range(1)] | None = None,
        threshold: Annotated[float, Range(0, 1)] = 0.5,
        temperature: Annotated[float, Range(1e-3)] = 0.5,
        alpha: Annotated[float, Range(1e-3)] = 4.0,
        unlabeled_weight: Annotated[float, Range(0)] = 0.0,
        penalty: Annotated[float, Range(0)] = 1.0,
        batch_size: Annotated[int, Range(1)] = 64,
    ) -> None:
        super().__init__()
        self.warmup = warmup
        self.ramp = ramp
        self.threshold = threshold
        self.temperature = temperature
        self.alpha = alpha
        self.unlabeled_weight = unlabeled_weight
        self.penalty = penalty
        self.batch_size = batch_size

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Two nets, and the probability by each of them that the observed labels are clean."""
        super().setup(make_net, train, epochs)
        self.num_classes = train.num_classes
        self.warmup_epochs = scaled(10, epochs, AUTHORS_EPOCHS, self.warmup)
        self.ramp_epochs = scaled(16, epochs, AUTHORS_EPOCHS, self.ramp)
        self.clean = RowTable(torch.ones(train.n, 2))  # probability, from each net's losses

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """A pass for each net; after the warm-up both split the rows before either one trains."""
        if epoch < self.warmup_epochs:
            for tag in TAGS:
                yield Pass(tag=tag, optimizers=(tag,))
            return
        for number, net in enumerate(self.net):
            self.clean.values[:, number] = self._judge(net, train).to(self.clean.values.device)
        for number, tag in enumerate(TAGS):
            labeled = self._labeled(self.clean.values[:, 1 - number].cpu(), train)
            yield Pass(
                labeled.nonzero()[:, 0],
                paired=(~labeled).nonzero()[:, 0],
                tag=tag,
                optimizers=(tag,),
                batch_size=self.batch_size,
            )

    def loss(self, batch: Batch) -> Terms:
        """MixMatch of labeled and unlabeled rows; plain training in the warm-up."""
        number = TAGS.index(batch.tag)
        if batch.epoch < self.warmup_epochs:
            return self._plain(self.net[number](batch.x), batch.y)
        x = list(batch.views)
        targets = [self._refined(batch, number)] * len(x)  # each (b, c)
        if batch.paired is not None:
            x += batch.paired.views
            targets += [self._predicted(batch.paired)] * len(batch.paired.views)
        mixed = mixup(torch.cat(x), self.alpha)
        own = torch.cat(targets)  # (m, c)
        target = mixed.keep * own + (1 - mixed.keep) * own[mixed.partner]
        logits = self.net[number](mixed.x)  # (m, c)
        p = logits.softmax(1)
        first = len(batch) * len(batch.views)  # rows of the labeled part
        terms = {
            "labeled": cross_entropy(logits[:first], target[:first]).mean(),
            "prior": prior_loss(self, p),
        }
        if batch.paired is not None:
            apart = (p[first:] - target[first:]).square().mean()
            terms["unlabeled"] = self.weight_at(batch.progress) * apart
        return terms

    def weight_at(self, progress: float) -> float:
        """lambda_u at this point of training: it rises from 0 after the warm-up."""
        done = (progress - self.warmup_epochs) / self.ramp_epochs
        return self.unlabeled_weight * min(max(done, 0.0), 1.0)

    def resolved(self) -> dict[str, Any]:
        """Warm-up and ramp in epochs of this run."""
        return {"warmup": self.warmup_epochs, "ramp": self.ramp_epochs}

    def rows_now(self) -> dict[str, Tensor]:
        """Mean probability by both nets that the observed labels are wrong."""
        return {"doubt": 1 - self.clean.values.mean(1)}

    def _plain(self, logits: Tensor, y: Tensor) -> Terms:
        """Cross entropy, and a penalty on confidence, which would make all losses small."""
        log_p = logits.log_softmax(1)  # (b, c)
        negative_entropy = (log_p.exp() * log_p).sum(1)  # (b,)
        ce = cross_entropy(logits, y).mean()
        return {"ce": ce, "penalty": self.penalty * negative_entropy.mean()}

    def _judge(self, net: nn.Module, train: TrainSet) -> Tensor:
        """Probability that each observed label is clean, from the net's losses (n,).

        It is 0 for rows without a label and 1 for rows that a person decided.
        """
        p = train.predict(net)  # (n, c)
        losses = -p.gather(1, train.observed.clamp(min=0)[:, None])[:, 0].clamp(min=1e-12).log()
        clean = torch.zeros(train.n)
        clean[train.labeled] = small_component(losses[train.labeled])
        clean[train.trusted & train.labeled] = 1.0
        return clean

    def _labeled(self, clean: Tensor, train: TrainSet) -> Tensor:
        """Mask of the rows that keep their label (n,): at least enough for one step."""
        labeled = train.labeled & (clean > self.threshold)
        enough = min(self.batch_size, int(train.labeled.sum()))
        if int(labeled.sum()) < enough:
            rows = train.labeled.nonzero()[:, 0]  # (m,)
            rows = rows[torch.randperm(len(rows))]  # break ties at random, not by class
            labeled[rows[clean[rows].topk(enough).indices]] = True
        return labeled

    def _refined(self, batch: Batch, number: int) -> Tensor:
        """Observed labels, mixed with predictions by their probability of being clean (b, c)."""
        clean = self.clean[batch.index][:, 1 - number, None]  # (b, 1)
        observed = F.one_hot(batch.y, self.num_classes)  # (b, c)
        prediction = self._mean_prediction(batch, [self.net[number]])
        return self._sharpen(clean * observed + (1 - clean) * prediction)

    def _predicted(self, batch: Batch) -> Tensor:
        """Sharpened mean prediction of both nets (b, c)."""
        return self._sharpen(self._mean_prediction(batch, list(self.net)))

    def _mean_prediction(self, batch: Batch, nets: list[nn.Module]) -> Tensor:
        """Mean probabilities over nets and views (b, c)."""
        with evaluating(self.net):
            predictions = [net(view).softmax(1) for net in nets for view in batch.views]
        return torch.stack(predictions).mean(0)

    def _sharpen(self, p: Tensor) -> Tensor:
        """Probabilities moved toward 0 and 1, by the temperature (b, c)."""
        powers = p ** (1 / self.temperature)
        return powers / powers.sum(1, keepdim=True)


def small_component(losses: Tensor) -> Tensor:
    """Probability that a loss belongs to the lower of two Gaussians (m,); 1 if all are equal."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture  # slow to import

    spread = losses.max() - losses.min()
    if not torch.isfinite(spread) or spread < 1e-6:
        return torch.ones_like(losses)
    x = ((losses - losses.min()) / spread)[:, None].double().numpy()  # (m, 1)
    mixture = GaussianMixture(2, tol=1e-2, max_iter=10, reg_covar=5e-4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the authors stop early
        posterior = mixture.fit(x).predict_proba(x)  # (m, 2)
    return torch.from_numpy(posterior[:, mixture.means_[:, 0].argmin()]).float()
