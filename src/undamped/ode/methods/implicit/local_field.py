"""A field at one place, with its derivative there: as products, and as a matrix per system.

The field runs as it is, once, with a graph. Rows of the Jacobian are pulled through that graph, all
in one pass where its operations allow. A field without a graph, computed by NumPy or under
`no_grad`, is differenced, as SciPy does it.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.torch_internals import vector_jacobian_product
from undamped.ode.methods.implicit.band import Band
from undamped.ode.methods.implicit.systems import Systems, agree, directions
from undamped.ode.methods.solver import Field

_NO_DERIVATIVE = (RuntimeError, NotImplementedError, OptionError)

FEW = 4
"""Products up to which one after another costs no more than all at once."""


class CoupledError(Exception):
    """The systems that were supposed to be apart are not."""


class LocalField:
    """f(t, ·) at y.

    Args:
        field: The field.
        t: Time, as the field expects it.
        y: State.
        value: f there with a graph to y, where it is known.
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
            kept = value is not None or (create_graph and y.requires_grad)
            self.y = y if kept else y.detach().requires_grad_()
            self.value = field(t, self.y) if value is None else value
        # Where a value is known, its derivative is wanted, and what has no graph has none.
        self.differenced = (
            value is None and not self.value.requires_grad and not self._is_constant()
        )

    @torch.no_grad()
    def _is_constant(self) -> bool:
        y = self.y.detach()
        moved = y + 1e-3 * (1 + y.abs()) * directions(1, y)[0].sign()
        return bool(torch.equal(self.field(self.t, moved), self.value.detach()))

    def pull(self, w: Tensor) -> Tensor:
        """Return (∂f/∂y)ᵀ w for a w like the state."""
        return self._pull(w, batched=False)

    def _pull(self, w: Tensor, *, batched: bool) -> Tensor:
        if not self.value.requires_grad:
            return torch.zeros_like(w)
        vector = w.to(self.value.dtype)
        if not (batched or self.create_graph):
            (found,) = vector_jacobian_product(self.value, (self.y,), vector, keep_graph=True)
        else:
            with torch.enable_grad():
                (found,) = torch.autograd.grad(
                    self.value,
                    self.y,
                    vector,
                    retain_graph=True,
                    create_graph=self.create_graph,
                    allow_unused=True,
                    is_grads_batched=batched,
                )
        return torch.zeros_like(w) if found is None else found

    def pull_many(self, w: Tensor) -> Tensor:
        """Return the products with several, (number, *shape), in one pass if that can be done."""
        if len(w) > FEW:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # an operation without a batched form is slow
                    return self._pull(w, batched=True)
            except _NO_DERIVATIVE:
                pass
        return torch.stack([self.pull(one) for one in w])

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
        asked = basis.expand(size, count, size).reshape(size, *systems.shape)
        probe = directions(1, y)
        try:
            if count == 1:
                return self.pull_many(asked).reshape(size, 1, size).transpose(0, 1)
            found = self.pull_many(torch.cat((asked, probe))).reshape(size + 1, count, size)
        except _NO_DERIVATIVE:
            if self.create_graph:
                raise
            return self._by_differences(systems)
        matrix = found[:size].transpose(0, 1)
        expected = torch.einsum("sij,si->sj", matrix.detach(), systems.rows(probe[0]))
        if not agree(found[size].detach(), expected, torch.finfo(y.dtype).eps ** 0.5):
            raise CoupledError
        return matrix

    def band(self, systems: Systems, band: Band) -> Tensor | None:
        """Return ∂f/∂y of every system as a stored band; None if there is more to it than that.

        The rows of a group share no column, so that one product finds an entry of every column.
        """
        if self.differenced:
            return self._band_by_differences(systems, band)
        count, size = systems.count, systems.size
        y = self.y.detach()
        groups = band.groups(size, y).unsqueeze(1).expand(-1, count, -1)
        probe = directions(1, y)
        asked = torch.cat((groups.reshape(-1, *systems.shape), probe))
        try:
            found = self.pull_many(asked).reshape(-1, count, size)
        except _NO_DERIVATIVE:
            return self._band_by_differences(systems, band)
        stored = band.from_products(found[:-1])
        expected = band.transposed_product(stored, systems.rows(probe[0]))
        fits = agree(found[-1], expected, torch.finfo(y.dtype).eps ** 0.5)
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
