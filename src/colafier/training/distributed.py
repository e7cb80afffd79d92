"""Processes that share each batch: how they are launched, and how they exchange tensors."""

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
    """The processes of a run, as seen from one of them; `Processes()` is a single process.

    It implements `contract.DistributedContext`.

    Args:
        rank: Number of this process.
        size: Number of processes.
        device: Device of this process; None: the CPU.
    """

    def __init__(self, rank: int = 0, size: int = 1, device: torch.device | None = None) -> None:
        self.rank = rank
        self.size = size
        self.device = torch.device("cpu") if device is None else device
        self._counts: list[int] = []

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    def all_gather(self, t: Tensor) -> Tensor:
        """Rows of all processes, in the order of the global batch, without gradient."""
        if self.size == 1:
            return t.detach()
        gathered, self._counts = self._gather(t.detach())
        return gathered

    def local_slice(self, t: Tensor) -> Tensor:
        """This process's part of a tensor whose rows are those of the last `all_gather`."""
        if self.size == 1:
            return t
        if len(t) != sum(self._counts):
            raise ValueError(f"{len(t)} rows, but the last gather gave {sum(self._counts)}")
        return torch.split(t, self._counts)[self.rank]

    def join(self, t: Tensor) -> Tensor:
        """Like `all_gather`, but without an effect on `local_slice`."""
        return t if self.size == 1 else self._gather(t)[0]

    def add(self, t: Tensor) -> Tensor:
        """The sum over processes, in place."""
        if self.size > 1:
            dist.all_reduce(t)
        return t

    def all_gather_object(self, value: Result) -> list[Result]:
        """The values of all processes, in the order of their ranks."""
        if self.size == 1:
            return [value]
        values: list[Result | None] = [None] * self.size
        dist.all_gather_object(values, value)
        return values  # type: ignore[return-value]  # every place has been filled

    def wait(self) -> None:
        """Wait until all processes have reached this point."""
        if self.size > 1:
            dist.barrier()

    def _gather(self, t: Tensor) -> tuple[Tensor, list[int]]:
        """Rows of all processes, and their counts.

        Rows are sent as bytes, so that any number type works, and padded to the largest count.
        """
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
    """Run `job(processes, *args)` on each process, and return the result of the first one.

    Several processes are spawned, so the job must be a function at module level, and a script that
    calls this needs `if __name__ == "__main__"`.

    Args:
        job: The function; its first argument is a `Processes`.
        *args: More arguments; they and the result must be picklable when there are several devices.
        devices: Number of processes; each has its own device, or a share of the CPU.
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
    # The result comes back in a file: Fabric's own return channel hangs once the result is larger
    # than a pipe (64 KB), and tensors sent through it are lost when their process ends.
    with TemporaryDirectory() as folder:
        answer = Path(folder) / "result"
        # bound with partial, because Fabric inspects arguments and refuses frozen dataclasses
        fabric.launch(partial(_run, job=job, args=args, answer=answer))
        result: Result = pickle.loads(answer.read_bytes())  # from a process that we started
    return result


def _run(
    fabric: "Fabric", job: Callable[..., object], args: tuple[object, ...], answer: Path
) -> None:
    """Run the job on one process; the first one stores the result."""
    processes = Processes(fabric.global_rank, fabric.world_size, fabric.device)
    result = job(processes, *args)
    if processes.first:
        answer.write_bytes(pickle.dumps(result))
    processes.wait()
