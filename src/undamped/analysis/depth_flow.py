"""Gradient flow in depth: ‖∂L/∂h(s)‖ for networks whose state flows through layers or an ODE.

An ODE is solved segment by segment, so that the state between two segments is a tensor with a
gradient; for a residual network it is the state before each of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped.analysis.core.unrolled import State, evaluating, separate
from undamped.analysis.gradient_flow import GradientFlow, Loss, projection, summarise
from undamped.ode.flows.continuous_flow import ContinuousFlow, FlowResult
from undamped.ode.flows.solving import SolvingModule
from undamped.ode.flows.stable_residual import StableResidual
from undamped.ode.flows.waypoints import Waypoint, Waypoints

Points = list[State]


def flows_in_depth(module: nn.Module) -> bool:
    """Return whether a module contains an ODE or residual layers of this library."""
    kinds = SolvingModule | StableResidual
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
        inputs: Its inputs, (batch, features).
        points: Number of segments of an ODE.
        loss: A function of the output that returns a scalar; by default the projection on a fixed
            random direction.
        fraction: Where a gradient counts as vanished; see `gradient_flow`.
        seed: Seed of the random direction.
        name: Name of the module in figures.
    """
    visited: Points = []
    with evaluating(module), torch.enable_grad(), _recorded(module, points, visited):
        answer = module(inputs.detach().clone().requires_grad_())
        if loss is None and isinstance(answer, FlowResult):
            answer = answer.base  # without the log-density
        value = projection(loss, seed)(answer)
        parts = [part for state in visited for part in state]
        if not parts:
            raise OptionError(
                f"{type(module).__name__} uses no ODE or residual blocks of this library. "
                "Use gradient_flow, which also measures gradients with respect to the inputs."
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
            if isinstance(part, SolvingModule):
                # The log-density of a normalising flow is a running sum, of gradient one.
                states_only = isinstance(part, ContinuousFlow)
                waypoints = _Visited(points, visited, states_only)
                stack.enter_context(part.passing_through(waypoints))
            elif isinstance(part, StableResidual):
                stack.enter_context(_layer_by_layer(part, visited))
        blocks = getattr(module, "blocks", None)
        if isinstance(blocks, nn.ModuleList):
            for block in blocks:
                handle = block.register_forward_pre_hook(lambda _, args: visited.append((args[0],)))
                stack.callback(handle.remove)
        yield


class _Visited(Waypoints):
    """Waypoints of several ODEs, in the order of the forward pass."""

    def __init__(self, segments: int, visited: Points, first_only: bool) -> None:
        super().__init__(segments)
        self.visited, self.first_only = visited, first_only

    def append(self, waypoint: Waypoint) -> None:
        """Add the state of a waypoint to those of all ODEs."""
        self.visited.append(waypoint.state[:1] if self.first_only else waypoint.state)


@contextmanager
def _layer_by_layer(stack: StableResidual, visited: Points) -> Iterator[None]:
    """Run a stable residual network with a graph, and record each pair of states."""

    def forward(y: Tensor) -> Tensor:
        pair = _independent(stack.layers.begin(y))
        visited.append(pair)
        for layer in range(stack.layers.depth):
            pair = _independent(stack.layers.step(layer, (pair[0], pair[1])))
            visited.append(pair)
        return stack.layers.finish((pair[0], pair[1]))

    stack.__dict__["forward"] = forward
    try:
        yield
    finally:
        del stack.__dict__["forward"]


def _independent(state: State) -> State:
    """Return the parts of a state as independent variables, also the constant ones."""
    return separate(tuple(p if p.requires_grad else p.clone().requires_grad_() for p in state))
