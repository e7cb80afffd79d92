"""JointOptim: the net's predictions replace the labels; a new net then trains on them."""

from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from colafier.core.functional import cross_entropy
from colafier.core.schedules import scaled
from colafier.methods._class_prior import prior_loss
from colafier.methods._row_losses import WithRowLosses
from colafier.methods._soft_labels import purified
from colafier.methods.contract import (
    Batch,
    MakeNet,
    MakeOptimizer,
    Pass,
    Passes,
    Purified,
    Range,
    Terms,
    TrainSet,
)
from colafier.methods.row_table import RowTable

AUTHORS_EPOCHS = 320  # 200 of the first stage, 120 of the second


class JointOptim(WithRowLosses):
    """Weights and soft labels are optimized in turns; then a new net trains on the final labels.

    Args:
        prior_weight: Weight of the term for equal classes, alpha.
        entropy_weight: Weight of the entropy of each prediction, beta.
        label_start: Epochs before the labels are replaced; by default scaled from 70 in 320.
        first_stage: Epochs of the first stage; by default scaled from 200 in 320.
        window: Epochs of predictions that a label averages; by default scaled from 10 in 320.

    Note:
        The authors use SGD. In the first stage its rate is high and constant, and chosen for each
        kind of noise; in the second stage another rate falls to a tenth twice. Here both stages
        start from the run's rate. The default weights are theirs for 40 % asymmetric noise. In runs
        of less than 48 epochs the scaled window is one epoch; the authors' ten epochs would reach
        back to a net that knew little.
    """

    reference = "Tanaka et al.: Joint optimization framework for learning with noisy labels, CVPR"
    year = 2018
    can_warm_start = False  # stages and window are fitted to the length of the run

    observed: Tensor

    def __init__(
        self,
        *,
        prior_weight: Annotated[float, Range(0)] = 0.8,
        entropy_weight: Annotated[float, Range(0)] = 0.4,
        label_start: Annotated[int, Range(1)] | None = None,
        first_stage: Annotated[int, Range(1)] | None = None,
        window: Annotated[int, Range(1)] | None = None,
    ) -> None:
        super().__init__()
        self.prior_weight = prior_weight
        self.entropy_weight = entropy_weight
        self.label_start = label_start
        self.first_stage = first_stage
        self.window = window

    @classmethod
    def preparation(cls, epochs: int) -> tuple[int, dict[str, Any]]:
        """The first stage, with the epoch in which labels start to move in it."""
        authors = {"first_stage": 200, "label_start": 70, "window": 10}
        stage = {name: scaled(value, epochs, AUTHORS_EPOCHS) for name, value in authors.items()}
        return stage["first_stage"], stage

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """A net and a new one for later; for each row its soft label and latest predictions."""
        super().setup(make_net, train, epochs)
        self.epochs = epochs
        self.start = scaled(70, epochs, AUTHORS_EPOCHS, self.label_start)
        self.first_epochs = scaled(200, epochs, AUTHORS_EPOCHS, self.first_stage)
        self.slots = min(scaled(10, epochs, AUTHORS_EPOCHS, self.window), self.start)
        self.fresh = make_net().requires_grad_(False)
        observed = F.one_hot(train.observed.clamp(min=0), train.num_classes).float()  # (n, c)
        self.targets = RowTable(observed, trusted=train.trusted)
        self.history = RowTable(torch.zeros(train.n, self.slots, train.num_classes))
        self.register_buffer("observed", train.observed.clone(), persistent=False)

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """One, for the trained net; the new net only provides initial weights."""
        return {"net": make(self.net.parameters())}

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """One pass; the second stage starts with a new net, and its rate falls to a tenth twice."""
        if epoch < self.first_epochs:
            yield Pass(lr_scale=1.0)  # the method needs a high rate here
            return
        done = epoch - self.first_epochs
        if done == 0:
            self.net.load_state_dict(self.fresh.state_dict())
        third = 3 * done // (self.epochs - self.first_epochs)
        yield Pass(restart=("net",) if done == 0 else (), lr_scale=0.1**third)

    def loss(self, batch: Batch) -> Terms:
        """Cross entropy with the soft labels; in the first stage, two terms against collapse."""
        logits = self.net(batch.x)  # (b, c)
        targets = self.targets[batch.index]  # (b, c)
        self.row_losses.write(batch.index, cross_entropy(logits, batch.y))
        terms = {"ce": cross_entropy(logits, targets).mean()}
        if batch.epoch >= self.first_epochs:
            return terms
        p = logits.softmax(1)  # (b, c)
        self._remember(batch, p)
        entropy = -(p * logits.log_softmax(1)).sum(1)  # (b,)
        terms["prior"] = self.prior_weight * prior_loss(self, p)
        terms["entropy"] = self.entropy_weight * entropy.mean()
        return terms

    def resolved(self) -> dict[str, Any]:
        """The stages in epochs of this run."""
        return {
            "label_start": self.start,
            "first_stage": self.first_epochs,
            "window": self.slots,
        }

    def rows_now(self) -> dict[str, Tensor]:
        """The classes of the soft labels, and the losses of the observed ones."""
        labels = purified(self.targets.values, self.observed).labels
        return {"labels": labels, **super().rows_now()}

    def purify(self, train: TrainSet, probabilities: Tensor) -> Purified:
        """The classes of the soft labels, and the observed label's probability in each."""
        return purified(self.targets.values, self.observed)

    @torch.no_grad()
    def _remember(self, batch: Batch, p: Tensor) -> None:
        """Stage this epoch's predictions, and the labels of the next epoch.

        Each row occurs once in an epoch, so this equals the authors' update at the end of it.
        """
        history = self.history[batch.index].clone()  # (b, window, c)
        history[:, batch.epoch % self.slots] = p
        self.history.write(batch.index, history)
        if batch.epoch + 1 >= self.start:
            self.targets.write(batch.index, history.mean(1))
