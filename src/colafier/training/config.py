"""The training configuration, which command line, presets and estimator share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self

from colafier._validation import Range

CIFAR10_SHAPE = (3, 32, 32)
MAX_EPOCHS = 100_000
ROWS_PER_DEVICE = 2  # at least, in each batch: a single row has no other to be compared with


@dataclass(frozen=True)
class TrainConfig:
    """Everything that training depends on, apart from the rows and their labels."""

    method: str = "colafier"
    hyper: Mapping[str, Any] = field(default_factory=dict)  # hyper-parameters of the method
    net: Any = "resnet18"  # a name, a module, or a function that makes one; see `nets.net_factory`
    # For the next three, auto is what the method chooses (`Method.run_defaults`). If it does not,
    # new weights start as in torch, inputs are normalized by their own statistics, and the number
    # type is the faster one.
    dtype: str = "auto"  # number type of the backbone: auto, float32 or bf16
    init: Literal["auto", "torch", "kaiming-fan-out"] = "auto"  # how new weights start
    input_statistics: Literal["auto", "fitted", "cifar10-authors"] = "auto"
    epochs: Annotated[int, Range(1, MAX_EPOCHS)] = 200
    batch_size: Annotated[int, Range(2)] = 128  # over all devices
    lr: Annotated[float, Range(0)] = 0.001
    # share of the learning rate that is left at the end of a half cosine; 1: constant rate; None:
    # what the method chooses, or else 0.02
    lr_floor: Annotated[float, Range(0, 1)] | None = None
    weight_decay: Annotated[float, Range(0)] = 0.001
    flip: bool = True  # whether a mirrored image keeps its class
    seed: int = 1
    devices: Annotated[int, Range(1)] = 1

    def __post_init__(self) -> None:
        """Refuse batches that give a device fewer than two rows."""
        if self.batch_size < ROWS_PER_DEVICE * self.devices:
            raise ValueError(
                f"batches of {self.batch_size} rows are too small for {self.devices} devices; "
                f"use a batch_size of at least {ROWS_PER_DEVICE * self.devices}"
            )

    def settled(self, chosen: Mapping[str, Any], row_shape: tuple[int, ...]) -> Self:
        """The same with each `auto` and None replaced; only the number type may stay open.

        Args:
            chosen: What the method chooses, `Method.run_defaults`. Input statistics that it chooses
                are those of CIFAR-10, so they count only for images of that shape.
            row_shape: Shape of one row.
        """
        values = {"init": "torch", "input_statistics": "fitted", "lr_floor": 0.02} | dict(chosen)
        if row_shape != CIFAR10_SHAPE:
            values["input_statistics"] = "fitted"
        left_open: dict[str, Any] = {
            name: value for name, value in values.items() if getattr(self, name) in ("auto", None)
        }
        return replace(self, **left_open)

    @property
    def net_name(self) -> str:
        """The name of the net; for a module or function, the name of its class or function."""
        if isinstance(self.net, str):
            return self.net
        return getattr(self.net, "__name__", type(self.net).__name__)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        converted = {"hyper": dict(self.hyper), "net": self.net_name}
        names = [name for name in self.__dataclass_fields__ if name not in converted]
        return {name: getattr(self, name) for name in names} | converted
