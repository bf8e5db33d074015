"""A field at one place, with its derivative there: as products, and as a matrix per system.

The field runs as it is, once, with a graph. Rows of the Jacobian are pulled through that graph, all
in one pass where its operations allow. A field without a graph, computed by NumPy or under
`no_grad`, is differenced, as SciPy does it.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from undamped.errors import OptionError
from undamped.solvers.methods.implicit.systems import Systems, agree, directions
from undamped.solvers.methods.solver import Field

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
        create_graph: Whether derivatives are to be differentiated in turn.
    """

    def __init__(self, field: Field, t: Tensor, y: Tensor, *, create_graph: bool = False) -> None:
        self.field, self.t, self.create_graph = field, t, create_graph
        with torch.enable_grad():
            self.y = y if create_graph and y.requires_grad else y.detach().requires_grad_()
            self.value = field(t, self.y)
        self.differenced = False
        if not self.value.requires_grad:
            self.differenced = not self._is_constant()

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
        with torch.enable_grad():
            (found,) = torch.autograd.grad(
                self.value,
                self.y,
                w.to(self.value.dtype),
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

    @torch.no_grad()
    def _by_differences(self, systems: Systems) -> Tensor:
        y, base = self.y.detach(), systems.rows(self.value.detach())
        rows = systems.rows(y)
        eps = torch.finfo(y.dtype).eps ** 0.5
        moves = eps * (rows.abs() + 1e-3 * rows.abs().amax(1, keepdim=True) + eps)
        columns = []
        for k in range(systems.size):
            moved = rows.clone()
            moved[:, k] += moves[:, k]
            change = systems.rows(self.field(self.t, systems.state(moved))) - base
            columns.append(change / moves[:, k : k + 1])
        matrix = torch.stack(columns, dim=2)
        if systems.count > 1:
            probe = systems.rows(directions(1, y)[0]) * moves
            change = systems.rows(self.field(self.t, systems.state(rows + probe))) - base
            if not agree(change, torch.einsum("sij,sj->si", matrix, probe), 1e-2):
                raise CoupledError
        return matrix
