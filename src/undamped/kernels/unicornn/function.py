"""A whole UnICORNN network as one differentiable function with an explicit gradient."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from undamped.kernels.reference import reference_oscillator_scan
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.call_checks import check_lengths
from undamped.kernels.shared.columns import Columns, columns_for
from undamped.kernels.shared.limits import KernelLimits, current_limits
from undamped.kernels.shared.operator import save, saved
from undamped.kernels.unicornn.backward import BackwardPass, Gradients
from undamped.kernels.unicornn.stack import Checkpoints, Gradient, Layer, Work, run_stack

TENSORS = ("input_weight", "bias", "weight", "step")


@dataclass(frozen=True)
class _Plan:
    """The layers, whose tensors are arguments of every call, and the options of a pass."""

    layers: tuple[Layer, ...]
    gradient: Gradient | None  # None if there is no backward pass
    every: bool
    columns: Columns
    limits: KernelLimits
    chunk: int  # steps of a chunk, the same in both passes

    def with_tensors(self, tensors: list[Tensor]) -> list[Layer]:
        """Return the layers with these parameters."""
        groups = zip(*[iter(tensors)] * len(TENSORS), strict=True)
        return [
            replace(layer, **dict(zip(TENSORS, group, strict=True)))
            for layer, group in zip(self.layers, groups, strict=True)
        ]

    def works(
        self,
        x: Tensor,
        lengths: Tensor | None,
        masks: Tensor | None,
        parameters: list[Tensor],
        shards: list[slice],
    ) -> list[Work]:
        """Return the workspaces of all shards."""
        layers = self.with_tensors([tensor.detach().contiguous() for tensor in parameters])
        inputs = (x.detach(), lengths, None if masks is None else masks.detach())
        sizes = (self.limits, self.chunk)
        return [Work(*sizes, self.columns, layers, *inputs, shard) for shard in shards]

    def run(self, works: list[Any], x: Tensor) -> list[Any]:
        """Do the work of all shards."""
        numbers = x.shape[1] * self.layers[0].weight.shape[0]
        widest = max(sum(layer.sizes) for layer in self.layers)
        return self.columns.run_all(works, self.chunk * numbers * widest)


def oscillator_stack(
    x: Tensor,
    layers: list[Layer],
    state: tuple[Tensor, Tensor],
    *,
    lengths: Tensor | None = None,
    masks: Tensor | None = None,
    gradient: Gradient = "reversible",
    every: bool = True,
) -> tuple[Tensor | None, tuple[Tensor, Tensor]]:
    """Run layers of oscillators over a sequence, chunk by chunk in time, on its device.

    Args:
        x: (time, batch, input).
        layers: Parameters and connections of each layer.
        state: Positions and velocities before the first step, (layers, batch, hidden) each.
        lengths: (batch,), where sequences end.
        masks: (layers − 1, batch, hidden), factors on the outputs that other layers read.
        gradient: The method by which the backward pass obtains states.
        every: Whether to return all outputs of the last layer.

    Returns:
        The positions of the last layer (time, batch, hidden) or None, and the final state.
    """
    check_lengths("oscillator_stack", lengths, x.shape[0], x.shape[1])
    parameters = [getattr(layer, name) for layer in layers for name in TENSORS]
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *state, *parameters))
    columns, numbers = columns_for(x), x.shape[1] * layers[0].weight.shape[0]
    chunk = columns.chunk(len(x), numbers, len(layers), x.element_size())
    stored = gradient if needs_grad else None
    plan = _Plan(tuple(layers), stored, every, columns, current_limits(), chunk)
    output, position, velocity = _Stack.apply(plan, x, *state, masks, lengths, *parameters)
    return (output if every else None), (position, velocity)


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        x: Tensor,
        position: Tensor,
        velocity: Tensor,
        masks: Tensor | None,
        lengths: Tensor | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        start = torch.stack([position.detach(), velocity.detach()], dim=1)
        layers, _, batch, hidden = start.shape
        output = empty((x.shape[0] if plan.every else 0, batch, hidden), x)
        shards = [slice(0, batch)]  # states of all steps are stored in one array
        if plan.gradient != "stored":
            shards = plan.columns.shards(x.shape[0], batch, hidden)

        def run(work: Work) -> tuple[Tensor, Checkpoints | None]:
            state = start[:, :, work.shard].contiguous()
            into = output[:, work.shard] if plan.every else None
            return state, run_stack(work, state.view(layers, 2, -1), plan.gradient, into)

        works = plan.works(x, lengths, masks, list(parameters), shards)
        results = plan.run([partial(run, work) for work in works], x)
        end = torch.cat([state for state, _ in results], dim=2)
        position_end, velocity_end = end[:, 0].clone(), end[:, 1].clone()
        stored = [checkpoints for _, checkpoints in results if checkpoints is not None]
        if stored:
            # The output is saved in place of the last stored positions, so that torch detects if
            # it is modified in place.
            positions = stored[0].positions[:-1] if plan.every else stored[0].positions
            # The backward pass uses the same shards, even if torch's threads have changed.
            ctx.plan, ctx.shards, ctx.replay = plan, shards, tuple(works[0].replay)
            save(
                ctx,
                x=x,
                state=[position, velocity],
                masks=masks,
                lengths=lengths,
                end=[position_end, velocity_end],
                output=output if stored[0].positions and plan.every else None,
                checkpoints=[checkpoints.states for checkpoints in stored],
                spacing=stored[0].spacing,
                positions=list(positions),
                tanh_values=list(stored[0].tanh_values),
                replay=[values for work in works for values in work.replay.values()],
                parameters=list(parameters),
            )
        return output, position_end, velocity_end

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, plan = saved(ctx), ctx.plan
        x, masks, lengths = values["x"], values["masks"], values["lengths"]
        if torch.is_grad_enabled():
            inputs = (x, *values["state"], *values["parameters"])
            return _differentiable_gradients(plan, inputs, masks, lengths, grads, ctx)
        end, grad_end = torch.stack(values["end"], dim=1), torch.stack(grads[1:], dim=1)
        layers, _, _, hidden = end.shape
        positions = values["positions"]
        if values["output"] is not None:
            positions = [*positions, values["output"].view(len(x), -1)]
        replay = zip(*[iter(values["replay"])] * len(ctx.replay), strict=True)

        def run(work: Work, states: Tensor) -> BackwardPass:
            final, grad_final = (
                part[:, :, work.shard].reshape(layers, 2, -1) for part in (end, grad_end)
            )
            sums = Gradients(
                torch.cat([final[:, 1:], grad_final], dim=1),
                torch.zeros(layers, 3, work.width, dtype=torch.float64, device=x.device),
                [torch.zeros_like(layer.input_weight) for layer in work.layers],
                empty(work.x.shape, work.x) if ctx.needs_input_grad[1] else None,
            )
            tanh_values = tuple(values["tanh_values"])
            checkpoints = Checkpoints(states, values["spacing"], tuple(positions), tanh_values)
            grad_output = grads[0][:, work.shard] if plan.every else None
            visit = BackwardPass(work, checkpoints, final, grad_output, sums)
            visit.run()
            return visit

        works = plan.works(x, lengths, masks, values["parameters"], ctx.shards)
        for work, stored in zip(works, replay, strict=False):
            work.replay = dict(zip(ctx.replay, stored, strict=True))
        pairs = zip(works, values["checkpoints"], strict=True)
        visits = plan.run([partial(run, *pair) for pair in pairs], x)
        next((visit for visit in visits if visit.missed), visits[0]).warn()
        sums = [visit.gradients for visit in visits]
        by_column = torch.cat([part.columns for part in sums], dim=-1)
        totals = by_column.view(layers, 3, -1, hidden).sum(2).to(x.dtype)
        weights = [
            torch.stack(parts).sum(0)
            for parts in zip(*(part.input_weights for part in sums), strict=True)
        ]
        gradients = [
            gradient
            for input_weight, (weight, step, bias) in zip(weights, totals, strict=True)
            for gradient in (input_weight, bias, weight, step)
        ]
        initial = torch.cat([part.state[:, 1:] for part in sums], dim=-1)
        grad_position, grad_velocity = initial.view(layers, 2, -1, hidden).unbind(1)
        grad_x = [part.x for part in sums if part.x is not None]
        grad_input = torch.cat(grad_x, dim=1) if grad_x else None
        return None, grad_input, grad_position, grad_velocity, None, None, *gradients


def reference_stack(
    x: Tensor,
    layers: list[Layer],
    state: tuple[Tensor, Tensor],
    lengths: Tensor | None = None,
    masks: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The same as `oscillator_stack` in plain loops: its reference, also for second derivatives."""
    if lengths is not None:
        over = torch.arange(x.shape[0], device=x.device).unsqueeze(1) >= lengths
        x = x.masked_fill(over.unsqueeze(-1), 0)
    outputs, ends = [x], []
    for at, layer in enumerate(layers):
        source = torch.cat([outputs[i] for i in layer.sources], dim=-1)
        projected = torch.nn.functional.linear(source, layer.input_weight, layer.bias)
        start = (state[0][at], state[1][at])
        output, end = reference_oscillator_scan(
            projected, layer.weight, layer.step, layer.alpha, start, lengths
        )
        ends.append(end)
        outputs.append(output * masks[at] if masks is not None and at + 1 < len(layers) else output)
    return outputs[-1], (torch.stack([e[0] for e in ends]), torch.stack([e[1] for e in ends]))


def _differentiable_gradients(
    plan: _Plan,
    inputs: tuple[Tensor, ...],
    masks: Tensor | None,
    lengths: Tensor | None,
    grads: tuple[Tensor, ...],
    ctx: Any,
) -> tuple[Tensor | None, ...]:
    """Return gradients that can be differentiated again, by the slow plain loop."""
    needed = (*ctx.needs_input_grad[1:4], *ctx.needs_input_grad[6:])
    # Views replace the inputs, so that only paths through this function are differentiated.
    x, position, velocity, *parameters = views = [tensor.view_as(tensor) for tensor in inputs]
    layers = plan.with_tensors(parameters)
    output, ends = reference_stack(x, layers, (position, velocity), lengths, masks)
    results, weights = (output, *ends) if plan.every else ends, grads if plan.every else grads[1:]
    sources = [tensor for tensor, need in zip(views, needed, strict=True) if need]
    gradients = iter(
        torch.autograd.grad(results, sources, weights, create_graph=True, allow_unused=True)
    )
    grad_x, grad_position, grad_velocity, *rest = (
        next(gradients) if need else None for need in needed
    )
    return None, grad_x, grad_position, grad_velocity, None, None, *rest
