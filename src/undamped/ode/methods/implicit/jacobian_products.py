"""Products of a field's derivative with vectors, of which the matrix is never formed.

Forward differentiation is the cheapest, but only one level of it can be open in a process: where
another thread is inside, or a solve runs inside the field of a solve, or a field has no forward
derivative, the product comes from going back twice, and if that fails from a difference.
"""

from __future__ import annotations

import threading
import warnings
from functools import cache
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd import forward_ad

from undamped._base.errors import OptionError
from undamped._base.torch_internals import forward_mode_open, with_forward_mode
from undamped.ode.methods.solver import Field

_LEVEL = threading.Lock()
_HERE = threading.local()
_WAYS: WeakKeyDictionary[Field, int] = WeakKeyDictionary()


class _NestedError(NotImplementedError):
    """A solve inside a field cannot be differentiated forwards by the solve around it."""


@cache
def _load_forward_mode() -> None:
    """Let PyTorch load forward differentiation, which warns about its own insides once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros(1), torch.zeros(1))


def forward_product(field: Field, t: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Return (∂f/∂y) v."""
    if getattr(_HERE, "inside", False):
        raise _NestedError
    way = _WAYS.get(field, 0)
    if way == 0 and _LEVEL.acquire(blocking=False):
        try:
            if not forward_mode_open():
                return _forwards(field, t, y, v)
        except (NotImplementedError, OptionError):
            way = _WAYS[field] = 1
        finally:
            _LEVEL.release()
    if way < 2:
        try:
            return _twice_back(field, t, y, v)
        except (RuntimeError, NotImplementedError, OptionError):
            _WAYS[field] = 2
    return _difference(field, t, y, v)


def _forwards(field: Field, t: Tensor, y: Tensor, v: Tensor) -> Tensor:
    _load_forward_mode()
    _HERE.inside = True
    try:
        # Inside an autograd function, which a solve with gradients is, torch turns tangents off.
        with with_forward_mode(), forward_ad.dual_level():
            value = field(t, forward_ad.make_dual(y, v))
            tangent = forward_ad.unpack_dual(value).tangent
    finally:
        _HERE.inside = False
    return torch.zeros_like(v) if tangent is None else tangent


def _twice_back(field: Field, t: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Go back once with a vector w, and back again from there to w: Jᵀ w is linear in it."""
    with torch.enable_grad():
        leaf = y.detach().requires_grad_()
        value = field(t, leaf)
        if not value.requires_grad:
            return torch.zeros_like(v)
        w = torch.zeros_like(value, requires_grad=True)
        (pulled,) = torch.autograd.grad(value, leaf, w, create_graph=True, allow_unused=True)
        if pulled is None:
            return torch.zeros_like(v)
        product = None
        if pulled.requires_grad:
            (product,) = torch.autograd.grad(pulled, w, v, allow_unused=True)
        if product is None:  # what goes back once only has lost w
            raise NotImplementedError
    return product


@torch.no_grad()
def _difference(field: Field, t: Tensor, y: Tensor, v: Tensor) -> Tensor:
    length = v.abs().amax()
    small = torch.finfo(y.dtype).eps ** 0.5 * (1 + y.abs().amax())
    small = small / torch.where(length > 0, length, torch.ones_like(length))
    return (field(t, y + small * v) - field(t, y)) / small
