"""The method contract: a method is a module, and only `loss` must be written."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from colafier.flow import (
    Alone,
    Batch,
    Engine,
    MakeNet,
    MakeOptimizer,
    Pass,
    Passes,
    Peers,
    Purified,
    Terms,
    TrainSet,
)


class Method(nn.Module):
    """Base of all methods: networks, copies and row tables are submodules, so they are all saved.

    One paper is one file in `colafier.methods`, with one class whose CLI word is the file's name.
    Constructor arguments are its hyper-parameters, keyword-only, and are only stored.
    """

    reference: ClassVar[str] = ""  # authors, title, venue and year
    year: ClassVar[int] = 0
    num_nets: ClassVar[int] = 1
    needs_noise_rate: ClassVar[bool] = False
    goes_on: ClassVar[bool] = True  # whether a finished run can be trained on for more epochs

    views: tuple[str, ...] = ("weak",)
    net: Any  # whatever `setup` builds

    def __init__(self) -> None:
        super().__init__()
        self.peers: Peers = Alone()

    def setup(self, make_net: MakeNet, train: TrainSet, epochs: int) -> None:
        """Build networks and tables for a run of this many epochs."""
        self.net = make_net()

    def reopen(self, train: TrainSet) -> None:
        """A finished run goes on, with rows that a person has decided since.

        Row tables of trusted rows already hold what was decided.
        """

    def optimizers(self, make: MakeOptimizer) -> dict[str, torch.optim.Optimizer]:
        """Named optimizers; `make(params, **overrides)` starts from the run's settings."""
        return {"net": make(self.parameters())}

    def passes(self, epoch: int, train: TrainSet) -> Passes:
        """The walks of one epoch; code before a `yield` is its begin, code after it its end."""
        yield Pass()

    def loss(self, batch: Batch) -> Terms:
        """Named terms; those with a gradient are summed and minimized, others only logged."""
        raise NotImplementedError

    def update(self, batch: Batch, engine: Engine) -> Terms:
        """One step; replaced only for what comes after it, or for two steps."""
        return engine.minimize(self.loss, batch)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (b, c) of the classifier that is deployed."""
        logits: Tensor = self.deployed()(x)
        return logits

    def deployed(self) -> nn.Module:
        """The classifier to keep: a plain module without row tables."""
        net: nn.Module = self.net
        return net

    def members(self) -> list[nn.Module]:
        """The single classifiers of a method with several, for papers that score each."""
        return [self.deployed()]

    def gather(self, t: Tensor) -> Tensor:
        """Rows of all processes, in the order of the global batch, without gradient."""
        return self.peers.gather(t)

    def own(self, t: Tensor) -> Tensor:
        """This process's part of something computed from gathered rows."""
        return self.peers.own(t)

    def resolved(self) -> dict[str, Any]:
        """After `setup`: what hyper-parameters that leave a choice open came to, for the record."""
        return {}

    def rows_now(self) -> dict[str, Tensor]:
        """Per-row values to be scored after each epoch.

        `labels`: what the method believes now. `judged`: the labels that this epoch's scores are
        about. Every other key is a score of this epoch that is high for wrong labels.
        """
        return {}

    def purify(self, train: TrainSet) -> Purified:
        """The method's labels and scores; by default what the deployed classifier predicts."""
        probabilities = train.predict(self.deployed())  # (n, c)
        given = train.given.to(probabilities.device)
        keep = (train.trusted | ~train.labelled).to(probabilities.device)
        known = given.clamp(min=0)  # rows without a label hold -1
        quality = probabilities.gather(1, known[:, None])[:, 0]
        labels = torch.where(keep, given, probabilities.argmax(1))
        return Purified(labels, quality)
