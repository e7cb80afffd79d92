"""Witnesses: small heads on features, each asked only about rows that it was not trained on.

A classifier that has seen a row's label is no witness for or against it. So the rows are cut in
parts, and each part is judged by a head that learned from the others. The heads learn robustly:
first with the generalized cross entropy, then from what a transition matrix, estimated by EM,
makes of the observed labels (Bekker and Goldberger 2016).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from colafier import _seeds
from colafier._progress import progress_bar
from colafier.audit.noise_model import soft_labels
from colafier.core.functional import gce

PARTS = 4
WIDTH = 256
EPOCHS, WARMUP = 6, 2
MIN_STEPS = 300  # of each head: small data sets are walked more often
BATCH = 512
RATE, DECAY = 1e-3, 1e-2
DROPPED_INPUTS, DROPPED_HIDDEN = 0.2, 0.5
AT_ONCE = 2**27  # numbers that are normalized once and kept: half a GiB; more are by the batch
MEMORY = 0.6  # share of the earlier epochs in the running mean of what the heads say


def cross_fit(
    x: Tensor,
    observed: Tensor,
    num_classes: int,
    normalize: Callable[[Tensor], Tensor],
    *,
    trusted: Tensor | None = None,
    original: Tensor | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Tensor:
    """P(class | row) for each row (n, c), by a head that never saw the row's label.

    Args:
        x: Features (n, d).
        observed: Observed labels (n,), -1 where there is none.
        num_classes: Number of classes.
        normalize: Applied to rows before a head sees them.
        trusted: Rows whose label is known to be right, as a boolean mask.
        original: The labels that came with the data (n,), where those of trusted rows are not them.
        seed: Of the parts, the heads and the order.
        progress: Whether a terminal shows a bar.
    """
    generator = torch.Generator().manual_seed(_seeds.derive(seed, "witnesses"))
    trusted = torch.zeros(len(x), dtype=torch.bool) if trusted is None else trusted
    part = _parts(observed, generator)  # (n,)
    size = max(2, min(BATCH, len(x) // 20))
    steps = -(-int((observed >= 0).sum()) * (PARTS - 1) // (PARTS * size))
    epochs = max(EPOCHS, -(-MIN_STEPS // max(steps, 1)))
    whole = normalize(x.float()) if x.numel() <= AT_ONCE else None  # (n, d)

    def take(rows: Tensor) -> Tensor:
        return normalize(x[rows].float()) if whole is None else whole[rows]

    with (
        torch.random.fork_rng(devices=[]),
        progress_bar("asking witnesses", PARTS * epochs, progress) as advance,
    ):
        torch.manual_seed(_seeds.derive(seed, "heads"))
        heads = [_Head(x.shape[1], num_classes) for _ in range(PARTS)]
        said = torch.full((len(x), num_classes), 1 / num_classes)  # (n, c)
        targets = F.one_hot(observed.clamp(min=0), num_classes).float()  # (n, c)
        known = observed >= 0
        doubted = known & ~trusted
        counted = (
            doubted if original is None else known & (original >= 0)
        )  # the noise is learned from
        noisy = observed if original is None else original
        certain = nn.functional.one_hot(observed.clamp(min=0), num_classes).double()  # (n, c)
        warmup = max(1, round(WARMUP * epochs / EPOCHS))
        for epoch in range(epochs):
            robust = epoch < warmup
            now = torch.empty_like(said)
            for number, head in enumerate(heads):
                head.slow_down(epoch / epochs)
                rows = ((part != number) & known).nonzero()[:, 0]
                rows = rows[torch.randperm(len(rows), generator=generator)]
                for some in torch.split(rows, size):
                    head.learn(take(some), targets[some], robust)
                own = (part == number).nonzero()[:, 0]
                for some in torch.split(own, 4096):
                    now[some] = head.say(take(some))
                advance(1)
            said = now if robust else MEMORY * said + (1 - MEMORY) * now
            if epoch + 1 >= warmup:
                p = torch.where(trusted[:, None], certain, said.double())
                soft = soft_labels(p[counted], noisy[counted]).float()
                targets[doubted] = soft[doubted[counted]]
    return said


class _Head:
    """A perceptron with dropout and its optimizer, whose rate falls to zero."""

    def __init__(self, inputs: int, num_classes: int) -> None:
        self.first = nn.Linear(inputs, WIDTH)
        self.last = nn.Linear(WIDTH, num_classes)
        params = [*self.first.parameters(), *self.last.parameters()]
        self.optimizer = torch.optim.AdamW(params, lr=RATE, weight_decay=DECAY)

    def slow_down(self, done: float) -> None:
        """Set the rate for this share of the training that is done."""
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * (1 - done)

    def learn(self, x: Tensor, targets: Tensor, robust: bool) -> None:
        """One step on rows (b, d) with soft targets (b, c)."""
        # The same features are dropped for a whole batch: a mask of weights costs next to nothing.
        kept = (torch.rand(x.shape[1]) >= DROPPED_INPUTS) / (1 - DROPPED_INPUTS)  # (d,)
        hidden = F.linear(x, self.first.weight * kept, self.first.bias).relu()  # (b, h)
        logits = self.last(F.dropout(hidden, DROPPED_HIDDEN))  # (b, c)
        loss = gce(logits, targets.argmax(1)).mean() if robust else F.cross_entropy(logits, targets)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    @torch.no_grad()
    def say(self, x: Tensor) -> Tensor:
        """Probabilities (b, c)."""
        p: Tensor = self.last(self.first(x).relu()).softmax(1)
        return p


def _parts(observed: Tensor, generator: torch.Generator) -> Tensor:
    """The part of each row (n,): each class is dealt out evenly."""
    order = torch.randperm(len(observed), generator=generator)
    order = order[observed[order].argsort(stable=True)]
    part = torch.empty_like(observed)
    part[order] = torch.arange(len(observed)) % PARTS
    return part
