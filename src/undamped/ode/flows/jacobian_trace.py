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
        like: A tensor of the same type and device.
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
    with torch.inference_mode(False), torch.enable_grad():
        t, leaf = _usable(t), _leaf(z, keep)
        value = field(t, leaf)
        if noise is not None:
            row = _product(_usable(noise), value, leaf, keep)
            trace, frobenius = (row * noise).sum(1), row.pow(2).sum(1)
        else:
            trace = frobenius = torch.zeros_like(leaf[:, 0])
            for k in range(z.shape[1]):
                row = _product(None, value[:, k].sum(), leaf, keep)
                trace = trace + row[:, k]
                frobenius = frobenius + row.pow(2).sum(1)
    return _results(keep, value, trace, frobenius)


def bottleneck_trace(
    field: Narrowing, t: Any, z: Tensor, noise: Tensor, wide: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return f, an estimate of its trace from noise of few dimensions, and ‖ηᵀ ∂f/∂z‖².

    Equation:
        tr ∂f/∂z = tr(∂h/∂z ∂g/∂h) = E[εᵀ ∂h/∂z ∂g/∂h ε] for f = g ∘ h

    Args:
        field: f with its two halves.
        t: Time.
        z: State.
        noise: ε, like the bottleneck's features.
        wide: η, noise like z, for the norm of the Jacobian.
    """
    keep = torch.is_grad_enabled()
    with torch.inference_mode(False), torch.enable_grad():
        t, leaf, noise, wide = _usable(t), _leaf(z, keep), _usable(noise), _usable(wide)
        few = field.narrow(t, leaf)
        value = field.widen(t, few)
        across = _product(noise, few, leaf, keep)
        trace = (_product(across, value, few, keep) * noise).sum(1)
        frobenius = _product(wide, value, leaf, keep).pow(2).sum(1)
    return _results(keep, value, trace, frobenius)


def _usable(part: Any) -> Any:
    """Return a tensor autograd may keep: those of inference mode have to be copied."""
    return part.clone() if isinstance(part, Tensor) and part.is_inference() else part


def _leaf(z: Tensor, keep: bool) -> Tensor:
    return z if keep and z.requires_grad else _usable(z).detach().requires_grad_()


def _product(row: Tensor | None, value: Tensor, of: Tensor, keep: bool) -> Tensor:
    """Return rowᵀ ∂value/∂of, which is 0 where the value does not depend on it."""
    if not (value.requires_grad and of.requires_grad):
        return torch.zeros_like(of)
    (product,) = torch.autograd.grad(
        value, of, row, create_graph=keep, retain_graph=True, materialize_grads=True
    )
    return product


def _results(keep: bool, *results: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    value, trace, frobenius = results if keep else (result.detach() for result in results)
    return value, trace, frobenius
