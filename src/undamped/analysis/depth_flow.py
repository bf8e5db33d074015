"""Gradient flow in depth: ‖∂L/∂h(s)‖ for networks whose state flows through layers or an ODE.

An ODE is solved piece by piece, so that the state between two pieces is a tensor whose gradient
can be asked for; a residual network shows the state before each of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undamped.analysis.core.unrolled import State, evaluating, separate
from undamped.analysis.gradient_flow import GradientFlow, Loss, projection, summarise
from undamped.errors import OptionError, explain
from undamped.flows.continuous_flow import ContinuousFlow, FlowResult
from undamped.flows.neural_ode import NeuralODE
from undamped.flows.stable_residual import StableResidual

Points = list[State]


def flows_in_depth(module: nn.Module) -> bool:
    """Whether a module holds an ODE or a stack of residual layers of ours."""
    kinds = NeuralODE | ContinuousFlow | StableResidual
    deep = any(isinstance(part, kinds) for part in module.modules())
    return deep or isinstance(getattr(module, "blocks", None), nn.ModuleList)


def depth_flow(
    module: nn.Module,
    inputs: Tensor,
    *,
    points: int = 24,
    loss: Loss | None = None,
    fraction: float = 0.01,
    seed: int = 0,
    name: str | None = None,
) -> GradientFlow:
    """Measure ‖∂L/∂h(s)‖ at equally spaced depths s, or before every residual block.

    Args:
        module: A model of continuous depth, a stable residual network, or a residual network
            with its `blocks`.
        inputs: What it takes, (batch, features).
        points: Into how many pieces an ODE is cut.
        loss: A function of the answer that returns one number; if none, the answer is projected
            on a fixed random direction.
        fraction: Where a gradient counts as lost; see `gradient_flow`.
        seed: Seed of the random direction.
        name: What to call the module.
    """
    visited: Points = []
    with evaluating(module), torch.enable_grad(), _recorded(module, points, visited):
        answer = module(inputs.detach().clone().requires_grad_())
        if loss is None and isinstance(answer, FlowResult):
            answer = answer.base  # a density says more than where its points went
        value = projection(loss, seed)(answer)
        parts = [part for state in visited for part in state]
        if not parts:
            raise OptionError(
                explain(
                    type(module).__name__,
                    expected="an ODE or residual blocks of ours inside",
                    got="none that were used",
                    remedy="Use gradient_flow, which reads any module through its inputs.",
                )
            )
        gradients = iter(torch.autograd.grad(value, parts, allow_unused=True))
    norms = np.zeros((1, len(visited), len(inputs)))
    for index, state in enumerate(visited):
        squares = [_squares(next(gradients), len(inputs)) for _ in state]
        norms[0, index] = np.sqrt(sum(squares))
    depths = np.arange(len(visited))
    return summarise(norms, depths, fraction, "states", name or type(module).__name__)


def _squares(gradient: Tensor | None, batch: int) -> Any:
    if gradient is None:
        return np.zeros(batch)
    return gradient.reshape(batch, -1).abs().double().square().sum(1).cpu().numpy()


@contextmanager
def _recorded(module: nn.Module, points: int, visited: Points) -> Iterator[None]:
    with ExitStack() as stack:
        for part in module.modules():
            if isinstance(part, NeuralODE):
                stack.enter_context(_in_pieces(part, points, visited))
            elif isinstance(part, ContinuousFlow):
                stack.enter_context(_flow_in_pieces(part, points, visited))
            elif isinstance(part, StableResidual):
                stack.enter_context(_layer_by_layer(part, visited))
        blocks = getattr(module, "blocks", None)
        if isinstance(blocks, nn.ModuleList):
            for block in blocks:
                handle = block.register_forward_pre_hook(
                    lambda _, given: visited.append((given[0],))
                )
                stack.callback(handle.remove)
        yield


@contextmanager
def _in_pieces(flow: NeuralODE, points: int, visited: Points) -> Iterator[None]:
    """Let an ODE be solved from point to point while this lasts."""
    whole = flow.solve

    def solve(state: Any, times: Any = None, **more: Any) -> Any:
        span = flow.times if times is None else times
        if isinstance(span, Tensor) and span.dim() > 1:
            # Every sequence has a depth of its own; only its beginning can be shown.
            visited.append(_parts(state))
            return whole(state, times, **more)
        ends = np.linspace(float(span[0]), float(span[-1]), points + 1).tolist()
        for begin, end in pairwise(ends):
            apart = _watched(_parts(state))
            visited.append(apart)
            state = apart[0] if isinstance(state, Tensor) else apart
            solution = whole(state, (begin, end), **more)
            state = solution.final
        apart = _watched(_parts(state))
        visited.append(apart)
        return _Final(apart[0] if isinstance(state, Tensor) else apart)

    flow.__dict__["solve"] = solve
    try:
        yield
    finally:
        del flow.__dict__["solve"]


@contextmanager
def _flow_in_pieces(flow: ContinuousFlow, points: int, visited: Points) -> Iterator[None]:
    """Let a normalising flow be solved from point to point while this lasts.

    Only the points are looked at: the log-density is a running sum, of gradient one all along.
    """
    whole = flow.integrate

    def integrate(
        dynamics: nn.Module, state: tuple[Tensor, ...], times: Tensor
    ) -> tuple[Tensor, ...]:
        ends = torch.lerp(times[0], times[-1], torch.linspace(0, 1, points + 1).to(times))
        for pair in ends.unfold(0, 2, 1):
            (points_now,) = _watched(state[:1])
            visited.append((points_now,))
            state = whole(dynamics, (points_now, *state[1:]), pair)
        (points_now,) = _watched(state[:1])
        visited.append((points_now,))
        return (points_now, *state[1:])

    flow.__dict__["integrate"] = integrate
    try:
        yield
    finally:
        del flow.__dict__["integrate"]


class _Final:
    """What a caller of `solve` asks for: the state at the end."""

    def __init__(self, final: Any) -> None:
        self.final = final


@contextmanager
def _layer_by_layer(stack: StableResidual, visited: Points) -> Iterator[None]:
    """Let a stable residual network be walked with a graph, recording each pair of states."""

    def forward(y: Tensor) -> Tensor:
        pair = _watched(stack.layers.begin(y))
        visited.append(pair)
        for layer in range(stack.layers.depth):
            pair = _watched(stack.layers.step(layer, (pair[0], pair[1])))
            visited.append(pair)
        return stack.layers.finish((pair[0], pair[1]))

    stack.__dict__["forward"] = forward
    try:
        yield
    finally:
        del stack.__dict__["forward"]


def _watched(state: State) -> State:
    """Make the parts of a state independent, and constants (a momentum of zero) parts too."""
    return separate(tuple(p if p.requires_grad else p.clone().requires_grad_() for p in state))


def _parts(state: Any) -> State:
    return (state,) if isinstance(state, Tensor) else tuple(state)
