"""Back-propagation: autograd keeps the graph of every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from undamped.ode.gradients.gradient import Found, GradientMethod, register_gradient

if TYPE_CHECKING:
    from undamped.ode.problem import Problem


@register_gradient("backprop")
class Backprop(GradientMethod):
    """The whole graph is kept, so that gradients of gradients work and nothing is repeated."""

    keeps_graph = True

    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Found:
        """Never called: autograd does it."""
        raise NotImplementedError
