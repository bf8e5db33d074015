"""The scans as plain loops: the references of the kernels, which run where no kernel applies."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Literal

import torch
from torch import Tensor

State = tuple[Tensor, ...]
PositionVelocity = tuple[Tensor, Tensor]


def freeze_finished(new: State, old: State, running: Tensor) -> State:
    """Return the new state where `running` is true, the old one elsewhere."""
    return tuple(torch.where(running, n, o) for n, o in zip(new, old, strict=True))


def step_by_step(
    advance: Callable[[Any, State], State],
    inputs: Tensor,
    state: State,
    lengths: Tensor | None,
    *,
    output: Callable[[State], Tensor] = itemgetter(0),
    freeze: Callable[[State, State, Tensor], State] = freeze_finished,
) -> tuple[Tensor, Any]:
    """Iterate through time; return all outputs and the final state.

    Args:
        advance: Maps the input of one time and a state to the next state.
        inputs: (time, batch, …).
        state: The state before the first step, (batch, …) each.
        lengths: (batch,), where sequences end: after that their states stay and their outputs are
            zero.
        output: Returns the output of a state; its first tensor by default.
        freeze: Returns the state after a step in which some sequences have ended.
    """
    outputs, dims = [], (1,) * (state[0].dim() - 1)
    for t, inputs_t in enumerate(inputs.unbind(0)):
        advanced = advance(inputs_t, state)
        if lengths is None:
            state = advanced
            outputs.append(output(state))
        else:
            running = (t < lengths).view(-1, *dims)
            state = freeze(advanced, state, running)
            visible = output(state)
            outputs.append(torch.where(running, visible, torch.zeros_like(visible)))
    return torch.stack(outputs), state


def reference_oscillator_scan(
    projected: Tensor,  # (time, batch, hidden)
    weight: Tensor,  # (hidden,)
    step: Tensor,  # (hidden,)
    alpha: float,
    state: PositionVelocity,  # (batch, hidden) each
    lengths: Tensor | None = None,  # (batch,)
) -> tuple[Tensor, PositionVelocity]:
    """z' = z − s ⊙ (tanh(w ⊙ y + p) + α y), y' = y + s ⊙ z', step after step."""

    def advance(projected_t: Tensor, state: State) -> State:
        position, velocity = state
        force = torch.tanh(weight * position + projected_t) + alpha * position
        velocity = velocity - step * force
        return position + step * velocity, velocity

    return step_by_step(advance, projected, state, lengths)


def reference_independent_scan(
    projected: Tensor,  # (time, batch, hidden)
    weight: Tensor,  # (hidden,)
    state: Tensor,  # (batch, hidden)
    nonlinearity: Literal["relu", "tanh"] = "relu",
    lengths: Tensor | None = None,  # (batch,)
) -> tuple[Tensor, Tensor]:
    """h' = φ(w ⊙ h + p), step after step."""
    activate = torch.relu if nonlinearity == "relu" else torch.tanh

    def advance(projected_t: Tensor, state: State) -> State:
        return (activate(weight * state[0] + projected_t),)

    outputs, (last,) = step_by_step(advance, projected, (state,), lengths)
    return outputs, last


def reference_linear_scan(
    inputs: Tensor,  # (time, batch, hidden), or pairs (time, batch, hidden, 2)
    coefficients: Tensor,
    state: Tensor,  # one step of the inputs
    lengths: Tensor | None = None,  # (batch,)
) -> tuple[Tensor, Tensor]:
    """h' = a h + u, step after step; see `linear_scan` for the shapes."""
    per_step = coefficients.dim() >= inputs.dim()
    matrices = coefficients.dim() - 2 * per_step == inputs.dim() - 1 == 3
    factors = iter(coefficients.unbind(0) if per_step else [coefficients] * len(inputs))

    def advance(input_t: Tensor, state: State) -> State:
        return (_times(next(factors), state[0], matrices) + input_t,)

    outputs, (last,) = step_by_step(advance, inputs, (state,), lengths)
    return outputs, last


def _times(coefficients: Tensor, state: Tensor, matrices: bool) -> Tensor:
    """Return a h for numbers, for pairs that are complex numbers, or for pairs and matrices."""
    if matrices:
        return (coefficients * state.unsqueeze(-2)).sum(-1)
    if state.dim() == 3:
        (a, b), (x, y) = coefficients.unbind(-1), state.unbind(-1)
        return torch.stack([a * x - b * y, b * x + a * y], -1)
    return coefficients * state


def reference_linear_oscillator_scan(
    inputs: Tensor,  # (time, batch, hidden)
    coefficients: Tensor,  # (a, k, f, s; hidden)
    state: PositionVelocity,  # (batch, hidden) each
    lengths: Tensor | None = None,  # (batch,)
) -> tuple[Tensor, PositionVelocity]:
    """z' = a z − k x + f u, x' = x + s z', step after step."""
    decay, stiffness, gain, step = coefficients.unbind(0)

    def advance(input_t: Tensor, state: State) -> State:
        position, velocity = state
        velocity = decay * velocity + (gain * input_t - stiffness * position)
        return position + step * velocity, velocity

    return step_by_step(advance, inputs, state, lengths)
