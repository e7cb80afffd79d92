"""What is special to DivideMix: the split of the rows, their targets, and the loss of mixes."""

from typing import Any

import pytest
import torch
from in_phases import assert_terms
from torch import Tensor, nn

from colafier.core.mixing import mixup
from colafier.evidence.labels import Labels
from colafier.methods.contract import Batch, Pass
from colafier.methods.dividemix import DivideMix, small_component
from colafier.nets import net_factory
from colafier.training.training_set import TrainingSet

ROWS, CLASSES = 40, 3


def ready(
    epochs: int = 30,
    observed: Tensor | None = None,
    trusted: Tensor | None = None,
    net: str = "mlp",
    row_shape: tuple[int, ...] = (5,),
    **settings: Any,
) -> tuple[DivideMix, TrainingSet]:
    torch.manual_seed(0)
    observed = torch.arange(ROWS) % CLASSES if observed is None else observed
    x = torch.randn(ROWS, *row_shape, generator=torch.Generator().manual_seed(1))
    method = DivideMix(**{"warmup": 1, "ramp": 4, "batch_size": 8, **settings})
    train = TrainingSet(
        x, Labels(observed, trusted=trusted), CLASSES, view_names=method.views, batch_size=16
    )
    method.setup(net_factory(net, row_shape, CLASSES), train, epochs)
    return method, train


def split_by(method: DivideMix, train: TrainingSet, judged: list[Tensor]) -> list[Pass]:
    """The passes after the warm-up if the nets judge so."""
    method._judge = lambda net, _: judged[list(method.net).index(net)]  # type: ignore[method-assign]
    return list(method.passes(3, train))


def first_batch(method: DivideMix, train: TrainingSet, epoch: int = 3, number: int = 0) -> Batch:
    part = list(method.passes(epoch, train))[number]
    return next(iter(train.batches(part, epoch, number)))


def test_losses_in_two_groups_are_told_apart() -> None:
    g = torch.Generator().manual_seed(0)
    low = 0.2 + 0.05 * torch.randn(60, generator=g)
    high = 3.0 + 0.3 * torch.randn(40, generator=g)
    clean = small_component(torch.cat([low, high]))
    assert clean[:60].min() > 0.9
    assert clean[60:].max() < 0.1


@pytest.mark.parametrize(
    "losses",
    [torch.full((9,), 1.3), torch.tensor([0.5]), torch.tensor([0.1, torch.nan, 2.0])],
    ids=["equal", "one", "not a number"],
)
def test_losses_without_two_groups_are_all_clean(losses: Tensor) -> None:
    assert torch.equal(small_component(losses), torch.ones(len(losses)))


def test_each_net_learns_the_split_of_the_other_and_both_parts_are_all_rows() -> None:
    method, train = ready()
    judged = [(torch.arange(ROWS) < 25).float(), (torch.arange(ROWS) >= 10).float()]
    for part, by_other in zip(split_by(method, train, judged), judged[::-1], strict=True):
        assert part.rows is not None
        assert part.paired is not None
        assert torch.equal(part.rows, by_other.nonzero()[:, 0])
        both = torch.cat([part.rows, part.paired])
        assert torch.equal(both.sort().values, torch.arange(ROWS))
        assert part.optimizers == (part.tag,)
        assert part.batch_size == 8


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_split_without_clean_or_without_doubtful_rows(share: float) -> None:
    """No row is clean enough: those that are nearest to it make one step."""
    method, train = ready()
    judged = torch.full((ROWS,), share) + torch.arange(ROWS) * 1e-4 * (share < 1)
    part = split_by(method, train, [judged, judged])[0]
    assert part.rows is not None
    assert part.rows.tolist() == (list(range(32, 40)) if share < 1 else list(range(40)))
    terms = method.loss(next(iter(train.batches(part, 3, 0))))
    assert ("unlabeled" in terms) == (share < 1)
    assert all(torch.isfinite(term) for term in terms.values())


def test_equal_rows_make_no_more_than_one_step() -> None:
    observed = torch.where(torch.arange(ROWS) % 2 == 0, -1, torch.arange(ROWS) % CLASSES)
    method, train = ready(observed=observed)
    for part in split_by(method, train, [torch.zeros(ROWS)] * 2):
        assert part.rows is not None
        assert part.paired is not None
        assert len(part.rows) == 8
        assert (observed[part.rows] >= 0).all()
        both = torch.cat([part.rows, part.paired])
        assert torch.equal(both.sort().values, torch.arange(ROWS))


def test_both_nets_judge_before_either_learns() -> None:
    method, train = ready()
    before = list(method.passes(3, train))[1].rows
    passes = method.passes(3, train)
    next(passes)
    with torch.no_grad():
        method.net[0].head.weight.neg_()
    second = next(passes).rows
    now = list(method.passes(3, train))[1].rows
    assert before is not None
    assert second is not None
    assert now is not None
    assert second.tolist() == before.tolist() != now.tolist()


def test_trusted_rows_are_clean_and_rows_without_label_are_not() -> None:
    observed = torch.where(torch.arange(ROWS) < 6, -1, torch.arange(ROWS) % CLASSES)
    trusted = torch.arange(ROWS) >= 30
    method, train = ready(observed=observed, trusted=trusted)
    wrong = nn.functional.one_hot((observed + 1) % CLASSES, CLASSES).float()
    train.predict = lambda *_: torch.where(trusted[:, None], wrong, 1 / CLASSES)  # type: ignore[method-assign]
    clean = method._judge(method.net[0], train)
    assert (clean[:6] == 0).all()
    assert (clean[30:] == 1).all()
    part = next(iter(method.passes(3, train)))
    assert part.rows is not None
    assert part.paired is not None
    assert set(range(6)) <= set(part.paired.tolist())
    assert set(range(30, 40)) <= set(part.rows.tolist())


def sharpened(p: Tensor, inverse_temperature: float) -> Tensor:
    return p**inverse_temperature / (p**inverse_temperature).sum()


@pytest.mark.parametrize("number", [0, 1])
def test_the_loss_of_mixes_row_by_row(number: int) -> None:
    method, train = ready(unlabeled_weight=30.0, temperature=0.25, alpha=2.0)
    with torch.no_grad():
        for net in method.net:
            net.head.weight *= 10
    judged = [torch.rand(ROWS), torch.rand(ROWS)]
    part = split_by(method, train, judged)[number]
    batch = next(iter(train.batches(part, 3, number)))
    paired = batch.paired
    assert paired is not None
    own = [method.net[number](view).softmax(1).detach() for view in batch.views]
    all_predictions = [net(view).softmax(1).detach() for net in method.net for view in paired.views]
    refined, predicted = [], []
    for i, row in enumerate(batch.index.tolist()):
        w = judged[1 - number][row]
        observed = nn.functional.one_hot(batch.y[i], CLASSES)
        refined.append(sharpened(w * observed + (1 - w) * (own[0][i] + own[1][i]) / 2, 4))
        predicted.append(sharpened(sum(p[i] for p in all_predictions) / 4, 4))
    targets = 2 * refined + 2 * predicted
    torch.manual_seed(5)
    terms = method.loss(batch)
    torch.manual_seed(5)
    mixed = mixup(torch.cat([*batch.views, *paired.views]), 2.0)
    p = method.net[number](mixed.x).softmax(1)
    labeled = unlabeled = torch.zeros(())
    for i in range(4 * len(batch)):
        t = mixed.keep * targets[i] + (1 - mixed.keep) * targets[int(mixed.partner[i])]
        if i < 2 * len(batch):
            labeled = labeled - (t * p[i].log()).sum() / (2 * len(batch))
        else:
            unlabeled = unlabeled + ((p[i] - t) ** 2).sum() / (2 * len(batch) * CLASSES)
    prior = sum((1 / CLASSES) * ((1 / CLASSES) / m).log() for m in p.mean(0))
    expected = {"labeled": labeled, "unlabeled": 30 * (3 - 1) / 4 * unlabeled, "prior": prior}
    assert_terms(method.net[number], terms, expected, atol=1e-5)


def test_predictions_leave_statistics_of_batches_alone() -> None:
    method, train = ready(net="convnet", row_shape=(1, 8, 8))
    batch = first_batch(method, train)
    assert batch.paired is not None
    method.loss(batch)
    own, other = (
        {
            int(part.num_batches_tracked)
            for part in net.modules()
            if isinstance(part, nn.BatchNorm2d)
        }
        for net in method.net
    )
    assert (own, other) == ({1}, {0})


def test_the_other_net_does_not_learn() -> None:
    method, train = ready(unlabeled_weight=5.0)
    batch = first_batch(method, train)
    sum(method.loss(batch).values()).backward()  # type: ignore[union-attr]
    assert all(p.grad is not None for p in method.net[0].parameters())
    assert all(p.grad is None for p in method.net[1].parameters())


def test_warm_up_is_cross_entropy_with_a_penalty_on_confidence() -> None:
    method, train = ready(penalty=0.5)
    batch = first_batch(method, train, epoch=0)
    p = method.net[0](batch.x).softmax(1).detach()
    ce = sum(-float(p[i, y].log()) for i, y in enumerate(batch.y)) / len(batch)
    negative_entropy = float((p * p.log()).sum()) / len(batch)
    terms = {name: term.item() for name, term in method.loss(batch).items()}
    assert terms == pytest.approx({"ce": ce, "penalty": 0.5 * negative_entropy}, rel=1e-4)


def test_the_unlabeled_loss_rises_after_the_warm_up_of_the_authors() -> None:
    method, _ = ready(epochs=300, warmup=None, ramp=None, unlabeled_weight=25.0)
    assert method.resolved() == {"warmup": 10, "ramp": 16}
    weights = [method.weight_at(progress) for progress in (3.0, 10.0, 18.0, 26.0, 200.0)]
    assert weights == pytest.approx([0, 0, 12.5, 25, 25])


def test_both_nets_are_deployed_with_mean_logits() -> None:
    method, train = ready()
    x = first_batch(method, train).x
    first, second = method.net
    torch.testing.assert_close(method(x), (first(x) + second(x)) / 2)
    assert method.members() == [first, second]
