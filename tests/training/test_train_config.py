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


def test_a_net_of_the_users_own_is_named_after_its_function() -> None:
    def my_net() -> nn.Module:
        return nn.Linear(2, 2)

    assert TrainConfig(net=my_net).net_name == "my_net"
