import pytest
import torch
from torch import Tensor, nn

from colafier.evidence.config import EvidenceConfig
from colafier.evidence.labels import Labels
from colafier.evidence.out_of_fold import cross_fit
from colafier.methods.contract import Batch, Pass
from colafier.nets.normalize import Normalize
from colafier.training.distributed import Processes
from colafier.training.training_set import TrainingSet


def images(n: int = 21, **settings: object) -> TrainingSet:
    g = torch.Generator().manual_seed(1)
    x = torch.randint(256, (n, 3, 8, 8), generator=g, dtype=torch.uint8)
    known = {"view_names": ("weak",), "batch_size": 8, "seed": 3} | settings
    of_labels = {name: known.pop(name, None) for name in ("original", "trusted")}
    labels = Labels(known.pop("observed", torch.arange(n) % 3), **of_labels)
    return TrainingSet(x, labels, 3, **known)  # type: ignore[arg-type]


def run_pass(
    rows: TrainingSet, part: Pass | None = None, epoch: int = 0, number: int = 0
) -> list[Batch]:
    part = Pass() if part is None else part
    batches = list(rows.batches(part, epoch, number))
    assert rows.steps(part) == len(batches)
    return batches


def order(batches: list[Batch]) -> list[int]:
    return torch.cat([b.index for b in batches]).tolist()


def test_a_pass_shows_each_labeled_row_once() -> None:
    observed = torch.tensor([-1, 0, 1, 2] * 5)
    batches = run_pass(images(20, observed=observed), epoch=4)
    assert sorted(order(batches)) == [i for i in range(20) if i % 4]
    assert order(batches) != sorted(order(batches))
    for batch in batches:
        assert torch.equal(batch.y, observed[batch.index])
        assert batch.x.dtype == torch.float32
    assert [b.progress for b in batches] == [4.0, 4.5]


@pytest.mark.parametrize(
    ("n", "world", "part", "sizes"),
    [
        (21, 1, Pass(), [8, 8, 5]),
        (17, 1, Pass(), [8, 9]),  # one row would be left
        (18, 1, Pass(), [8, 8, 2]),
        (19, 2, Pass(), [8, 11]),  # three rows, fewer than two for each of two processes
        (17, 1, Pass(drop_last=True), [8, 8]),
        (17, 1, Pass(batch_size=16), [17]),
        (1, 1, Pass(), [1]),
        (1, 2, Pass(), []),  # fewer rows than processes
        (3, 1, Pass(batch_size=1), [1, 1, 1]),
        (9, 1, Pass(rows=torch.empty(0, dtype=torch.long)), []),
        (9, 1, Pass(rows=torch.tensor([5, 2])), [2]),
    ],
)
def test_sizes_of_batches(n: int, world: int, part: Pass, sizes: list[int]) -> None:
    shares = [run_pass(images(n, rank=rank, world=world), part) for rank in range(world)]
    assert [sum(map(len, together)) for together in zip(*shares, strict=True)] == sizes


def test_batches_depend_on_seed_epoch_and_pass_only() -> None:
    rows = images()
    first = run_pass(rows, epoch=2, number=1)
    run_pass(rows)
    again = run_pass(images(), epoch=2, number=1)
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.index, other.index)
        assert torch.equal(one.x, other.x)
    assert order(first) != order(run_pass(rows, epoch=3, number=1))
    assert order(first) != order(run_pass(rows, epoch=2, number=0))
    assert order(first) != order(run_pass(images(seed=4), epoch=2, number=1))


def test_a_view_does_not_depend_on_the_views_beside_it() -> None:
    alone, both = run_pass(images()), run_pass(images(view_names=("strong", "weak")))
    assert all(torch.equal(a.x, b.views[1]) for a, b in zip(alone, both, strict=True))
    twice = run_pass(images(view_names=("weak", "weak")))[0]
    assert not torch.equal(*twice.views)


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_the_batch_of_one(world: int) -> None:
    settings: dict[str, object] = {"view_names": ("weak", "strong")}
    part = Pass(rows=torch.arange(15), paired=torch.arange(15, 20))
    alone = run_pass(images(**settings), part)
    shares = [run_pass(images(rank=rank, world=world, **settings), part) for rank in range(world)]
    for whole, *parts in zip(alone, *shares, strict=True):
        assert torch.equal(whole.index, torch.cat([p.index for p in parts]))
        for number, view in enumerate(whole.views):
            assert torch.equal(view, torch.cat([p.views[number] for p in parts]))
        assert whole.paired is not None
        paired = [p.paired.x for p in parts if p.paired is not None]
        assert torch.equal(whole.paired.x, torch.cat(paired))


def test_paired_rows_come_again_when_used_up() -> None:
    part = Pass(rows=torch.arange(16), paired=torch.tensor([18, 19, 20]), tag="mix")
    batches = run_pass(images(), part)
    beside = [b.paired for b in batches if b.paired is not None]
    assert [len(b) for b in beside] == [8, 8]
    drawn = order(beside)
    assert all(sorted(drawn[i : i + 3]) == [18, 19, 20] for i in range(0, 15, 3))
    assert {b.tag for b in batches + beside} == {"mix"}
    nobody = Pass(paired=torch.empty(0, dtype=torch.long))
    assert all(b.paired is None for b in run_pass(images(), nobody))


def test_rows_are_scaled_and_normalized() -> None:
    rows = images(view_names=("plain",))
    assert rows.x.dtype == torch.uint8
    x = torch.cat([b.x for b in run_pass(rows)])
    torch.testing.assert_close(x.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)
    other = Normalize(torch.zeros(3), torch.full((3,), 2.0))
    batch = run_pass(images(view_names=("plain",), normalize=other))[0]
    torch.testing.assert_close(batch.x, rows.x[batch.index].float() / 255 / 2)


def test_holdout_is_a_fixed_share_of_each_class() -> None:
    observed = torch.tensor([0] * 50 + [1] * 10 + [2] + [-1] * 9)
    rows = images(70, observed=observed)
    held = rows.holdout(0.2)
    assert torch.equal(held, rows.holdout(0.2))
    assert observed[held].bincount(minlength=3).tolist() == [10, 2, 0]
    most = rows.holdout(0.99)
    assert observed[most].bincount(minlength=3).tolist() == [49, 9, 0]
    assert not torch.equal(held, images(70, observed=observed, seed=4).holdout(0.2))
    with pytest.raises(ValueError, match="from 0 to below 1"):
        rows.holdout(1.0)


def test_decisions_do_not_change_what_is_held_out() -> None:
    original = torch.tensor([0] * 50 + [1] * 20)
    held = images(70, observed=original).holdout(0.2)
    decided = original.clone()
    decided[held[0]], decided[3], decided[60] = -1, 1, 0  # one is excluded, two are moved
    rows = images(70, observed=decided, original=original)
    assert rows.holdout(0.2).tolist() == held[1:].tolist()
    decided = torch.where(
        torch.isin(torch.arange(70), held), original, 0
    )  # no other row of class 1
    alone = images(70, observed=decided, original=original).holdout(0.2)
    assert alone.tolist() == held[original[held] == 0].tolist()


class Net(nn.Module):
    """A net whose parts are in different modes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.drop = nn.Dropout(0.9)
        self.head = nn.Linear(192, 3)
        self.norm.eval()

    def forward(self, x: Tensor) -> Tensor:
        assert not x.requires_grad
        logits: Tensor = self.head(self.drop(self.norm(x)).flatten(1))
        return logits


def test_predict_leaves_no_trace() -> None:
    rows, net = images(1200), Net()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    p = rows.predict(net)
    assert (net.training, net.norm.training, net.drop.training) == (True, False, True)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    with torch.no_grad():
        expected = net.eval()(rows.normalize(rows.x.float() / 255)).softmax(1)
    torch.testing.assert_close(p, expected)
    some = torch.tensor([700, 3, 3])
    torch.testing.assert_close(rows.predict(net, some), expected[some])
    rows.place(0, 1, torch.device("cpu"), Processes())
    torch.testing.assert_close(rows.predict(net), expected)
    assert rows.predict(net, some[:0]).shape == (0, 3)


@pytest.mark.parametrize(("n", "used"), [(21, 21), (513, 512)])  # a single row has no variance
def test_batch_norm_gets_the_statistics_of_plain_rows(n: int, used: int) -> None:
    rows = images(n)
    net = nn.Sequential(nn.BatchNorm2d(3, affine=False), nn.Flatten(), nn.Linear(192, 3)).eval()
    weights = net[2].weight.clone()
    rows.update_batch_norm(net)
    plain = rows.normalize(rows.x[:used].float() / 255)
    norm = net[0]
    assert torch.allclose(norm.running_mean, plain.mean((0, 2, 3)), atol=1e-5)
    assert torch.allclose(norm.running_var, plain.var((0, 2, 3)), rtol=1e-3)
    assert norm.momentum == 0.1
    assert not any(part.training for part in net.modules())
    assert torch.equal(net[2].weight, weights)


def test_a_net_without_batch_norm_is_left_alone() -> None:
    labels = Labels(torch.arange(9) % 3)
    vectors = TrainingSet(torch.randn(9, 4), labels, 3, view_names=("weak",))
    net = nn.Linear(4, 3)
    before = net.weight.clone()
    vectors.update_batch_norm(net)
    assert torch.equal(net.weight, before)


def test_out_of_fold_predictions_are_for_vectors_and_made_once() -> None:
    assert images().out_of_fold() is None
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    observed, trusted = torch.arange(40) % 3, torch.arange(40) < 5
    labels = Labels(observed, observed.roll(1), trusted)
    short = EvidenceConfig(folds=3, head_epochs=2, head_warmup=1, head_min_steps=1)
    rows = TrainingSet(x, labels, 3, view_names=(), seed=7, evidence=short)
    made = rows.out_of_fold()
    assert made is not None
    assert torch.equal(made, cross_fit(x, labels, 3, rows.normalize, config=short, seed=7))
    assert rows.out_of_fold() is made
    given = TrainingSet(x, labels, 3, view_names=(), out_of_fold=made)
    assert given.out_of_fold() is made


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"observed": torch.zeros(3, dtype=torch.long)}, "one label each"),
        ({"observed": torch.full((21,), 3)}, "0 to 2"),
        ({"trusted": torch.zeros(21)}, "boolean mask"),
        ({"batch_size": 0}, "at least 1"),
        ({"view_names": ("odd",)}, "no view is called 'odd'"),
    ],
)
def test_wrong_arguments(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        images(**settings)


def test_batches_smaller_than_the_processes_are_an_error() -> None:
    with pytest.raises(ValueError, match="are too small for"):
        run_pass(images(batch_size=1, world=2))
