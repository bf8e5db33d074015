"""Checks of solvers: order, symmetries, inverse and promises are measured as declared."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from undamped.ode import LinearRotating, Rotating, Separable, solve
from undamped.ode.methods.solver import Solver
from undamped.testing.comparison import assert_promises, run_checks

Build = Callable[[], Solver]
START = torch.tensor([[0.9, 0.3], [-0.4, 0.7]], dtype=torch.float64)
# A pendulum with a driven length: separable, Hamiltonian, nonlinear, and dependent on time.
PENDULUM = Separable(lambda t, p: p, lambda t, q: -torch.sin(q) * (1 + 0.3 * torch.sin(t)))
# Without the drive, for properties of autonomous Hamiltonians.
AUTONOMOUS = Separable(lambda t, p: p + 0.1 * p**3, lambda t, q: -torch.sin(q))
STEPS = {1: 80, 2: 40, 3: 24, 4: 30, 5: 20, 8: 14}
STEPS_IMPLICIT = {1: 25, 2: 12, 3: 8, 4: 8, 5: 5, 6: 4}
"""Steps over a time of 2 that show the order of a method, before the error is only rounding."""


def check_solver(solver_class: type[Solver], **options: Any) -> None:
    """Check a solver: all of `SOLVER_CHECKS`, one after the other.

    Args:
        solver_class: The class of the solver.
        options: Options of its constructor.
    """
    run_checks(solver_class.__name__, SOLVER_CHECKS, lambda: solver_class(**options))


def check_order(build: Build) -> None:
    """Check that halving the step divides the error by 2 to the power of the declared order."""
    solver = build()
    steps = STEPS_IMPLICIT if solver.implicit and not solver.switches else STEPS
    count = 200 if solver.doubles_state else steps.get(solver.order, 14)
    # The error of a high order is only rounding unless the time is long.
    end = 8.0 if solver.order == 8 else 2.0
    field, start = _problem(solver)
    exact = solve(field, start, [0.0, end], method="dopri8", options={"step_size": 0.03}).final
    errors = []
    for n in (count, 2 * count):
        final = solve(field, start, [0.0, end], method=solver, options={"step_size": end / n}).final
        errors.append(float((final - exact).abs().max()))
    order = math.log2(errors[0] / errors[1])
    assert abs(order - solver.order) < 0.2, f"declared {solver.order}, measured {order:.2f}"


def check_symmetry(build: Build) -> None:
    """Check that a step of the opposite size undoes a step, exactly if `symmetric`."""
    solver = build()
    field, start = _problem(solver) if solver.rotates else (AUTONOMOUS, START)
    state = solver.start(field, 0.2, start)
    for _ in range(3):
        state, _ = solver.step(field, 0.2, 0.1, state)
    forth, _ = solver.step(field, 0.2, 0.8, state)
    back, _ = solver.step(field, 1.0, -0.8, forth)
    gap = max(float((a - b).abs().max()) for a, b in zip(back, state, strict=True))
    assert (gap < 1e-9) == solver.symmetric, f"declared {solver.symmetric}, the error is {gap:.1e}"


def check_symplecticity(build: Build) -> None:
    """Check that the Jacobian of a step preserves the symplectic form exactly if `symplectic`."""
    solver = build()
    if solver.rotates:  # its states are matrices, not positions and momenta
        return
    start = solver.start(AUTONOMOUS, 0.0, START[:1])
    doubled = solver.doubles_state  # symplectic on its doubled phase space (q, p, x, y)

    def step(z: Tensor) -> Tensor:
        if doubled:
            return torch.cat(solver.step(AUTONOMOUS, 0.0, 0.8, (z[:, :2], z[:, 2:]))[0], dim=1)
        state = (z, *solver.start(AUTONOMOUS, 0.0, z)[1:])
        return solver.step(AUTONOMOUS, 0.0, 0.8, state)[0][0]

    flat = torch.cat(start[:2], dim=1) if doubled else start[0]
    size = flat.shape[1]
    rows: Any = torch.autograd.functional.jacobian(step, flat)
    jacobian = rows.reshape(size, size)
    form = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    form = torch.block_diag(form, form) if doubled else form
    gap = float((jacobian.T @ form @ jacobian - form).abs().max())
    assert (gap < 1e-9) == solver.symplectic, f"declared {solver.symplectic}, error {gap:.1e}"


def check_reversal(build: Build) -> None:
    """Check that `reverse` inverts many steps, or refuses if the solver is not `reversible`."""
    solver = build()
    field, start = _problem(solver)
    count, h = 300, 0.02
    state = first = solver.start(field, 0.0, start)
    if not solver.reversible:
        try:
            solver.reverse(field, 0.0, h, state)
        except ValueError:
            return
        raise AssertionError("`reverse` of a solver that is not reversible does not refuse")
    for n in range(count):
        state, _ = solver.step(field, n * h, h, state)
    assert float((state[0] - first[0]).abs().max()) > 0.1, "the steps do not move"
    for n in reversed(range(count)):
        state = solver.reverse(field, n * h, h, state)
    gap = max(float((a - b).abs().max()) for a, b in zip(state, first, strict=True))
    assert gap < 1e-10, f"the initial state is recovered with an error of {gap:.1e}"


def check_solver_promises(build: Build) -> None:
    """Check every promise that the solver declares by measuring it."""
    assert_promises(build())


def _problem(solver: Solver) -> tuple[Any, Tensor]:
    """Return a field that the solver is for and a start; both depend on time if they may."""
    if not solver.rotates:
        return PENDULUM, START
    generator = torch.Generator().manual_seed(0)
    start = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64)).Q
    matrices = torch.randn(3, 4, 4, generator=generator, dtype=torch.float64)
    skew = matrices - matrices.mT

    def linear(t: Tensor) -> Tensor:
        return skew[0] * torch.cos(3 * t) + t * skew[1]

    def nonlinear(t: Tensor, y: Tensor) -> Tensor:
        return y.mT @ skew[2] @ y + (torch.tanh(y) - torch.tanh(y.mT)) * torch.sin(t)

    return (LinearRotating(linear) if solver.linear else Rotating(nonlinear)), start


SOLVER_CHECKS: dict[str, Callable[[Build], None]] = {
    "order": check_order,
    "symmetry": check_symmetry,
    "symplecticity": check_symplecticity,
    "reversal": check_reversal,
    "promises": check_solver_promises,
}
"""Every check of a solver; each takes a function that builds it."""
