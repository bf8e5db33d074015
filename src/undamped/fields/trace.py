"""The trace of a field's Jacobian: exact, by Hutchinson's estimate, or through a bottleneck."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

TraceKind = Literal["exact", "hutchinson", "bottleneck"]
NoiseKind = Literal["gaussian", "rademacher"]


@runtime_checkable
class Narrowing(Protocol):
    """A field f = widen ∘ narrow that passes through few features."""

    def narrow(self, t: Any, z: Tensor) -> Tensor:
        """Return the few features."""
        ...

    def widen(self, t: Any, few: Tensor) -> Tensor:
        """Return dz/dt from them."""
        ...


def draw_noise(kind: NoiseKind, shape: torch.Size, like: Tensor, generator: Any = None) -> Tensor:
    """Draw noise of mean zero and unit covariance.

    Args:
        kind: Gaussian, or signs.
        shape: Its shape.
        like: A tensor of the wanted type and device.
        generator: Where the random numbers come from.
    """
    options = {"dtype": like.dtype, "device": like.device, "generator": generator}
    if kind == "gaussian":
        return torch.randn(shape, **options)
    return torch.randint(0, 2, shape, **options) * 2 - 1


def field_and_trace(
    field: Callable[[Any, Tensor], Tensor], t: Any, z: Tensor, noise: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return f, tr ∂f/∂z (batch,), and ‖εᵀ ∂f/∂z‖² (batch,).

    Without noise the trace is exact and the last is the squared Frobenius norm; with noise both
    are unbiased estimates of those.

    Args:
        field: f, on (batch, features).
        t: Time.
        z: State.
        noise: ε, like z, held fixed during a solve; None for the exact trace.
    """
    keep = torch.is_grad_enabled()
    with torch.enable_grad():
        leaf = z if keep and z.requires_grad else z.detach().requires_grad_()
        value = field(t, leaf)
        if noise is not None:
            (row,) = torch.autograd.grad(value, leaf, noise, create_graph=keep)
            trace, frobenius = (row * noise).sum(1), row.pow(2).sum(1)
        else:
            trace = frobenius = torch.zeros_like(z[:, 0])
            for k in range(z.shape[1]):
                (row,) = torch.autograd.grad(
                    value[:, k].sum(), leaf, create_graph=keep, retain_graph=True
                )
                trace = trace + row[:, k]
                frobenius = frobenius + row.pow(2).sum(1)
    if keep:
        return value, trace, frobenius
    return value.detach(), trace.detach(), frobenius.detach()


def bottleneck_trace(field: Narrowing, t: Any, z: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return f and an estimate of its trace from noise of the bottleneck's few dimensions.

    Equation:
        tr ∂f/∂z = tr(∂h/∂z ∂g/∂h) = E[εᵀ ∂h/∂z ∂g/∂h ε] for f = g ∘ h

    Args:
        field: f with its two halves.
        t: Time.
        z: State.
        noise: ε, like the bottleneck's features.
    """
    keep = torch.is_grad_enabled()
    with torch.enable_grad():
        leaf = z if keep and z.requires_grad else z.detach().requires_grad_()
        few = field.narrow(t, leaf)
        value = field.widen(t, few)
        (across,) = torch.autograd.grad(few, leaf, noise, create_graph=keep, retain_graph=True)
        (back,) = torch.autograd.grad(value, few, across, create_graph=keep, retain_graph=True)
        trace = (back * noise).sum(1)
    return (value, trace) if keep else (value.detach(), trace.detach())
