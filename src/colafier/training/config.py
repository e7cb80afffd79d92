"""How a method is trained: one configuration under command line, presets and estimator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from colafier._validation import Range

ROWS_PER_DEVICE = 2  # of a batch; with one row there is nothing to compare it to


@dataclass(frozen=True)
class TrainConfig:
    """All that training depends on, beside the rows and their labels."""

    method: str = "colafier"
    hyper: Mapping[str, Any] = field(default_factory=dict)  # hyper-parameters of the method
    net: Any = "resnet18"  # a name, a module, or a function that makes one; see `nets.net_factory`
    dtype: str = "auto"  # of the backbone
    epochs: Annotated[int, Range(1)] = 200
    batch_size: Annotated[int, Range(2)] = 128  # over all devices
    lr: Annotated[float, Range(0)] = 0.001
    lr_floor: Annotated[float, Range(0, 1)] = (
        1.0  # where the rate ends on a half cosine; 1: constant
    )
    weight_decay: Annotated[float, Range(0)] = 0.001
    flip: bool = True  # whether a mirrored image keeps its class
    seed: int = 1
    devices: Annotated[int, Range(1)] = 1

    def __post_init__(self) -> None:
        """Refuse batches that leave a device without rows to compare."""
        if self.batch_size < ROWS_PER_DEVICE * self.devices:
            raise ValueError(
                f"batches of {self.batch_size} rows are too small for {self.devices} devices; "
                f"use a batch_size of at least {ROWS_PER_DEVICE * self.devices}"
            )

    @property
    def net_name(self) -> str:
        """The name of the net; of a net of the user's own, that of its class or function."""
        if isinstance(self.net, str):
            return self.net
        return getattr(self.net, "__name__", type(self.net).__name__)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        own = {"hyper": dict(self.hyper), "net": self.net_name}
        names = [name for name in self.__dataclass_fields__ if name not in own]
        return {name: getattr(self, name) for name in names} | own
