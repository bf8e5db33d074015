"""A whole UnICORNN network as one differentiable function with a gradient written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation
from undamped.kernels.reference import reference_oscillator_scan
from undamped.kernels.shared.allocate import empty
from undamped.kernels.shared.call_checks import check_lengths
from undamped.kernels.unicornn.backward import BackwardPass, Gradients
from undamped.kernels.unicornn.engine import Engine, engine_for
from undamped.kernels.unicornn.stack import Gradient, Kept, Layer, plan, run_stack

PER_LAYER = 4  # tensors: input weight, bias, weight, step


@dataclass(frozen=True)
class _Spec:
    """What is not a tensor."""

    layers: tuple[tuple[float, tuple[int, ...], tuple[int, ...]], ...]
    gradient: Gradient | None  # None when nobody will ask for one
    every: bool
    engine: Engine

    def parts(self, steps: int, state: Tensor) -> list[slice]:
        """Return the shares of the batch; what is stored whole is not shared."""
        batch, hidden = state.shape[2:]
        if self.gradient == "stored":
            return [slice(0, batch)]
        return self.engine.parts(steps, batch, hidden)

    def product(self, x: Tensor, hidden: int) -> int:
        """How many multiplications the largest product of a chunk makes."""
        columns = x.shape[1] * hidden
        chunk = self.engine.chunk(x.shape[0], columns, len(self.layers), x.element_size())
        rows = chunk * x.shape[1]
        return rows * hidden * max(sum(sizes) for _, _, sizes in self.layers)

    def layers_of(self, parameters: tuple[Tensor, ...]) -> list[Layer]:
        layers = []
        for i, (alpha, sources, sizes) in enumerate(self.layers):
            input_weight, bias, weight, step = parameters[PER_LAYER * i : PER_LAYER * (i + 1)]
            layers.append(Layer(input_weight, bias, weight, step, alpha, sources, sizes))
        return layers


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
        layers: Parameters and wiring of each layer.
        state: Positions and velocities before the first step, (layers, batch, hidden) each.
        lengths: (batch,), where sequences end.
        masks: (layers − 1, batch, hidden), factors on the outputs that other layers see.
        gradient: How the backward pass gets its states.
        every: Whether all outputs of the last layer are wanted.

    Returns:
        The positions of the last layer (time, batch, hidden) or None, and the final state.
    """
    check_lengths("oscillator_stack", lengths, x.shape[0], x.shape[1])
    parameters = [t for c in layers for t in (c.input_weight, c.bias, c.weight, c.step)]
    needs_grad = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *state, *parameters))
    wiring = tuple((c.alpha, c.sources, c.sizes) for c in layers)
    engine = engine_for(implementation(x, *state, *parameters, gpu=True))
    spec = _Spec(wiring, gradient if needs_grad else None, every, engine)
    output, position, velocity = _Stack.apply(spec, x, *state, masks, lengths, *parameters)
    return (output if every else None), (position, velocity)


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        spec: _Spec,
        x: Tensor,
        position: Tensor,
        velocity: Tensor,
        masks: Tensor | None,
        lengths: Tensor | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        inputs = _detached(spec, x, masks, lengths, parameters)
        start = torch.stack([position.detach(), velocity.detach()])  # (2, layers, batch, hidden)
        layers, batch, hidden = start.shape[1:]
        output = empty((x.shape[0] if spec.every else 0, batch, hidden), x)

        def share(part: slice) -> tuple[Tensor, Kept | None, dict[int, Tensor]]:
            work = plan(*inputs, spec.engine, part)
            state = start[:, :, part].contiguous()
            inner = state.view(2, layers, work.columns)
            kept = run_stack(work, inner, spec.gradient, output[:, part] if spec.every else None)
            return state, kept, work.replay

        parts = spec.parts(x.shape[0], start)
        works = [partial(share, part) for part in parts]
        results = spec.engine.together(works, spec.product(x, hidden))
        end = torch.cat([state for state, _, _ in results], dim=2)
        position_end, velocity_end = end[0].clone(), end[1].clone()
        kept = _together([part for _, part, _ in results if part is not None])
        if kept is not None:
            # The output stands for the last of the stored positions, so that torch notices if
            # somebody changes it in place.
            positions = kept.positions[:-1] if spec.every else kept.positions
            ctx.spec, ctx.border_spacing, ctx.stored = spec, kept.every, len(positions)
            # The backward pass takes the same shares, whatever torch's threads are by then.
            ctx.parts, ctx.replayed = parts, tuple(results[0][2])
            replayed = [tanh_values for _, _, replay in results for tanh_values in replay.values()]
            ctx.save_for_backward(
                x,
                position,
                velocity,
                masks,
                lengths,
                position_end,
                velocity_end,
                output if kept.positions and spec.every else None,
                kept.borders,
                *positions,
                *kept.tanh_values,
                *replayed,
                *parameters,
            )
        return output, position_end, velocity_end

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved, spec = ctx.saved_tensors, ctx.spec
        x, position, velocity, masks, lengths, position_end, velocity_end, output, borders = saved[
            :9
        ]
        kept_tensors = saved[9 : -PER_LAYER * len(spec.layers)]
        parameters = saved[-PER_LAYER * len(spec.layers) :]
        if torch.is_grad_enabled():
            inputs = (x, position, velocity, *parameters)
            return _differentiable_gradients(spec, inputs, masks, lengths, grads, ctx)
        whole = _detached(spec, x, masks, lengths, parameters)
        end = torch.stack([position_end, velocity_end])  # (2, layers, batch, hidden)
        grad_end = torch.stack([grads[1], grads[2]])
        layers, _, hidden = end.shape[1:]
        wide = len(ctx.replayed)
        end_of_tanh_values = len(kept_tensors) - wide * len(ctx.parts)
        positions, tanh_values = (
            kept_tensors[: ctx.stored],
            kept_tensors[ctx.stored : end_of_tanh_values],
        )
        replayed = kept_tensors[end_of_tanh_values:]
        if output is not None:
            positions = (*positions, output.view(output.shape[0], -1))

        def share(part: slice, replay: dict[int, Tensor]) -> BackwardPass:
            work = plan(*whole, spec.engine, part)
            work.replay = replay
            shape = (2, layers, work.columns)
            columns = slice(part.start * hidden, part.stop * hidden)
            border = borders[..., columns].contiguous()
            sums = Gradients(
                grad_end[:, :, part].reshape(shape).clone(),
                torch.zeros(3, *shape[1:], dtype=torch.float64, device=x.device),
                [torch.zeros_like(c.input_weight) for c in work.layers],
                empty(work.x.shape, work.x) if ctx.needs_input_grad[1] else None,
            )
            visit = BackwardPass(
                work,
                Kept(border, ctx.border_spacing, tuple(positions), tuple(tanh_values)),
                end[:, :, part].reshape(shape),
                grads[0][:, part] if spec.every else None,
                sums,
            )
            visit.run()
            return visit

        by_part = [replayed[i * wide : (i + 1) * wide] for i in range(len(ctx.parts))]
        works = [
            partial(share, part, dict(zip(ctx.replayed, own, strict=True)))
            for part, own in zip(ctx.parts, by_part, strict=True)
        ]
        visits = spec.engine.together(works, spec.product(x, hidden))
        next((visit for visit in visits if visit.missed), visits[0]).warn()
        sums = [visit.gradients for visit in visits]
        by_column = torch.cat([part.columns for part in sums], dim=-1)
        totals = by_column.view(3, layers, -1, hidden).sum(2).to(x.dtype)
        weights = [
            torch.stack(parts).sum(0)
            for parts in zip(*(part.input_weights for part in sums), strict=True)
        ]
        gradients = [
            gradient
            for at, input_weight in enumerate(weights)
            for gradient in (input_weight, totals[2, at], totals[0, at], totals[1, at])
        ]
        initial = torch.cat([part.state for part in sums], dim=-1).view(2, layers, -1, hidden)
        grad_x = [part.x for part in sums if part.x is not None]
        return (
            None,
            torch.cat(grad_x, dim=1) if grad_x else None,
            initial[0],
            initial[1],
            None,
            None,
            *gradients,
        )


def _together(parts: list[Kept]) -> Kept | None:
    """Put what was kept of each part of the batch side by side; columns are batch × hidden."""
    if len(parts) < 2:
        return parts[0] if parts else None
    return Kept(torch.cat([part.borders for part in parts], dim=-1), parts[0].every)


def _detached(
    spec: _Spec,
    x: Tensor,
    masks: Tensor | None,
    lengths: Tensor | None,
    parameters: tuple[Tensor, ...],
) -> tuple[list[Layer], Tensor, Tensor | None, Tensor | None]:
    plain = tuple(parameter.detach().contiguous() for parameter in parameters)
    return spec.layers_of(plain), x.detach(), lengths, None if masks is None else masks.detach()


def reference_stack(
    x: Tensor,
    layers: list[Layer],
    state: tuple[Tensor, Tensor],
    lengths: Tensor | None = None,
    masks: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The same as `oscillator_stack` in plain loops: its meaning, and its second derivative."""
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
    spec: _Spec,
    inputs: tuple[Tensor, ...],
    masks: Tensor | None,
    lengths: Tensor | None,
    grads: tuple[Tensor, ...],
    ctx: Any,
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated again: slow, through the plain loop."""
    needed = (*ctx.needs_input_grad[1:4], *ctx.needs_input_grad[6:])
    # Views stand for the inputs, so that only the path through this function is followed.
    stand_ins = [t.view_as(t) for t in inputs]
    layers = spec.layers_of(tuple(stand_ins[3:]))
    output, (end, velocity_end) = reference_stack(
        stand_ins[0], layers, (stand_ins[1], stand_ins[2]), lengths, masks
    )
    results, weights = (end, velocity_end), grads[1:]
    if spec.every:
        results, weights = (output, *results), grads
    sources = [t for t, want in zip(stand_ins, needed, strict=True) if want]
    found = iter(
        torch.autograd.grad(results, sources, weights, create_graph=True, allow_unused=True)
    )
    gradients = [next(found) if want else None for want in needed]
    return (None, *gradients[:3], None, None, *gradients[3:])
