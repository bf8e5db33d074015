"""Energies over long times, and the calls that a solve makes.

What solvers declare is measured by tests/conformance/test_every_solver.py.
"""

import sys
from pathlib import Path

import pytest
import torch

import undamped
from undamped._base.registry import solvers
from undamped.ode import Separable, solve


@pytest.mark.parametrize("name", ["symplectic-euler", "leapfrog", "yoshida4"])
def test_energy_drift_stays_bounded_over_a_hundred_thousand_steps(name):
    # Many pendulums for fewer steps would not show drift; one for 10⁵ steps would be slow with
    # autograd bookkeeping, so the step is called directly.
    solver, y, h = solvers[name](), torch.tensor([1.2, 0.0], dtype=torch.float64), 0.1
    field = Separable(lambda t, p: p, lambda t, q: -q)

    def energy(z):
        return 0.5 * float(z[0] ** 2 + z[1] ** 2)

    first = energy(y)
    # The step is linear here: its matrix is the method, and 10⁵ products are its 10⁵ steps,
    # a thousand at a time.
    columns = [solver.step(field, 0.0, h, (unit,))[0][0] for unit in torch.eye(2).double()]
    matrix = torch.stack(columns, dim=1)
    block = [y]
    for _ in range(999):
        block.append(matrix @ block[-1])
    blocks, leap = [torch.stack(block)], torch.linalg.matrix_power(matrix, 1000)
    for _ in range(99):
        blocks.append(blocks[-1] @ leap.T)
    path = torch.cat(blocks)
    energies = 0.5 * path.pow(2).sum(1)
    early = float((energies[:1000] - first).abs().max())
    late = float((energies[-1000:] - first).abs().max())
    worst = float((energies - first).abs().max())
    assert worst < 0.06 * first * 1.2 and late < 1.05 * early + 1e-9


def test_a_nonlinear_pendulum_keeps_its_energy_where_an_explicit_method_loses_it():
    y = torch.tensor([1.2, 0.3], dtype=torch.float64)

    def energy(z):
        return float(0.5 * z[1] ** 2 - torch.cos(z[0]))

    field = Separable(lambda t, p: p, lambda t, q: -torch.sin(q))
    options = {"step_size": 0.1}
    with torch.no_grad():
        ours = solve(field, y, [0.0, 300.0], method="leapfrog", options=options).final
        euler = solve(field, y, [0.0, 300.0], method="euler", options=options).final
    assert abs(energy(ours) - energy(y)) < 2e-3
    assert abs(energy(euler) - energy(y)) > 0.1


def test_tao_follows_a_hamiltonian_that_is_not_separable():
    def field(t, y):  # H = ½ (q² + 1)(p² + 1)
        q, p = y[..., :1], y[..., 1:]
        return torch.cat((p * (q**2 + 1), -q * (p**2 + 1)), dim=-1)

    y = torch.tensor([[0.0, -1.5]], dtype=torch.float64)
    with torch.no_grad():
        end = solve(field, y, [0.0, 10.0], method="tao", options={"step_size": 0.01}).final

    def energy(z):
        return float(0.5 * (z[0, 0] ** 2 + 1) * (z[0, 1] ** 2 + 1))

    assert abs(energy(end) - energy(y)) < 2e-3 * energy(y)


def test_odeint_makes_at_most_eight_python_calls_per_evaluation():
    source, calls, evaluations = str(Path(undamped.__file__).parent), 0, 0

    def count(frame, event, _):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(source)

    def field(t, y):
        nonlocal evaluations
        evaluations += 1
        return -y * torch.sin(7 * t)

    times = torch.tensor([0.0, 40.0])
    undamped.odeint(field, torch.ones(4), times, method="dopri5")
    evaluations, before = 0, sys.getprofile()
    sys.setprofile(count)
    try:
        undamped.odeint(field, torch.ones(4), times, method="dopri5")
    finally:
        sys.setprofile(before)
    assert evaluations > 1000 and calls <= 8 * evaluations
