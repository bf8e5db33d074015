"""coupled_scan: walk through time where a step is one linear map and something elementwise.

The input of all steps has been projected before. A step then is

    product = L(carried)                       one matrix product, or a structured map
    carried' = f(product, projected, carried)  elementwise, one fused kernel

and the way back is written by hand: it keeps only what f's derivative needs, makes one
transposed product a step, and leaves the gradient of L to one large product at the end.
Complex states are pairs of real ones side by side, so a complex matrix is a real one of twice
the size and needs nothing of its own here.

What is elementwise is a `Step` (`coupled_activation`, `coupled_euler`, `coupled_gated`, …), what is
linear an `Operator` (`coupled_operators`). The meaning of both is the `advance` of the cell that
uses them; `cells.cell.reference_scan` is the reference, and takes over off the CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Operator(ABC):
    """A linear map of rows, and the gradients of the tensors it is made of."""

    width: int = 0
    """How wide an answer is; 0 where it is as wide as what is read."""

    @abstractmethod
    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Take the tensors the map is made of, detached, and prepare to be applied."""

    @abstractmethod
    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write L(rows), plus `add` where it is given, to `out`."""

    @abstractmethod
    def transpose(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write Lᵀ(rows), plus `add` where it is given, to `out`."""

    @abstractmethod
    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of all tensors from all (inputs, gradients) rows at once."""


class Step(ABC):
    """The elementwise part of a step.

    `carried` (time + 1, batch, width) is what the operator reads, with the first state at 0;
    `memory` is the same for what it does not read, or None. `product` (time, batch, …) comes
    in as the operator's answer, and may be overwritten with what `backward` needs.
    """

    adds_projection = True
    """Whether the operator's answer and the projected input are simply added."""
    keeps_projection = False
    """Whether `backward` reads the projected input again."""
    in_place = False
    """Whether `product` at t is `carried` at t + 1, to be changed where it stands."""
    has_memory = False
    """Whether part of the state is not read by the operator."""
    passes_on = False
    """Whether the old state reaches the new one beside the operator."""

    def bind(
        self,
        parameters: Sequence[Tensor],
        projected: Tensor,
        product: Tensor,
        carried: Tensor,
        memory: Tensor | None,
    ) -> None:
        """Take the arrays of a whole scan; kernels are called with them and a time."""
        self.parameters = [parameter.contiguous().numpy() for parameter in parameters]
        self.projected, self.product = projected.numpy(), product.numpy()
        self.product_rows = product
        self.carried = carried.numpy()
        self.memory = None if memory is None else memory.numpy()
        self.carried_rows: Any = carried
        self.memory_rows: Any = memory

    def bind_backward(self, gradient: Tensor, projected_gradient: Tensor | None) -> None:
        """Take the arrays that `backward` fills: (time, batch, …) for the operator's answer and,
        where it is not the same, for the projected input."""
        self.gradient = gradient.numpy()
        shared = projected_gradient is None
        self.projected_gradient = self.gradient if shared else projected_gradient.numpy()
        self.parameter_gradients = [parameter * 0 for parameter in self.parameters]

    def release(self) -> None:
        """Let go of the arrays, so that they live no longer than the scan needs them."""
        arrays = ("projected", "product", "carried", "memory", "gradient", "projected_gradient")
        for name in (*arrays, "product_rows", "carried_rows", "memory_rows"):
            setattr(self, name, None)

    @abstractmethod
    def forward(self, t: int) -> None:
        """Make `carried` (and `memory`) at t + 1."""

    @abstractmethod
    def backward(self, t: int, carried_gradient: Any, memory_gradient: Any) -> None:
        """Fill the gradients at t; overwrite the two given with what goes directly to t."""


def coupled_scan(
    step: Step,
    operator: Operator,
    projected: Tensor,
    state: tuple[Tensor, ...],
    linear: Sequence[Tensor],
    parameters: Sequence[Tensor] = (),
    lengths: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Walk through time; return the outputs (time, batch, hidden) and the final state.

    Args:
        step: The elementwise part.
        operator: The linear part.
        projected: (time, batch, …), the projected input.
        state: The first state; the output is its first tensor. What the operator reads is all
            of it side by side, except a last tensor for steps that have a memory.
        linear: The tensors the operator is made of.
        parameters: The tensors of the elementwise part.
        lengths: (batch,) where sequences are over; their states stay and outputs are zero.
    """
    counts = (len(state), len(linear), len(parameters))
    output, *finals = _CoupledScan.apply(
        step, operator, counts, lengths, projected, *state, *linear, *parameters
    )
    return output, tuple(finals)


def _finished(lengths: Tensor | None, steps: int) -> list[Tensor] | None:
    """Return for each time the rows whose sequence is over, or None without lengths."""
    if lengths is None:
        return None
    lengths = lengths.cpu()
    return [(lengths <= t).nonzero().squeeze(1) for t in range(steps)]


class _CoupledScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        step: Step,
        operator: Operator,
        counts: tuple[int, int, int],
        lengths: Tensor | None,
        projected: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        states, linear, parameters = _split(tensors, counts)
        steps, batch = projected.shape[:2]
        projected = projected.detach().contiguous()
        read = states[:-1] if step.has_memory else states
        widths = [part.shape[1] for part in read]
        carried = projected.new_empty(steps + 1, batch, sum(widths))
        torch.cat(read, dim=1, out=carried[0])
        memory = None
        if step.has_memory:
            memory = projected.new_empty(steps + 1, batch, states[-1].shape[1])
            memory[0] = states[-1]
        operator.bind(linear)
        if step.in_place:
            product = carried[1:]
        else:
            product = projected.new_empty(steps, batch, operator.width or carried.shape[2])
        step.bind(parameters, projected, product, carried, memory)
        finished = _finished(lengths, steps)
        for t in range(steps):
            operator.apply(carried[t], projected[t] if step.adds_projection else None, product[t])
            step.forward(t)
            if finished is not None and len(rows := finished[t]):
                carried[t + 1][rows] = carried[t][rows]
                if memory is not None:
                    memory[t + 1][rows] = memory[t][rows]
        step.release()
        ctx.step, ctx.operator, ctx.counts, ctx.finished = step, operator, counts, finished
        ctx.widths = widths
        ctx.projected_width = projected.shape[2]
        ctx.save_for_backward(
            carried,
            memory,
            None if step.in_place else product,
            projected if step.keeps_projection else None,
            *linear,
            *parameters,
        )
        finals = [part.clone() for part in carried[-1].split(widths, dim=1)]
        if memory is not None:
            finals.append(memory[-1].clone())
        output = carried[1:, :, : widths[0]]
        if finished is not None:
            time = torch.arange(steps).unsqueeze(1)
            assert lengths is not None
            output = output.masked_fill((time >= lengths.cpu()).unsqueeze(-1), 0)
        return output, *finals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        output_gradient, *final_gradients = gradients
        step, operator, finished = ctx.step, ctx.operator, ctx.finished
        carried, memory, product, projected, *tensors = ctx.saved_tensors
        linear, parameters = tensors[: ctx.counts[1]], tensors[ctx.counts[1] :]
        steps, batch = carried.shape[0] - 1, carried.shape[1]
        product = carried[1:] if product is None else product
        operator.bind(linear)
        gradient = torch.empty_like(product)
        projected_gradient = None
        if not step.adds_projection:
            projected_gradient = carried.new_empty(steps, batch, ctx.projected_width)
        projected = gradient if projected is None else projected
        step.bind(parameters, projected, product, carried, memory)
        step.bind_backward(gradient, projected_gradient)
        flow, memory_flow = _last_gradients(carried, memory, ctx.widths, final_gradients)
        flow_array = flow.numpy()
        memory_array = None if memory_flow is None else memory_flow.numpy()
        shown = flow[:, : ctx.widths[0]]
        for t in range(steps - 1, -1, -1):
            shown_gradient, waiting = output_gradient[t], None
            if finished is not None and len(rows := finished[t]):
                # A finished sequence neither shows its output nor moves: its gradient waits.
                waiting = [(part, part[rows]) for part in (flow, memory_flow) if part is not None]
                for part, _ in waiting:
                    part[rows] = 0
                shown_gradient = shown_gradient.index_fill(0, rows, 0)
            shown += shown_gradient
            step.backward(t, flow_array, memory_array)
            operator.transpose(gradient[t], flow if step.passes_on else None, flow)
            if waiting is not None and finished is not None:
                for part, kept in waiting:
                    part[finished[t]] = kept
        linear_gradients = operator.gradients(carried[:-1].flatten(0, 1), gradient.flatten(0, 1))
        parameter_gradients = [torch.from_numpy(part) for part in step.parameter_gradients]
        step.release()
        state_gradients = list(flow.split(ctx.widths, dim=1))
        if memory_flow is not None:
            state_gradients.append(memory_flow)
        first = gradient if projected_gradient is None else projected_gradient
        return (
            None,
            None,
            None,
            None,
            first,
            *state_gradients,
            *linear_gradients,
            *parameter_gradients,
        )


def _split(tensors: Sequence[Tensor], counts: Sequence[int]) -> list[list[Tensor]]:
    parts, start = [], 0
    for count in counts:
        parts.append([tensor.detach() for tensor in tensors[start : start + count]])
        start += count
    return parts


def _last_gradients(
    carried: Tensor, memory: Tensor | None, widths: list[int], finals: Sequence[Tensor]
) -> tuple[Tensor, Tensor | None]:
    """Join the gradients of the final state, as buffers that the way back overwrites."""
    flow = torch.cat(list(finals[: len(widths)]), dim=1)
    return flow, None if memory is None else finals[-1].contiguous().clone()
