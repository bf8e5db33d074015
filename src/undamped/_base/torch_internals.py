"""Private names of PyTorch that this library cannot do without, each in one function.

A new version of torch may move any of them; `tests/base/test_torch_internals.py` has a
test for each, and is run with the oldest and the newest version that is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter, methodcaller
from typing import Any

from torch import Tensor, nn
from torch._C import _functorch, _nn  # pyright: ignore[reportAttributeAccessIssue]
from torch.autograd import Variable, forward_ad
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = [
    "TorchDispatchMode",
    "associative_scan",
    "flatten_tensors",
    "forward_mode_open",
    "inside_functional_transform",
    "own_parameters",
    "parametrizations_of",
    "parametrize_again",
    "sequence_number",
    "tree_leaves",
    "vector_jacobian_product",
    "version_of",
    "with_forward_mode",
]


_ENGINE: Any = Variable._execution_engine


def inside_functional_transform() -> bool:
    """Say whether a transform of `torch.func` is going on."""
    return _functorch.maybe_current_level() is not None


def forward_mode_open() -> bool:
    """Say whether a level of forward-mode differentiation is open, in any thread."""
    return forward_ad._current_level >= 0


def with_forward_mode() -> AbstractContextManager[Any]:
    """Return a context in which tangents are kept, also inside an autograd function."""
    return forward_ad._set_fwd_grad_enabled(True)


version_of: Callable[[Tensor], int] = attrgetter("_version")
"""Return how often a tensor was written to; not for tensors of inference mode."""

sequence_number: Callable[[Any], int] = methodcaller("_sequence_nr")
"""Return the number of a node of the graph; a later node of a thread has a larger one."""


flatten_tensors: Callable[[Sequence[Tensor]], Tensor] = _nn.flatten_dense_tensors
"""Return the numbers of some tensors of one type in a row."""


def vector_jacobian_product(
    value: Tensor, inputs: Sequence[Tensor], vector: Tensor, *, keep_graph: bool = False
) -> Sequence[Tensor | None]:
    """Return vᵀ ∂value/∂input for every input, None where there is none.

    As `torch.autograd.grad` without its checks of arguments, a quarter of the time on small fields.
    """
    return _ENGINE.run_backward(
        (value,),
        (vector,),
        keep_graph,
        False,
        tuple(inputs),
        allow_unreachable=True,
        accumulate_grad=False,
    )


def associative_scan(
    combine: Callable[[Any, Any], Any], sequences: tuple[Tensor, ...]
) -> tuple[Tensor, ...]:
    """Return torch's own scan along the first dimension, in the form that runs on a CPU."""
    from torch._higher_order_ops.associative_scan import associative_scan as scan

    results: Any = scan(combine, sequences, 0, combine_mode="generic")
    return results


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """Return the parameters a module itself holds, without a walk through those inside it."""
    return module._parameters


def parametrizations_of(module: nn.Module) -> nn.Module | None:
    """Return what holds a module's parametrizations, or None; asked often, so without a walk."""
    return module._modules.get("parametrizations")


def parametrize_again(module: nn.Module) -> None:
    """Give a module made of saved contents the class and properties its parametrizations need."""
    parametrize._inject_new_class(module)
    for name in module.parametrizations:  # type: ignore[union-attr]
        parametrize._inject_property(module, name)
