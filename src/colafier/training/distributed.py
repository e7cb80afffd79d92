"""The processes that share each batch: how they are started, and what they tell each other."""

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Result = TypeVar("Result")


class Processes:
    """The processes of a run as one of them sees them (`flow.Peers`); `Processes()` is one alone.

    Args:
        rank: Number of this process.
        size: How many there are.
        device: Where this one computes.
    """

    def __init__(self, rank: int = 0, size: int = 1, device: torch.device | None = None) -> None:
        self.rank = rank
        self.size = size
        self.device = torch.device("cpu") if device is None else device
        self._counts: list[int] = []

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes files and talks."""
        return self.rank == 0

    def all_gather(self, t: Tensor) -> Tensor:
        """Rows of all processes, in the order of the global batch, without gradient."""
        if self.size == 1:
            return t.detach()
        gathered, self._counts = self._gather(t.detach())
        return gathered

    def local_slice(self, t: Tensor) -> Tensor:
        """This process's part of a tensor that has the rows of the last `all_gather`."""
        if self.size == 1:
            return t
        if len(t) != sum(self._counts):
            raise ValueError(f"{len(t)} rows, but the last gather gave {sum(self._counts)}")
        return torch.split(t, self._counts)[self.rank]

    def join(self, t: Tensor) -> Tensor:
        """As `all_gather`, but `local_slice` does not refer to it."""
        return t if self.size == 1 else self._gather(t)[0]

    def add(self, t: Tensor) -> Tensor:
        """The sum over processes, in place."""
        if self.size > 1:
            dist.all_reduce(t)
        return t

    def all_gather_object(self, value: Result) -> list[Result]:
        """What each process says, in the order of their ranks."""
        if self.size == 1:
            return [value]
        said: list[Result | None] = [None] * self.size
        dist.all_gather_object(said, value)
        return said  # type: ignore[return-value]  # every place has been filled

    def wait(self) -> None:
        """Go on when all processes have come here."""
        if self.size > 1:
            dist.barrier()

    def _gather(self, t: Tensor) -> tuple[Tensor, list[int]]:
        """Rows as bytes, so that any number type goes; filled up where a process has fewer."""
        count = torch.tensor([len(t)], device=self.device)
        counts = [torch.zeros_like(count) for _ in range(self.size)]
        dist.all_gather(counts, count)
        lengths = [int(c) for c in counts]
        flat = t.contiguous().flatten(1) if t.dim() > 1 else t.contiguous()[:, None]
        raw = flat.to(self.device).view(torch.uint8)  # (b, bytes)
        filled = raw.new_zeros(max(lengths), raw.shape[1])
        filled[: len(raw)] = raw
        parts = [torch.empty_like(filled) for _ in range(self.size)]
        dist.all_gather(parts, filled)
        joined = torch.cat([p[:n] for p, n in zip(parts, lengths, strict=True)])
        return joined.view(t.dtype).view(-1, *t.shape[1:]).to(t.device), lengths


def launch(
    job: Callable[..., Result], *args: object, devices: int = 1, accelerator: str = "auto"
) -> Result:
    """Run `job(processes, *args)` on each process, and return what it gives on the first.

    Several processes are started anew (spawned), so the job must be a function of a module, and a
    script that calls this needs `if __name__ == "__main__"`.

    Args:
        job: Its first argument is a `Processes`.
        *args: More arguments; they and the result must be picklable when there are several devices.
        devices: Number of processes, each with its own device or its share of the CPU.
        accelerator: `auto`, or a name that Lightning Fabric knows, such as `cpu` or `cuda`.
    """
    nothing_faster = accelerator == "cpu" or not torch.accelerator.is_available()
    if devices == 1 and nothing_faster:
        return job(Processes(), *args)  # Fabric takes seconds to import
    from lightning_fabric import Fabric

    if devices == 1:
        fabric = Fabric(accelerator=accelerator, devices=1)
        return job(Processes(device=fabric.device), *args)
    fabric = Fabric(accelerator=accelerator, devices=devices, strategy="ddp_spawn")
    # by a file: Fabric's own way back hangs once the result is larger than a pipe (64 KB), and
    # tensors that are sent through it die with the process that made them
    with TemporaryDirectory() as folder:
        answer = Path(folder) / "result"
        # bound, not passed: Fabric searches arguments and refuses frozen dataclasses
        fabric.launch(partial(_run, job=job, args=args, answer=answer))
        result: Result = pickle.loads(answer.read_bytes())  # from a process that we started
    return result


def _run(
    fabric: "Fabric", job: Callable[..., object], args: tuple[object, ...], answer: Path
) -> None:
    """The job on one process."""
    processes = Processes(fabric.global_rank, fabric.world_size, fabric.device)
    result = job(processes, *args)
    if processes.first:
        answer.write_bytes(pickle.dumps(result))
    processes.wait()
