"""One training configuration: what it refuses, and what goes into a record."""

import json

import pytest
from torch import nn

from colafier.training.config import TrainConfig


def test_every_device_gets_rows_to_compare() -> None:
    assert TrainConfig(batch_size=4, devices=2).batch_size == 4
    with pytest.raises(ValueError, match="batch_size of at least 4"):
        TrainConfig(batch_size=3, devices=2)


def test_a_record_has_plain_values() -> None:
    config = TrainConfig(hyper={"warmup": 3}, net=nn.Linear(2, 2))
    content = json.loads(json.dumps(config.to_dict()))
    assert set(content) == set(TrainConfig.__dataclass_fields__)
    assert (content["net"], content["hyper"]) == ("Linear", {"warmup": 3})
    assert TrainConfig(net="mlp").net_name == "mlp"


AUTHORS = {
    "init": "kaiming-fan-out",
    "input_statistics": "cifar10-authors",
    "dtype": "float32",
    "lr_floor": 1.0,
}


def test_what_is_left_open_is_settled_by_the_method() -> None:
    ours = TrainConfig().settled({}, (3, 32, 32))
    assert (ours.init, ours.input_statistics, ours.dtype) == ("torch", "fitted", "auto")
    assert ours.lr_floor == 0.02
    theirs = TrainConfig().settled(AUTHORS, (3, 32, 32))
    assert {name: getattr(theirs, name) for name in AUTHORS} == AUTHORS
    assert theirs.settled({}, (3, 32, 32)) == theirs


def test_what_is_given_stays() -> None:
    given = TrainConfig(init="torch", input_statistics="fitted", dtype="bf16", lr_floor=0.0)
    assert given.settled(AUTHORS, (3, 32, 32)) == given


def test_statistics_of_cifar10_are_for_such_images() -> None:
    digits = TrainConfig().settled(AUTHORS, (1, 8, 8))
    assert (digits.input_statistics, digits.init) == ("fitted", "kaiming-fan-out")


def test_a_net_of_the_users_own_is_named_after_its_function() -> None:
    def my_net() -> nn.Module:
        return nn.Linear(2, 2)

    assert TrainConfig(net=my_net).net_name == "my_net"
