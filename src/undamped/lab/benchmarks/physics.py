"""Physics networks compared with alternatives in plain PyTorch: seconds, memory, gradients.

Every section builds one network with one set of weights and computes the same result in several
ways, in one run: closed gradients compared with autograd's (hnn), long symplectic trajectories in
constant
memory (srnn), accelerations of a Lagrangian network compared with torch.func and a loop (lnn).

    undamped bench physics
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, vmap

from undamped._base.options import unknown_name
from undamped.lab.benchmarks.timing import benchmark, interleaved, peak_memory, timing_table
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.models.physics.fields.lagrangian import LagrangianField
from undamped.models.physics.hnn import PerceptronHamiltonian
from undamped.models.physics.lnn import PerceptronLagrangian
from undamped.models.physics.srnn import SRNN

HNN_DOF, HNN_WIDTH, HNN_STATES = 4, 200, 512
LNN_DOF, LNN_WIDTH, LNN_LAYERS, LNN_STATES = 2, 64, 3, 256
AGREEMENT = 1e-10
"""Largest relative difference of reversible gradients from back-propagation."""
HEADER = ("", "ms", "times ours")
OURS, MAPPED, LOOPED = "one pass, written out", "vmap(hessian)", "a loop over samples"
CLOSED, AUTOGRAD = "closed gradient", "autograd, create_graph"
Section = tuple[Table, dict[str, Any]]
"""A table, and all its numbers for JSON."""


@benchmark("physics")
def run(
    *, rounds: int = 7, only: Sequence[str] = (), quick: bool = False, progress: Progress = silent
) -> Report:
    """Physics networks compared with autograd: seconds of a step, memory of long trajectories.

    Args:
        rounds: How often each candidate is timed.
        only: Names of sections; all by default.
        quick: Small sizes.
        progress: Called with a name after every measurement.

    Example:
        >>> result = run(quick=True)
    """
    for name in only:
        if name not in SECTIONS:
            raise unknown_name("section of this benchmark", name, list(SECTIONS))
    sections = [SECTIONS[name](rounds, quick, progress) for name in only or SECTIONS]
    tables = [table for table, _ in sections]
    return Report(
        [{"title": table.title, **numbers} for table, numbers in sections],
        [*tables, Table((), (), f"{torch.get_num_threads()} threads.")],
    )


def hamiltonian_gradients(rounds: int, quick: bool, progress: Progress) -> Section:
    """Time an update of HNN with closed gradients, and with `autograd.grad(create_graph=True)`.

    Args:
        rounds: How often each is timed.
        quick: Whether to use small sizes.
        progress: Called with a name after every measurement.
    """
    torch.manual_seed(0)
    width, count = (16, 8) if quick else (HNN_WIDTH, HNN_STATES)
    field = PerceptronHamiltonian(HNN_DOF, hidden_size=width)
    z, target = torch.randn(2, count, 2 * HNN_DOF)

    def closed() -> Tensor:
        return field(0.0, z)

    def by_autograd() -> Tensor:
        leaf = z.clone().requires_grad_()
        energy = field.net(leaf).sum()
        (slope,) = torch.autograd.grad(energy, leaf, create_graph=torch.is_grad_enabled())
        return torch.cat((slope[:, HNN_DOF:], -slope[:, :HNN_DOF]), dim=1)

    repeats = 1 if quick else 10

    def update(rates: Callable[[], Tensor]) -> None:
        for _ in range(repeats):
            field.zero_grad()
            (rates() - target).square().mean().backward()

    torch.testing.assert_close(closed(), by_autograd(), rtol=1e-4, atol=1e-5)
    candidates = {CLOSED: partial(update, closed), AUTOGRAD: partial(update, by_autograd)}
    timings = interleaved(candidates, rounds=rounds, progress=progress)
    ratio = timings[AUTOGRAD].over(timings[CLOSED])
    table = timing_table(
        timings,
        CLOSED,
        f"HNN, an update: {count} states of {2 * HNN_DOF} numbers, 2 × {width}, {repeats} updates",
        f"autograd takes {ratio:.2f} times as long as closed gradients (target: at least 1).",
        header=HEADER,
    )
    return table, {"timings": timings, "autograd_over_closed": ratio}


def symplectic_memory(rounds: int, quick: bool, progress: Progress) -> Section:
    """Compare peak memory and gradients of SRNN over many steps, reversed and back-propagated.

    Args:
        rounds: Not used: memory is measured once.
        quick: Whether to use few steps.
        progress: Called with a name after every measurement.
    """
    short, middle, long = lengths = (10, 20, 40) if quick else (100, 1000, 10_000)
    peaks: dict[str, dict[int, int]] = {"reversible": {}, "backprop": {}}
    for gradient, sizes in peaks.items():
        for steps in lengths if gradient == "reversible" else (short, middle):
            sizes[steps] = peak_memory(_memory_work, gradient, steps)
            progress(f"memory, {gradient}, {steps} steps")
    difference = _gradient_difference(short)
    growth = (peaks["reversible"][long] - peaks["reversible"][short]) / 1e6
    table = Table(
        ("", *(f"{steps:,} steps" for steps in lengths)),
        [
            (gradient, *(f"{sizes[n] / 1e6:.1f}" if n in sizes else "" for n in lengths))
            for gradient, sizes in peaks.items()
        ],
        "SRNN, gradients over many steps: peak memory in MB",
        [
            f"{long:,} reversed steps take {growth:.1f} MB more than {short:,} (target: 0).",
            f"Their gradients differ from those of back-propagation by {difference:.1e} "
            f"(target: {AGREEMENT:g}).",
        ],
    )
    return table, {"peak_bytes": peaks, "gradient_difference": difference}


def _srnn(gradient: str) -> SRNN:
    torch.manual_seed(0)
    return SRNN(2, hidden_size=64, step_size=0.01, gradient=gradient).double()  # type: ignore[arg-type]


def _differentiate(model: SRNN, steps: int) -> None:
    start = torch.linspace(-1, 1, 256).double().reshape(64, 4)
    model.trajectory(start, [0.01 * steps]).square().sum().backward()


def _memory_work(gradient: str, steps: int) -> Callable[[], None]:
    """Prepare a pass in a new process; libraries are loaded before it."""
    model = _srnn(gradient)
    _differentiate(model, 4)
    return partial(_differentiate, model, steps)


def _gradient_difference(steps: int) -> float:
    """Return the largest relative difference of the two gradients, parameter by parameter."""
    gradients = []
    for gradient in ("reversible", "backprop"):
        model = _srnn(gradient)
        _differentiate(model, steps)
        gradients.append([p.grad for p in model.parameters()])
    largest = 0.0
    for a, b in zip(*gradients, strict=True):
        assert a is not None and b is not None
        largest = max(largest, ((a - b).norm() / b.norm()).item())
    return largest


def lagrangian_accelerations(rounds: int, quick: bool, progress: Progress) -> Section:
    """Time accelerations of LNN by one pass, by `vmap(hessian)`, and sample by sample.

    Args:
        rounds: How often each is timed.
        quick: Whether to use small sizes.
        progress: Called with a name after every measurement.
    """
    torch.manual_seed(0)
    width, count = (8, 4) if quick else (LNN_WIDTH, LNN_STATES)
    field = PerceptronLagrangian(LNN_DOF, hidden_size=width, hidden_layers=LNN_LAYERS)
    q, v, target = torch.randn(3, count, LNN_DOF)

    def acceleration(position: Tensor, velocity: Tensor) -> Tensor:
        """Solve the Euler–Lagrange equation for one sample."""
        by_q = grad(field.lagrangian, 0)(position, velocity)
        mixed = jacfwd(grad(field.lagrangian, 1), 0)(position, velocity)
        masses = hessian(field.lagrangian, 1)(position, velocity)
        return torch.linalg.solve(masses, by_q - mixed @ velocity)

    methods: dict[str, Callable[[], Tensor]] = {
        OURS: lambda: field.acceleration(q, v),
        "reverse over reverse": lambda: LagrangianField.acceleration(field, q, v),
        MAPPED: lambda: vmap(acceleration)(q, v),
        LOOPED: lambda: torch.stack([acceleration(*pair) for pair in zip(q, v, strict=True)]),
    }
    for method in methods.values():
        torch.testing.assert_close(method(), methods[OURS](), rtol=1e-4, atol=1e-5)

    def update(method: Callable[[], Tensor]) -> None:
        field.zero_grad()
        (method() - target).square().mean().backward()

    def accelerations(method: Callable[[], Tensor]) -> None:
        with torch.no_grad():
            method()

    rows, notes, all_timings = [], [], {}
    for title, work in (("accelerations", accelerations), ("an update", update)):
        candidates = {name: partial(work, method) for name, method in methods.items()}
        timings = interleaved(candidates, rounds=rounds, progress=progress)
        table = timing_table(timings, OURS, title)
        rows += [(f"{name}, {title}", *numbers) for name, *numbers in table.rows]
        mapped, looped = (timings[name].over(timings[OURS]) for name in (MAPPED, LOOPED))
        notes.append(
            f"{title.capitalize()}: vmap(hessian) takes {mapped:.1f} times as long as ours "
            f"(target: 2), a loop over samples {looped:.0f} times (target: 10)."
        )
        all_timings[title] = timings
    title = f"LNN: {count} states of {2 * LNN_DOF} numbers, {LNN_LAYERS} × {width}"
    return Table(HEADER, rows, title, notes), {"timings": all_timings}


SECTIONS: dict[str, Callable[[int, bool, Progress], Section]] = {
    "hnn": hamiltonian_gradients,
    "srnn": symplectic_memory,
    "lnn": lagrangian_accelerations,
}
