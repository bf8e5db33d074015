"""A field near one state, with its derivative there: as products, and as a matrix per system.

The field is evaluated once, with a graph. Rows of the Jacobian are vector-Jacobian products through
that graph, all in one pass where its operations allow. A field without a graph, computed by NumPy
or under `no_grad`, is differenced, as SciPy does it.

Products (∂f/∂y) v use forward differentiation, which is the cheapest, but only one level of it can
be open in a process: where another thread is inside, or a solve runs inside the field of a solve,
or a field has no forward derivative, the product comes from differentiating backward twice, and if
that fails from a difference.

Rows of a batch are usually samples, each with its own equations; rows of a graph, a matrix or a
grid are not. A derivative computed row by row would be wrong for the latter, so whether rows are
coupled is never assumed: it is tested with a random direction.

Equation:
    (Jᵀw)_i = Σ_k J_kiᵀ w_k, which is (Σ_k J_kiᵀ) w_i for every w only if J_ki = 0 for all k ≠ i
"""

from __future__ import annotations

import threading
import warnings
from dataclasses import dataclass
from functools import cache
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd import forward_ad

from undamped._base.errors import OptionError
from undamped._base.torch_internals import (
    forward_mode_open,
    vector_jacobian_product,
    with_forward_mode,
)
from undamped.ode.methods.implicit.band import Band
from undamped.ode.methods.solver import Field

_NO_DERIVATIVE = (RuntimeError, NotImplementedError, OptionError)
_LEVEL = threading.Lock()
_THREAD = threading.local()
_WAYS: WeakKeyDictionary[Field, int] = WeakKeyDictionary()
FEW = 4
"""Number of products up to which single passes cost no more than one batched pass."""
_SEED = 20_230_111


@dataclass(frozen=True)
class Systems:
    """The number of systems and their size.

    Args:
        count: How many systems.
        size: How many numbers each.
        shape: Shape of the state they make up.
    """

    count: int
    size: int
    shape: torch.Size

    @classmethod
    def by_row(cls, y: Tensor, lanes: int = 1) -> Systems:
        """Take every row of a state for a system; a state of one dimension is one.

        Args:
            y: The state.
            lanes: Step sizes; where there are several, every number of such a state has its own.
        """
        count = y.shape[0] if y.dim() > 1 or lanes > 1 else 1
        return cls(count, y.numel() // max(count, 1), y.shape)

    def joined(self) -> Systems:
        """Return the same numbers as one system."""
        return Systems(1, self.count * self.size, self.shape)

    def rows(self, state: Tensor) -> Tensor:
        """Return a state with one system a row."""
        return state.reshape(self.count, self.size)

    def state(self, rows: Tensor) -> Tensor:
        """Return rows in the shape of the state."""
        return rows.reshape(self.shape)


def directions(count: int, y: Tensor) -> Tensor:
    """Return random numbers (count, *y.shape) from a separate generator, the same each time."""
    generator = torch.Generator().manual_seed(_SEED)
    values = torch.randn((count, *y.shape), generator=generator, dtype=torch.float64)
    return values.to(y.device, y.dtype)


def agree(first: Tensor, second: Tensor, tolerance: float) -> bool:
    """Whether two products with a derivative, (systems, size), are equal but for rounding."""
    difference = (first - second).abs().amax(1)
    scale = torch.maximum(first.abs().amax(1), second.abs().amax(1))
    return bool((difference <= tolerance * scale).all())


class LocalField:
    """f(t, ·) near a state y.

    Args:
        field: The field.
        t: Time, as the field expects it.
        y: State.
        value: f there with a graph to y, where it is available.
        create_graph: Whether derivatives will be differentiated.
    """

    def __init__(
        self,
        field: Field,
        t: Tensor,
        y: Tensor,
        *,
        value: Tensor | None = None,
        create_graph: bool = False,
    ) -> None:
        self.field, self.t, self.create_graph = field, t, create_graph
        with torch.enable_grad():
            attached = value is not None or (create_graph and y.requires_grad)
            self.y = y if attached else y.detach().requires_grad_()
            self.value = field(t, self.y) if value is None else value
        # A value that was passed without a graph has no derivative.
        self.differenced = (
            value is None and not self.value.requires_grad and not self._is_constant()
        )

    @torch.no_grad()
    def _is_constant(self) -> bool:
        y = self.y.detach()
        moved = y + 1e-3 * (1 + y.abs()) * directions(1, y)[0].sign()
        return bool(torch.equal(self.field(self.t, moved), self.value.detach()))

    def vjp(self, w: Tensor, *, batched: bool = False) -> Tensor:
        """Return (∂f/∂y)ᵀ w for a w like the state, or for several, (number, *shape)."""
        if not self.value.requires_grad:
            return torch.zeros_like(w)
        vector = w.to(self.value.dtype)
        if not (batched or self.create_graph):
            (gradient,) = vector_jacobian_product(self.value, (self.y,), vector, keep_graph=True)
        else:
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(
                    self.value,
                    self.y,
                    vector,
                    retain_graph=True,
                    create_graph=self.create_graph,
                    allow_unused=True,
                    is_grads_batched=batched,
                )
        return torch.zeros_like(w) if gradient is None else gradient

    def vjp_many(self, w: Tensor) -> Tensor:
        """Return the products with several vectors, in one pass if the operations allow."""
        if len(w) > FEW:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # an operation without a batched form is slow
                    return self.vjp(w, batched=True)
            except _NO_DERIVATIVE:
                pass
        return torch.stack([self.vjp(vector) for vector in w])

    def jacobian(self, systems: Systems, band: Band | None = None) -> Tensor | None:
        """Return ∂f/∂y of every system, (systems, size, size), or as a stored band.

        The rows of a group of a band share no column, so that one product yields an entry of every
        column. The result is None if systems depend on each other or entries lie outside the band.
        """
        y, count, size = self.y.detach(), systems.count, systems.size
        groups = torch.eye(size).to(y) if band is None else band.groups(size, y)
        if self.differenced:
            return self._by_differences(systems, band, groups)
        vectors = groups.unsqueeze(1).expand(-1, count, -1).reshape(-1, *systems.shape)
        probe, certain = directions(1, y), band is None and count == 1
        vectors = vectors if certain else torch.cat((vectors, probe))
        try:
            products = self.vjp_many(vectors).reshape(-1, count, size)
        except _NO_DERIVATIVE:
            if self.create_graph:
                raise
            return self._by_differences(systems, band, groups)
        if band is None:
            matrix = products[:size].transpose(0, 1)
            if certain:
                return matrix
            expected = torch.einsum("sij,si->sj", matrix.detach(), systems.rows(probe[0]))
        else:
            matrix = band.from_products(products[:-1])
            expected = band.transposed_product(matrix, systems.rows(probe[0]))
        fits = agree(products[-1].detach(), expected, torch.finfo(y.dtype).eps ** 0.5)
        return matrix if fits else None

    @torch.no_grad()
    def _by_differences(self, systems: Systems, band: Band | None, groups: Tensor) -> Tensor | None:
        """Return the same from what moving each group of columns changes in the field."""
        rows, base = systems.rows(self.y.detach()), systems.rows(self.value.detach())
        eps = torch.finfo(rows.dtype).eps ** 0.5
        moves = eps * (rows.abs() + 1e-3 * rows.abs().amax(1, keepdim=True) + eps)

        def change(move: Tensor) -> Tensor:
            return systems.rows(self.field(self.t, systems.state(rows + move))) - base

        changes = torch.stack([change(moves * group) for group in groups])
        probe = systems.rows(directions(1, self.y)[0]) * moves
        if band is None:
            matrix = (changes / moves.T.unsqueeze(2)).permute(1, 2, 0).contiguous()
            if systems.count == 1:
                return matrix
            expected = torch.einsum("sij,sj->si", matrix, probe)
        else:
            matrix = band.from_differences(changes, moves)
            expected = band.product(matrix, probe)
        return matrix if agree(change(probe), expected, 1e-2) else None


class _NestedError(NotImplementedError):
    """A solve inside a field, which the solve around it cannot differentiate forward."""


@cache
def _load_forward_mode() -> None:
    """Let PyTorch load forward differentiation, which warns once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        with forward_ad.dual_level():
            forward_ad.make_dual(torch.zeros(1), torch.zeros(1))


def forward_product(field: Field, t: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Return (∂f/∂y) v."""
    if getattr(_THREAD, "inside", False):
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
    _THREAD.inside = True
    try:
        # Inside an autograd function, which a solve with gradients is, torch disables tangents.
        with with_forward_mode(), forward_ad.dual_level():
            value = field(t, forward_ad.make_dual(y, v))
            tangent = forward_ad.unpack_dual(value).tangent
    finally:
        _THREAD.inside = False
    return torch.zeros_like(v) if tangent is None else tangent


def _twice_back(field: Field, t: Tensor, y: Tensor, v: Tensor) -> Tensor:
    """Go back once with a vector w, and back again from there to w: Jᵀ w is linear in it."""
    with torch.enable_grad():
        leaf = y.detach().requires_grad_()
        value = field(t, leaf)
        if not value.requires_grad:
            return torch.zeros_like(v)
        w = torch.zeros_like(value, requires_grad=True)
        (vjp,) = torch.autograd.grad(value, leaf, w, create_graph=True, allow_unused=True)
        if vjp is None:
            return torch.zeros_like(v)
        product = None
        if vjp.requires_grad:
            (product,) = torch.autograd.grad(vjp, w, v, allow_unused=True)
        if product is None:  # a field that can be differentiated once only has lost w
            raise NotImplementedError
    return product


@torch.no_grad()
def _difference(field: Field, t: Tensor, y: Tensor, v: Tensor) -> Tensor:
    length = v.abs().amax()
    small = torch.finfo(y.dtype).eps ** 0.5 * (1 + y.abs().amax())
    small = small / torch.where(length > 0, length, torch.ones_like(length))
    return (field(t, y + small * v) - field(t, y)) / small
