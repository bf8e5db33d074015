"""Private names of PyTorch that this library needs, each in one function.

A new version of torch may change any of them; `tests/base/test_torch_internals.py` tests each with
the oldest and the newest supported version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter, methodcaller
from typing import Any

from torch import _C, Tensor, nn
from torch._C import _functorch, _nn  # pyright: ignore[reportAttributeAccessIssue]
from torch.autograd import Variable, forward_ad
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_leaves as tree_leaves
from torch.utils._pytree import tree_map as tree_map
from torch.utils._pytree import tree_unflatten as tree_unflatten

_ENGINE: Any = Variable._execution_engine


def inside_functional_transform() -> bool:
    """Return whether a transform of `torch.func` is active."""
    return _functorch.maybe_current_level() is not None


def forward_mode_open() -> bool:
    """Return whether a level of forward-mode differentiation is open, in any thread."""
    return forward_ad._current_level >= 0


def is_tracing() -> bool:
    """Return whether `torch.jit.trace` records the operations of this thread."""
    return _C._get_tracing_state() is not None


def is_observed() -> bool:
    """Return whether a mode, such as `FakeTensorMode` or `make_fx`, sees every operation."""
    return _C._len_torch_dispatch_stack() > 0


def with_forward_mode() -> AbstractContextManager[Any]:
    """Return a context in which tangents are propagated, also inside an autograd function."""
    return forward_ad._set_fwd_grad_enabled(True)


version_of: Callable[[Tensor], int] = attrgetter("_version")
"""Return how often a tensor was modified; not for tensors of inference mode."""

sequence_number: Callable[[Any], int] = methodcaller("_sequence_nr")
"""Return the number of a node of the graph; a later node of a thread has a larger one."""


flatten_tensors: Callable[[Sequence[Tensor]], Tensor] = _nn.flatten_dense_tensors
"""Return the entries of tensors of one type as one vector."""


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
    """Return the parameters of a module without those of its submodules."""
    return module._parameters


def flat_weights(module: nn.RNNBase) -> list[Any]:
    """Return the weights of a recurrent layer of torch in the order in which it passes them on.

    They are those of `functional_call`, where that replaces them.
    """
    module._update_flat_weights()
    return module._flat_weights


def parametrizations_of(module: nn.Module) -> nn.Module | None:
    """Return the `parametrizations` of a module, or None, faster than by attribute access."""
    return module._modules.get("parametrizations")


def parametrize_again(module: nn.Module) -> None:
    """Restore class and properties of a parametrized module after it was unpickled."""
    parametrize._inject_new_class(module)
    for name in module.parametrizations:  # type: ignore[union-attr]
        parametrize._inject_property(module, name)
