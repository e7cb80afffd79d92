"""What is special to Co-learning: the structure step, and the contrast between views."""

import copy
from math import exp, log

import pytest
import torch
from in_phases import FakeDistributed, Recorder, share_of
from one_batch import ROWS, ready
from torch import Tensor

from colafier.core.mixing import mixup
from colafier.methods.co_learning import CoLearning
from colafier.methods.contract import Batch
from colafier.training.distributed import Processes
from colafier.training.engine import Engine
from colafier.training.optimizers import OptimizerSettings


def squared(rows: Tensor, i: int, j: int) -> float:
    return float((rows[i] - rows[j]).double().square().sum())


def test_structure_pair_by_pair() -> None:
    method, batch = ready(CoLearning(width=16))
    with torch.no_grad():
        features = method.net.backbone(batch.x)
        projected, logits = method.projector(features), method.net.head(features)
    total = 0.0
    for i in range(ROWS):
        for j in range(ROWS):
            kept = exp(-squared(logits, i, j))
            total -= exp(-squared(projected, i, j)) * log(kept + 1e-12)
    value = float(method.structure(batch)["structure"].detach())
    assert value == pytest.approx(total / ROWS**2, rel=1e-3)


def test_contrast_anchor_by_anchor() -> None:
    method, batch = ready(CoLearning(temperature=0.3))
    with torch.no_grad():
        z = method.projector(method.net.backbone(torch.cat(batch.views[1:])))
    z = z / z.norm(dim=1, keepdim=True)
    total = 0.0
    for i in range(2 * ROWS):
        partner = (i + ROWS) % (2 * ROWS)
        against = [exp(float(z[i] @ z[j]) / 0.3) for j in range(2 * ROWS) if j != i]
        total -= log(exp(float(z[i] @ z[partner]) / 0.3) / sum(against))
    value = float(method.loss(batch)["contrast"].detach())
    assert value == pytest.approx(total / (2 * ROWS), rel=1e-4)


def test_labels_of_mixes_row_by_row() -> None:
    method, batch = ready(CoLearning(mix_alpha=1.0))
    torch.manual_seed(5)
    value = float(method.loss(batch)["labels"].detach())
    torch.manual_seed(5)
    mixed = mixup(batch.x, 1.0)
    p = method.net(mixed.x).softmax(1).detach()
    total = 0.0
    for i in range(ROWS):
        j, keep = int(mixed.partner[i]), mixed.keep
        total -= keep * log(p[i, batch.y[i]]) + (1 - keep) * log(p[i, batch.y[j]])
    assert value == pytest.approx(total / ROWS, rel=1e-4)


class Sharing(FakeDistributed):
    """As its base, and it knows its part of what was gathered last."""

    def all_gather(self, t: Tensor) -> Tensor:
        self.rows = len(t)
        return super().all_gather(t)

    def local_slice(self, t: Tensor) -> Tensor:
        return t[: self.rows] if self.first else t[-self.rows :]


@pytest.mark.parametrize("name", ["structure", "contrast"])
def test_two_processes_learn_from_pairs_what_one_does(name: str) -> None:
    method, batch = ready(CoLearning(width=16))
    loss = method.structure if name == "structure" else method.loss
    shares = [share_of(batch, slice(0, 13)), share_of(batch, slice(13, ROWS))]

    def learned(some: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        method.zero_grad()
        term = loss(some)[name]
        term.backward()
        slopes = {k: p.grad for k, p in method.named_parameters() if p.grad is not None}
        return term.detach(), slopes

    value, expected = learned(batch)
    gathered = []
    for share in shares:
        method.distributed = Recorder()
        loss(share)
        gathered.append(method.distributed.gathered)
    total = {k: torch.zeros_like(slope) for k, slope in expected.items()}
    for i, share in enumerate(shares):
        method.distributed = Sharing(gathered[1 - i], first=i == 0)
        part, slopes = learned(share)
        torch.testing.assert_close(part, value)
        for k, slope in slopes.items():
            total[k] += slope * len(share) / ROWS
    assert any(slope.any() for slope in expected.values())
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-6)


def test_the_structure_step_moves_the_label_head_only() -> None:
    method, batch = ready(CoLearning())
    engine = Engine(method, OptimizerSettings(), Processes())
    before = copy.deepcopy(method.state_dict())
    engine.minimize(method.structure, batch, only=("head",))
    moved = {k for k, v in method.state_dict().items() if not torch.equal(v, before[k])}
    assert moved == {"net.head.weight", "row_losses.values"}  # a common bias changes no distance
    method.row_losses.begin_pass()
    method.update(batch, engine)
    moved = {k for k, v in method.state_dict().items() if not torch.equal(v, before[k])}
    assert moved == set(before)


def test_one_row_has_nothing_to_be_told_from() -> None:
    method, batch = ready(CoLearning())
    one = Batch(batch.index[:1], batch.y[:1], tuple(v[:1] for v in batch.views), 0, 0.0)
    assert float(method.structure(one)["structure"].detach()) == pytest.approx(0, abs=1e-6)
    assert float(method.loss(one)["contrast"].detach()) == pytest.approx(0, abs=1e-6)


def test_the_label_free_head_is_not_deployed() -> None:
    method, _ = ready(CoLearning())
    assert method.deployed() is method.net
    assert not any("projector" in name for name in method.deployed().state_dict())
