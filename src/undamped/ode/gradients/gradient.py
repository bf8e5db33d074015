"""The contract of a gradient method: how the gradient of a solve is had.

`backprop` keeps the graph of the forward pass; the others run it without one and evaluate the
field again in the backward pass. A method is one file, entered by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from torch import Tensor

from undamped._base.registry import gradients

if TYPE_CHECKING:
    from undamped.ode.methods.solver import Solver
    from undamped.ode.problem import Problem

Gradients = tuple[Tensor, list[Tensor | None]]
"""Gradients with respect to the start and to every tensor the field depends on."""
MethodClass = TypeVar("MethodClass", bound="type[GradientMethod]")


class GradientMethod(ABC):
    """One way of differentiating a solve."""

    name: ClassVar[str] = ""
    keeps_graph: ClassVar[bool] = False
    """Autograd records the forward pass; no other backward pass is needed."""
    keeps_states: ClassVar[bool] = False
    """The states at the start of every segment are stored."""
    records_steps: ClassVar[bool] = False
    """Times and sizes of the steps are kept."""
    solves_back: ClassVar[bool] = False
    """The backward pass solves another equation."""
    samples_field: ClassVar[bool] = False
    """Some evaluations of the forward pass are kept, to hold the field to in the backward pass."""

    def check(self, solver: Solver) -> None:
        """Refuse a solver this method cannot differentiate."""
        return

    def saved(self, problem: Problem, values: Tensor) -> Sequence[Tensor]:
        """Return what is held for the backward pass."""
        return ()

    @abstractmethod
    def backward(self, problem: Problem, y0: Tensor, values: Tensor, incoming: Tensor) -> Gradients:
        """Return the gradients with respect to y0 and the tensors of the problem.

        Args:
            problem: The solve, with its run.
            y0: The start value.
            values: The outputs, (outputs, …).
            incoming: The gradients of the outputs.
        """


def register_gradient(name: str) -> Callable[[MethodClass], MethodClass]:
    """Return a decorator that names a gradient method and enters it in the registry."""

    def enter(method: MethodClass) -> MethodClass:
        method.name = name
        return gradients.register(name)(method)

    return enter
