"""What solvers declare, measured over the registry: order, symmetry, symplecticity, reversal."""

import math
import sys
from pathlib import Path

import pytest
import torch

import undamped
from undamped._base.registry import solvers
from undamped.ode import LinearRotating, Rotating, Separable, solve

torch.manual_seed(0)
START = torch.tensor([[0.9, 0.3], [-0.4, 0.7]], dtype=torch.float64)
# A pendulum with a driven length: separable, Hamiltonian, nonlinear, and dependent on time.
PENDULUM = Separable(lambda t, p: p, lambda t, q: -torch.sin(q) * (1 + 0.3 * torch.sin(t)))
# Everything but the drive, for properties that are stated for autonomous Hamiltonians.
FREE = Separable(lambda t, p: p + 0.1 * p**3, lambda t, q: -torch.sin(q))
NAMES = list(solvers)
ROTATING = [name for name in NAMES if solvers[name].rotates]
TURN = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
SKEW = torch.randn(3, 4, 4, dtype=torch.float64)
SKEW = SKEW - SKEW.mT


def drift(t):
    return SKEW[0] * torch.cos(3 * t) + t * SKEW[1]


def swirl(t, y):
    return y.mT @ SKEW[2] @ y + (torch.tanh(y) - torch.tanh(y.mT)) * torch.sin(t)


def problem(name):
    """A field that the method is for, and a start; both depend on time and, if they may, on Y."""
    if not solvers[name].rotates:
        return PENDULUM, START
    return LinearRotating(drift) if solvers[name].linear else Rotating(swirl), TURN


def exact(field, y0, end):
    # The highest order at fine fixed steps; test_solvers_against_scipy checks it with SciPy.
    return solve(field, y0, [0.0, end], method="dopri8", options={"step_size": 0.03}).final


def fixed(name, field, y0, end, count):
    return solve(field, y0, [0.0, end], method=name, options={"step_size": end / count}).final


@pytest.mark.parametrize("name", NAMES)
def test_the_declared_order_is_the_measured_one(name):
    order = solvers[name]().order
    counts = {1: (80, 160), 2: (40, 80), 3: (24, 48), 4: (30, 60), 5: (20, 40), 8: (14, 28)}
    if name == "tao":
        counts[2] = (200, 400)
    if solvers[name].implicit and not solvers[name].switches:
        counts = {1: (25, 50), 2: (12, 24), 3: (8, 16), 4: (8, 16), 5: (5, 10), 6: (4, 8)}
    coarse, fine = counts[order]
    # The error of a high order drowns in rounding unless the time is long.
    end = 8.0 if order == 8 else 2.0
    field, start = problem(name)
    reference = exact(field, start, end)
    errors = [
        float((fixed(name, field, start, end, count) - reference).abs().max())
        for count in (coarse, fine)
    ]
    measured = math.log2(errors[0] / errors[1])
    assert abs(measured - order) < 0.2, f"{name} declares {order}, measured {measured:.2f}"


def step_once(solver, h, state, t=0.2):
    field = problem(solver.name)[0] if solver.rotates else FREE
    return solver.step(field, t, h, state)[0]


@pytest.mark.parametrize("name", NAMES)
def test_symmetry_is_as_declared(name):
    solver = solvers[name]()
    start = TURN if solver.rotates else START
    state = solver.start(FREE, 0.2, start)
    for _ in range(3):
        state = step_once(solver, 0.1, state)
    there = step_once(solver, 0.8, state, 0.2)
    back = step_once(solver, -0.8, there, 1.0)
    gap = max(float((a - b).abs().max()) for a, b in zip(back, state, strict=True))
    assert (gap < 1e-9) == solver.symmetric, f"{name}: {gap:.1e}"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ROTATING])
def test_symplecticity_is_as_declared(name):
    solver = solvers[name]()
    y = START[:1]
    extra = solver.start(FREE, 0.0, y)
    doubled = name == "tao"  # symplectic on its doubled phase space (q, p, x, y)
    flat = torch.cat([extra[0], extra[1]], dim=1) if doubled else y

    def step(z):
        if doubled:
            state = (z[:, :2], z[:, 2:])
            return torch.cat(solver.step(FREE, 0.0, 0.8, state)[0], dim=1)
        return solver.step(FREE, 0.0, 0.8, (z, *solver.start(FREE, 0.0, z)[1:]))[0][0]

    size = flat.shape[1]
    jacobian = torch.autograd.functional.jacobian(step, flat).reshape(size, size)
    form = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    form = torch.block_diag(form, form) if doubled else form
    gap = float((jacobian.T @ form @ jacobian - form).abs().max())
    assert (gap < 1e-9) == solver.symplectic, f"{name}: {gap:.1e}"


@pytest.mark.parametrize("name", [name for name in NAMES if solvers[name].reversible])
def test_a_reversible_method_goes_there_and_back(name):
    solver = solvers[name]()
    field, start = problem(name)
    state = started = solver.start(field, 0.0, start)
    count, h = 300, 0.02
    for number in range(count):
        state, _ = solver.step(field, number * h, h, state)
    assert float((state[0] - started[0]).abs().max()) > 0.1
    for number in reversed(range(count)):
        state = solver.reverse(field, number * h, h, state)
    for a, b in zip(state, started, strict=True):
        assert float((a - b).abs().max()) < 1e-10


@pytest.mark.parametrize("name", [name for name in NAMES if not solvers[name].reversible])
def test_a_method_that_cannot_be_undone_says_so(name):
    with pytest.raises(ValueError, match="reversible"):
        solvers[name]().reverse(FREE, 0.0, 0.1, (START,))


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
