"""What an evaluation depends on besides its arguments, so that a backward pass can restore it.

A backward pass that evaluates the field again differentiates what it evaluates: with the parameters
of the forward pass, in its precision, and without random numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from undamped.ode.dependencies import NeedsGraphError
from undamped.ode.field import CountedField


@dataclass(frozen=True)
class FieldContext:
    """The precision of a solve, and the parameters its field had.

    Args:
        device: Kind of device.
        mixed: Whether operations chose their precision.
        precision: The shorter one they chose.
        parameters: Those of a field that is a module, by name.
    """

    device: str
    mixed: bool
    precision: torch.dtype
    parameters: Mapping[str, Tensor]

    @classmethod
    def of(cls, function: Callable[..., Any], y: Tensor) -> FieldContext:
        """Return the present context."""
        device = y.device.type
        parameters = dict(function.named_parameters()) if isinstance(function, nn.Module) else {}
        precision = torch.get_autocast_dtype(device)
        return cls(device, torch.is_autocast_enabled(device), precision, parameters)

    @contextmanager
    def restored(self, field: CountedField) -> Iterator[None]:
        """Let the field be evaluated as in the forward pass."""
        function = field.function
        module = function if isinstance(function, nn.Module) else None
        named = () if module is None else module.named_parameters()
        if module is not None and any(self.parameters.get(name) is not p for name, p in named):
            # `torch.func.functional_call` lends a module other parameters for one pass.
            field.function = lambda t, y: torch.func.functional_call(
                module, dict(self.parameters), (t, y)
            )
        try:
            with self.precisely():
                yield
        finally:
            field.function = function

    def precisely(self) -> AbstractContextManager[Any]:
        """Evaluate in the precision of the forward pass, converting parameters each time.

        Converted parameters in PyTorch's cache would belong to the graph that needed them first.
        """
        return torch.autocast(
            self.device, dtype=self.precision, enabled=self.mixed, cache_enabled=False
        )

    def rounding(self, dtype: torch.dtype) -> float:
        """Return the relative rounding of evaluations on states of a type."""
        eps = torch.finfo(dtype).eps
        return max(eps, torch.finfo(self.precision).eps) if self.mixed else eps


@contextmanager
def normalizations(function: Callable[..., Any], into: list[nn.Module]) -> Iterator[None]:
    """Collect the modules with running statistics that evaluations in this context update.

    Args:
        function: The field.
        into: The list that they are appended to.
    """

    def collect(module: nn.Module, _: Any) -> None:
        if module.training and isinstance(getattr(module, "running_mean", None), Tensor):
            into.append(module)

    if isinstance(function, nn.Module):
        for module in function.modules():
            collect(module, None)
        yield
        return
    hook = register_module_forward_pre_hook(collect)
    try:
        with warnings.catch_warnings():
            # A compiled module calls it twice, which does no harm.
            warnings.filterwarnings("ignore", message="Using `torch.compile", category=UserWarning)
            yield
    finally:
        hook.remove()


@contextmanager
def frozen_statistics(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let modules update copies of their buffers, since only the forward pass counts."""
    before = [(module, dict(module.named_buffers(recurse=False))) for module in set(modules)]
    for module, buffers in before:
        for name, buffer in buffers.items():
            setattr(module, name, buffer.clone())
    try:
        yield
    finally:
        for module, buffers in before:
            for name, buffer in buffers.items():
                setattr(module, name, buffer)


def refuse_randomness(before: Tensor, y: Tensor, gradient: str) -> None:
    """Refuse an evaluation that drew random numbers: evaluated again, it would draw others.

    Args:
        before: `random_state` before it.
        y: The state.
        gradient: The gradient method.
    """
    if not torch.equal(before, random_state(y)):
        raise NeedsGraphError(
            f"The field draws random numbers, as dropout does, but gradient='{gradient}' evaluates "
            "it again and needs the same values. Draw them before the solve and store them, call "
            "eval(), or choose gradient='backprop'."
        )


def random_state(y: Tensor) -> Tensor:
    """Return the state of the generator that fields draw from where y is."""
    return torch.cuda.get_rng_state(y.device) if y.is_cuda else torch.get_rng_state()
