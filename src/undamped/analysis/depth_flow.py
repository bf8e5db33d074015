"""Gradient flow in depth: ‖∂L/∂h(s)‖ for networks whose state flows through layers or an ODE.

An ODE is solved piece by piece, so that the state between two pieces is a tensor whose gradient
can be asked for; a residual network shows the state before each of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, explain
from undamped.analysis.core.unrolled import State, evaluating, separate
from undamped.analysis.gradient_flow import GradientFlow, Loss, projection, summarise
from undamped.ode.flows.continuous_flow import ContinuousFlow, FlowResult
from undamped.ode.flows.solving import SolvingModule
from undamped.ode.flows.stable_residual import StableResidual
from undamped.ode.flows.waypoints import Waypoint, Waypoints

Points = list[State]


def flows_in_depth(module: nn.Module) -> bool:
    """Whether a module holds an ODE or a stack of residual layers of ours."""
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
            if isinstance(part, SolvingModule):
                stack.enter_context(_in_pieces(part, points, visited))
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
def _in_pieces(flow: SolvingModule, points: int, visited: Points) -> Iterator[None]:
    """Let an ODE be solved from point to point while this lasts.

    Of a normalising flow only the points are looked at: the log-density is a running sum, of
    gradient one all along.
    """
    with flow.passing_through(_Visited(points, visited, isinstance(flow, ContinuousFlow))):
        yield


class _Visited(Waypoints):
    """Waypoints of several ODEs, in the order in which they are met."""

    def __init__(self, pieces: int, visited: Points, first_alone: bool) -> None:
        super().__init__(pieces)
        self.visited, self.first_alone = visited, first_alone

    def append(self, met: Waypoint) -> None:
        """Note a state among those of all ODEs."""
        self.visited.append(met.state[:1] if self.first_alone else met.state)


@contextmanager
def _layer_by_layer(stack: StableResidual, visited: Points) -> Iterator[None]:
    """Let a stable residual network be run with a graph, recording each pair of states."""

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
