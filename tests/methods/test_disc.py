"""What is special to DISC: how thresholds of their own group the rows, and each group's loss."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from colafier.core.mixing import mixup
from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch
from colafier.methods.disc import (
    CLEAN,
    HARD,
    NEITHER,
    PURIFIED,
    Disc,
)
from colafier.nets import net_factory
from colafier.training.distributed import Processes
from colafier.training.engine import Engine
from colafier.training.optimizers import OptimizerSettings
from colafier.training.training_set import TrainingSet

ROWS, CLASSES = 60, 3


def ready(
    epochs: int = 10, trusted: Tensor | None = None, net: str | nn.Module = "mlp", **settings: Any
) -> Any:
    """A method set up for some rows, and its batch: all of them."""
    torch.manual_seed(0)
    observed = torch.arange(ROWS) % CLASSES
    x = 3 * torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(1))
    method = Disc(**settings)
    train = TrainingSet(
        x, Labels(observed, trusted=trusted), CLASSES, view_names=method.views, batch_size=ROWS
    )
    method.setup(net_factory(net, (5,), CLASSES), train, epochs)
    with torch.no_grad():
        method.net.head.weight *= 20  # some rows are predicted with confidence
    (batch,) = train.batches(next(method.passes(0, train)), 0, 0)
    return method, batch


def at(batch: Batch, epoch: int) -> Batch:
    return Batch(batch.index, batch.y, batch.views, epoch, float(epoch))


def commit(method: Disc, batch: Batch) -> None:
    """A step that moves the tables and no net."""
    engine = Engine(method, OptimizerSettings(lr=0.0), Processes())
    engine.begin_pass(next(method.passes(0, None)))  # type: ignore[arg-type]
    method.update(batch, engine)


def slow_groups(method: Disc, batch: Batch) -> tuple[list[int], list[int], Tensor]:
    """The paper's rules for one row after the other, with the thresholds as they were."""
    groups, labels, thresholds = [], [], torch.empty(ROWS, 2)
    p = [method.net(view).softmax(1).detach() for view in batch.views]
    for i, row in enumerate(batch.index.tolist()):
        y, (weak, strong) = int(batch.y[i]), method.thresholds.values[row].tolist()
        passed = [float(p[0][i, y]) > weak, float(p[1][i, y]) > strong]
        mean = (p[0][i] + p[1][i]) / 2
        limit = min((weak + strong) / 2 + method.margin, 0.99)
        label = int(method.labels.values[row])
        if all(passed):
            group, label = CLEAN, y
        elif any(passed):
            group, label = HARD, y
        elif float(mean.max()) > limit:
            group, label = PURIFIED, int(mean.argmax())
        else:
            group = NEITHER
        groups.append(group)
        labels.append(label)
        for view, old in enumerate((weak, strong)):
            new = method.keep * old + (1 - method.keep) * float(p[view][i].max())
            thresholds[i, view] = new
    return groups, labels, thresholds


def test_groups_labels_and_thresholds_row_by_row() -> None:
    method, batch = ready(margin=0.1)
    method.thresholds.values = torch.rand(ROWS, 2)
    method.labels.values = torch.randint(CLASSES, (ROWS,))
    groups, labels, thresholds = slow_groups(method, batch)
    assert set(groups) == {NEITHER, PURIFIED, HARD, CLEAN}
    commit(method, batch)
    assert method.groups[batch.index].tolist() == groups
    assert method.labels[batch.index].tolist() == labels
    torch.testing.assert_close(method.thresholds[batch.index], thresholds)


def test_at_first_every_row_is_clean() -> None:
    method, batch = ready()
    assert (method.thresholds.values == 1 / ROWS).all()
    with torch.no_grad():
        method.net.head.weight.zero_()
    commit(method, batch)
    assert (method.groups.values == CLEAN).all()


def test_warm_up_is_cross_entropy_of_both_views() -> None:
    method, batch = ready(warmup=2)
    terms = method.loss(at(batch, 1))
    expected = sum(F.cross_entropy(method.net(view), batch.y) for view in batch.views)
    assert set(terms) == {"ce"}
    torch.testing.assert_close(terms["ce"], expected)


def test_clean_and_hard_losses_row_by_row() -> None:
    method, batch = ready(warmup=0, hard_weight=0.5)
    method.groups.values = torch.arange(ROWS) % 4
    terms = method.loss(batch)
    clean = hard = 0.0
    for view in batch.views:
        p = method.net(view).softmax(1).detach()
        for i, row in enumerate(batch.index.tolist()):
            of_observed = p[i, batch.y[i]].clamp(min=1e-7)
            if row % 4 == CLEAN:
                clean -= float(of_observed.log()) / ROWS
            elif row % 4 == HARD:
                hard += 0.5 * float((1 - of_observed**0.7) / 0.7) / ROWS
    assert terms["clean"].item() == pytest.approx(clean, rel=1e-3)
    assert terms["hard"].item() == pytest.approx(hard, rel=1e-3)


def test_mixes_are_of_chosen_rows_with_their_new_labels() -> None:
    method, batch = ready(warmup=0, alpha=1.0)
    method.groups.values = torch.arange(ROWS) % 4
    method.labels.values = torch.randint(CLASSES, (ROWS,))
    chosen = [i for i, row in enumerate(batch.index.tolist()) if row % 4 != NEITHER]
    labels = method.labels[batch.index][chosen]
    torch.manual_seed(5)
    found = method.loss(batch)["mixed"].item()
    torch.manual_seed(5)
    total = 0.0
    for view in batch.views:
        mixed = mixup(view[chosen], 1.0)
        log_p = method.net(mixed.x).log_softmax(1).detach()
        for i in range(len(chosen)):
            own, other = log_p[i, labels[i]], log_p[i, labels[mixed.partner[i]]]
            total -= float(mixed.keep * own + (1 - mixed.keep) * other)
    assert found == pytest.approx(total / len(chosen), rel=1e-4)


def test_a_lone_chosen_row_is_not_mixed_and_no_batch_of_its_own() -> None:
    """It could only be mixed with itself, and BatchNorm refuses a batch of one."""
    method, batch = ready(net=nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16)), warmup=0)
    method.groups.values = torch.zeros(ROWS, dtype=torch.long)
    row, place = int(batch.index[7]), slice(7, 8)
    method.groups.values[row] = PURIFIED
    label = (batch.y[place] + 1) % CLASSES
    method.labels.values[row] = label
    logits = method.net(torch.cat(batch.views)).chunk(2)
    expected = sum(F.cross_entropy(view[place], label) for view in logits)
    torch.testing.assert_close(method.loss(batch)["mixed"], expected)


def test_a_batch_without_any_chosen_row_gives_no_loss() -> None:
    method, batch = ready(warmup=0)
    method.groups.values.zero_()
    terms = method.loss(batch)
    assert all(term.item() == 0 for term in terms.values())
    sum(terms.values()).backward()
    assert all(not p.grad.any() for p in method.net.parameters())


def test_trusted_rows_are_clean_whatever_the_net_says() -> None:
    trusted = torch.arange(ROWS) < 20
    method, batch = ready(trusted=trusted, margin=0.0)
    method.thresholds.values.fill_(0.5)
    with torch.no_grad():
        method.net.head.bias += torch.tensor([1e3, 0.0, 0.0])
    commit(method, batch)
    assert (method.groups.values[:20] == CLEAN).all()
    assert torch.equal(method.labels.values[:20], torch.arange(20) % CLASSES)
    assert (method.labels.values[20:] == 0).all()


def test_settings_by_epochs_are_scaled_to_the_run() -> None:
    assert ready(epochs=200)[0].resolved() == {"warmup": 20, "momentum": 0.99}
    short = ready(epochs=20)[0].resolved()
    assert short["warmup"] == 2
    assert short["momentum"] ** 20 == pytest.approx(0.99**200)
