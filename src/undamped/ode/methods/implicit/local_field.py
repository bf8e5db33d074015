"""A field near one state, with its derivative there: as products, and as a matrix per system.

The field is evaluated once, with a graph. Rows of the Jacobian are vector-Jacobian products through
that graph, all in one pass where its operations allow. A field without a graph, computed by NumPy
or under `no_grad`, is differenced, as SciPy does it.

Products (∂f/∂y) v use forward differentiation, which is the cheapest, but only one level of it can
be open in a process: where another thread is inside, or a solve runs inside the field of a solve,
or a field has no forward derivative, the product comes from differentiating backward twice, and if
that fails from a difference.
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
from undamped._base.torch_internals import (
    forward_mode_open,
    vector_jacobian_product,
    with_forward_mode,
)
from undamped.ode.methods.implicit.band import Band
from undamped.ode.methods.implicit.systems import Systems, agree, directions
from undamped.ode.methods.solver import Field

_NO_DERIVATIVE = (RuntimeError, NotImplementedError, OptionError)
_LEVEL = threading.Lock()
_THREAD = threading.local()
_WAYS: WeakKeyDictionary[Field, int] = WeakKeyDictionary()
FEW = 4
"""Products up to which one after another costs no more than all at once."""


class CoupledError(Exception):
    """Systems that were assumed to be independent depend on each other."""


class LocalField:
    """f(t, ·) near a state y.

    Args:
        field: The field.
        t: Time, as the field expects it.
        y: State.
        value: f there with a graph to y, where it is available.
        create_graph: Whether derivatives are to be differentiated in turn.
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

    def vjp(self, w: Tensor) -> Tensor:
        """Return (∂f/∂y)ᵀ w for a w like the state."""
        return self._vjp(w, batched=False)

    def _vjp(self, w: Tensor, *, batched: bool) -> Tensor:
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
        """Return the products with several, (number, *shape), in one pass if that can be done."""
        if len(w) > FEW:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # an operation without a batched form is slow
                    return self._vjp(w, batched=True)
            except _NO_DERIVATIVE:
                pass
        return torch.stack([self.vjp(vector) for vector in w])

    def jacobian(self, systems: Systems) -> Tensor:
        """Return ∂f/∂y of every system, (systems, size, size).

        Raises:
            CoupledError: If the systems depend on each other.
        """
        if self.differenced:
            return self._by_differences(systems)
        count, size = systems.count, systems.size
        y = self.y.detach()
        basis = torch.eye(size, dtype=y.dtype, device=y.device).unsqueeze(1)
        vectors = basis.expand(size, count, size).reshape(size, *systems.shape)
        probe = directions(1, y)
        try:
            if count == 1:
                return self.vjp_many(vectors).reshape(size, 1, size).transpose(0, 1)
            products = self.vjp_many(torch.cat((vectors, probe))).reshape(size + 1, count, size)
        except _NO_DERIVATIVE:
            if self.create_graph:
                raise
            return self._by_differences(systems)
        matrix = products[:size].transpose(0, 1)
        expected = torch.einsum("sij,si->sj", matrix.detach(), systems.rows(probe[0]))
        if not agree(products[size].detach(), expected, torch.finfo(y.dtype).eps ** 0.5):
            raise CoupledError
        return matrix

    def band(self, systems: Systems, band: Band) -> Tensor | None:
        """Return ∂f/∂y of every system as a stored band; None if it has entries outside the band.

        The rows of a group share no column, so that one product yields an entry of every column.
        """
        if self.differenced:
            return self._band_by_differences(systems, band)
        count, size = systems.count, systems.size
        y = self.y.detach()
        groups = band.groups(size, y).unsqueeze(1).expand(-1, count, -1)
        probe = directions(1, y)
        vectors = torch.cat((groups.reshape(-1, *systems.shape), probe))
        try:
            products = self.vjp_many(vectors).reshape(-1, count, size)
        except _NO_DERIVATIVE:
            return self._band_by_differences(systems, band)
        stored = band.from_products(products[:-1])
        expected = band.transposed_product(stored, systems.rows(probe[0]))
        fits = agree(products[-1], expected, torch.finfo(y.dtype).eps ** 0.5)
        return stored if fits else None

    @torch.no_grad()
    def _band_by_differences(self, systems: Systems, band: Band) -> Tensor | None:
        rows, base, moves = self._moves(systems)
        changes = torch.stack(
            [
                self._change(systems, base, rows, moves * group)
                for group in band.groups(systems.size, rows)
            ]
        )
        stored = band.from_differences(changes, moves)
        probe = systems.rows(directions(1, self.y)[0]) * moves
        change = self._change(systems, base, rows, probe)
        return stored if agree(change, band.product(stored, probe), 1e-2) else None

    @torch.no_grad()
    def _by_differences(self, systems: Systems) -> Tensor:
        rows, base, moves = self._moves(systems)
        columns = []
        for k in range(systems.size):
            move = torch.zeros_like(rows)
            move[:, k] = moves[:, k]
            columns.append(self._change(systems, base, rows, move) / moves[:, k : k + 1])
        matrix = torch.stack(columns, dim=2)
        if systems.count > 1:
            probe = systems.rows(directions(1, self.y)[0]) * moves
            change = self._change(systems, base, rows, probe)
            if not agree(change, torch.einsum("sij,sj->si", matrix, probe), 1e-2):
                raise CoupledError
        return matrix

    def _moves(self, systems: Systems) -> tuple[Tensor, Tensor, Tensor]:
        """Return state, field and how far to move every number for a difference, as rows."""
        rows, base = systems.rows(self.y.detach()), systems.rows(self.value.detach())
        eps = torch.finfo(rows.dtype).eps ** 0.5
        return rows, base, eps * (rows.abs() + 1e-3 * rows.abs().amax(1, keepdim=True) + eps)

    def _change(self, systems: Systems, base: Tensor, rows: Tensor, move: Tensor) -> Tensor:
        return systems.rows(self.field(self.t, systems.state(rows + move))) - base


class _NestedError(NotImplementedError):
    """A solve inside a field cannot be differentiated forwards by the solve around it."""


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
        # Inside an autograd function, which a solve with gradients is, torch turns tangents off.
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
