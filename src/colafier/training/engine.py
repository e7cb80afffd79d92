"""The optimizer step, on one or several processes, without a DDP wrapper around the method.

With a DDP wrapper, a bound `method.loss` skips the synchronization, unused networks raise, and a
process with nothing to learn makes the others hang. So gradients are averaged here.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from colafier.methods.contract import Batch, Method, Pass, RowTable, Terms
from colafier.training.distributed import Processes
from colafier.training.optimizers import OptimizerSettings


class Engine:
    """Takes the optimizer steps of a method; it implements `contract.Engine`.

    A loss term is a mean over this process's rows of the batch. Processes may have different
    numbers of rows, so gradients are weighted by them, as if each loss were scaled by
    local rows x processes / all rows.

    Args:
        method: The method, which must be set up and on its device.
        settings: The run's optimizer settings, which the method may override.
        processes: The processes that share the batches.
    """

    def __init__(self, method: Method, settings: OptimizerSettings, processes: Processes) -> None:
        self.method = method
        self.processes = processes
        self.optimizers = method.optimizers(settings.make)
        self.skipped_steps = 0
        self._loss = 0.0
        self._rates = {
            name: [group["lr"] for group in optimizer.param_groups]
            for name, optimizer in self.optimizers.items()
        }
        self._active = tuple(self.optimizers)

    def begin_pass(self, part: Pass, run_scale: float = 1.0) -> None:
        """Choose optimizers and learning rates for a pass; each row may now be written once.

        Args:
            part: The pass.
            run_scale: Factor on the learning rates, for a pass that does not set `lr_scale`.
        """
        self._active = self._known(part.optimizers, tuple(self.optimizers))
        for name in self._known(part.restart, ()):
            self.optimizers[name].state.clear()
        scale = run_scale if part.lr_scale is None else part.lr_scale
        for name, optimizer in self.optimizers.items():
            for group, rate in zip(optimizer.param_groups, self._rates[name], strict=True):
                group["lr"] = rate * scale
        for table in self._tables():
            table.begin_pass()

    def end_pass(self) -> None:
        """Average the BatchNorm statistics, which each process has from its own rows only."""
        if self.processes.size == 1:
            return
        norms = [m for m in self.method.modules() if isinstance(m, _BatchNorm)]
        statistics = [b for m in norms for b in m.buffers() if b.is_floating_point()]
        if not statistics:
            return
        flat = torch.cat([s.flatten() for s in statistics])
        _spread(self.processes.add(flat) / self.processes.size, statistics)

    def minimize(
        self, loss: Callable[[Batch], Terms], batch: Batch, only: tuple[str, ...] = ()
    ) -> Terms:
        """Take one step of the pass's optimizers, or `only` of some, then commit staged rows.

        If the loss or a gradient is not finite on any process, the step is skipped on all of them:
        parameters, buffers and row tables stay as they were.
        """
        stepping = [
            self.optimizers[n] for n in self._known(only, self._active) if n in self._active
        ]
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        before = self._snapshot()
        terms = loss(batch)
        learned = [term for term in terms.values() if term.requires_grad]
        total = torch.stack(learned).sum() if learned else torch.zeros((), device=batch.y.device)
        if learned:
            total.backward()  # type: ignore[no-untyped-call]
        params = [p for o in stepping for group in o.param_groups for p in group["params"]]
        value = self._average(params, total.detach(), len(batch))
        gradients = [p.grad for p in params if p.grad is not None]
        if not gradients:
            name, there = type(self.method).__name__, ", ".join(terms) or "there are none"
            raise RuntimeError(
                f"no term of {name} ({there}) has a gradient for the optimizers of this pass; "
                "at least one term must depend on their parameters"
            )
        norm = nn.utils.get_total_norm(gradients)
        if torch.isfinite(norm) and torch.isfinite(value):
            for optimizer in stepping:
                optimizer.step()
            self._commit()
            self._loss += float(value)
        else:
            self._undo(before)
        return {name: term.detach() for name, term in terms.items()}

    def take_loss(self) -> float:
        """The sum of the losses that were minimized since the last call."""
        loss, self._loss = self._loss, 0.0
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Optimizer states and the count of skipped steps."""
        states = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        return {"optimizers": states, "skipped_steps": self.skipped_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a saved state."""
        if list(state["optimizers"]) != list(self.optimizers):
            raise RuntimeError(
                f"the checkpoint holds optimizers {', '.join(state['optimizers'])}, "
                f"the method has {', '.join(self.optimizers)}"
            )
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
            _check_shapes(optimizer)
        self.skipped_steps = state["skipped_steps"]

    def _known(self, names: tuple[str, ...] | None, default: tuple[str, ...]) -> tuple[str, ...]:
        """The names, or the default if there are none; an unknown name is an error."""
        for name in names or ():
            if name not in self.optimizers:
                there = ", ".join(self.optimizers)
                raise ValueError(f"no optimizer {name!r} in this method; there are {there}")
        return names or default

    def _tables(self) -> list[RowTable]:
        return [module for module in self.method.modules() if isinstance(module, RowTable)]

    def _average(self, params: list[nn.Parameter], loss: Tensor, rows: int) -> Tensor:
        """Average gradients over all rows with one all-reduce; returns the average loss.

        A parameter that has no gradient on any process keeps none, so its optimizer skips it.
        """
        if self.processes.size == 1:
            return loss
        flags = loss.new_tensor([p.grad is not None for p in params], dtype=torch.float32)
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
        flat = torch.cat([loss[None], *(part.flatten() for part in parts)]) * rows
        counted = torch.cat([flat, flags, flags.new_tensor([rows])])
        sizes = [len(flat), len(flags), 1]
        flat, flags, total = torch.split(self.processes.add(counted), sizes)
        flat = flat / total
        _spread(flat[1:], parts)
        for p, part, flag in zip(params, parts, flags.tolist(), strict=True):
            p.grad = part if flag else None
        return flat[0]

    def _commit(self) -> None:
        """Store the staged rows of all processes in every process's tables."""
        tables = self._tables()
        if not tables:
            return
        staged = [table.take_staged() or _nothing(table) for table in tables]
        counts = torch.tensor([len(index) for index, _ in staged], device=self.processes.device)
        for table, rows, count in zip(
            tables, staged, self.processes.add(counts).tolist(), strict=True
        ):
            if count:
                table.commit(*(self.processes.join(part) for part in rows))

    def _snapshot(self) -> list[Tensor]:
        return [buffer.clone() for buffer in self._buffers()]

    def _undo(self, before: list[Tensor]) -> None:
        """Restore the buffers and discard the staged rows of a step that was not finite."""
        self.skipped_steps += 1
        for table in self._tables():
            table.take_staged()
        for buffer, value in zip(self._buffers(), before, strict=True):
            buffer.copy_(value)

    def _buffers(self) -> list[Tensor]:
        """Buffers that a forward pass may change, such as BatchNorm's; row tables stage theirs."""
        modules = [m for m in self.method.modules() if not isinstance(m, RowTable)]
        return [buffer for m in modules for buffer in m.buffers(recurse=False)]


def _check_shapes(optimizer: torch.optim.Optimizer) -> None:
    """Refuse a stored state that fits no parameter, which torch notices only at the next step."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            fits = isinstance(value, Tensor) and value.shape in (parameter.shape, torch.Size())
            if not fits and value is not None:
                raise ValueError(f"{name} of an optimizer does not fit its parameter")


def _nothing(table: RowTable) -> tuple[Tensor, Tensor]:
    values = table.values[:0]
    return torch.empty(0, dtype=torch.long, device=values.device), values


def _spread(flat: Tensor, tensors: list[Tensor]) -> None:
    """Copy the parts of a flat tensor into tensors, in order."""
    for tensor, part in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view_as(tensor))
