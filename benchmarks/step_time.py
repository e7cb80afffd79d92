"""Time of one training step: each variant beside the same step done the plain way, in one run.

The plain way sends both views through LID-dis once for each kind of label (observed, random other,
predicted), mixes every view, and keeps images in the default memory layout, as the authors' code
does.
Rounds alternate between the ways, so that a busy machine slows all of them alike.

    python benchmarks/step_time.py
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from statistics import median

import torch

from colafier.benchmark_data.sources import fashion_mnist
from colafier.core import losses
from colafier.core.functional import draw_other
from colafier.core.mixing import mix, mixed_labels
from colafier.methods.colafier import CoLafier
from colafier.methods.contract import Batch, Pass
from colafier.nets import net_factory
from colafier.training.distributed import Processes
from colafier.training.engine import Engine
from colafier.training.optimizers import OptimizerSettings
from colafier.training.training_set import TrainingSet

DATA = "/usr/share/datasets/fashion-mnist"  # where Debian's package puts it
EPOCH = 6  # after warm-up
CLASSES = 10


def our_step(train: TrainingSet, variant: str) -> Callable[[Batch], None]:
    """A step of the method as it is."""
    method = CoLafier(variant=variant, warmup=0, ramp=2)
    method.setup(net_factory("resnet8", train.row_shape, CLASSES), train, 10)
    engine = Engine(method, OptimizerSettings(), Processes())

    def step(batch: Batch) -> None:
        engine.begin_pass(Pass())
        method.update(batch, engine)

    return step


def plain_step(train: TrainingSet) -> Callable[[Batch], None]:
    """The forward and backward passes that the authors' code takes, without its LID and labels."""
    method = CoLafier(variant="authors")
    method.setup(net_factory("resnet8", train.row_shape, CLASSES), train, 10)
    for net in (method.gen, method.dis):
        net.to(memory_format=torch.contiguous_format)
        net.backbone.forward = lambda x, n=net: n.backbone.module(x).mean((2, 3))
    optimizer = torch.optim.AdamW(method.parameters(), lr=1e-3, weight_decay=1e-3)

    def step(batch: Batch) -> None:
        y = batch.y.repeat(2)
        x = torch.cat(batch.views)
        one = torch.ones(len(y))
        gen = method.gen(x)
        judged = [
            method.dis.judge(method.dis.encode(x), labels)[1]
            for labels in (y, draw_other(y, CLASSES), gen.argmax(1))
        ]
        loss = losses.clean(one, [gen], y) + losses.clean(one, judged[:1], y, judged[1:2])
        for view in batch.views:
            mixed = mix(view, 5.0)
            soft = mixed_labels(batch.y, mixed, CLASSES)
            targets = (batch.y, batch.y[mixed.partner], mixed.keep)
            dis = method.dis.judge(method.dis.encode(mixed.x), soft)[1]
            loss = loss + losses.mixed(method.gen(mixed.x), *targets).mean()
            loss = loss + losses.mixed(dis, *targets).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def main() -> None:
    """Time all ways and print the line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=DATA, help="folder of the Fashion-MNIST idx files")
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    source = fashion_mnist(args.data, limit=512, pad_to=32)
    train = TrainingSet(source.x, source.labels, CLASSES, view_names=("weak", "strong"))
    batch = next(iter(train.batches(Pass(), EPOCH, 0)))
    steps = {name: our_step(train, name) for name in ("adaptive", "authors", "paper")}
    steps["plain"] = plain_step(train)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(args.rounds + 1):
        for name, step in steps.items():
            begin = time.perf_counter()
            step(batch)
            seconds[name].append(time.perf_counter() - begin)
    middle = {name: median(times[1:]) for name, times in seconds.items()}  # the first warms up
    line = {
        "benchmark": "step_time",
        "threads": torch.get_num_threads(),
        "seconds": {name: round(value, 3) for name, value in middle.items()},
        "ratio_to_plain": {n: round(v / middle["plain"], 2) for n, v in middle.items()},
    }
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
