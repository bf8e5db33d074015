"""Closed gradients beside autograd's, and long symplectic trajectories in constant memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from undamped.lab.benchmarks.physics_sections import Section, timing_rows
from undamped.lab.benchmarks.timing import interleaved, peak_memory
from undamped.models.physics.fields.energies import PerceptronHamiltonian
from undamped.models.physics.srnn import SRNN

Tick = Callable[[str], None] | None
FREEDOMS, WIDTH, STATES = 4, 200, 512
AGREE = 1e-10


def hamiltonian_gradients(*, rounds: int, quick: bool, tick: Tick) -> Section:
    """Time an update of HNN with closed gradients, and with `autograd.grad(create_graph=True)`.

    Args:
        rounds: How often each is timed.
        quick: Whether to take small sizes.
        tick: Called with a name after every measurement.
    """
    torch.manual_seed(0)
    width, count = (16, 8) if quick else (WIDTH, STATES)
    field = PerceptronHamiltonian(FREEDOMS, width)
    z, wanted = torch.randn(2, count, 2 * FREEDOMS)

    def closed() -> Tensor:
        return field(0.0, z)

    def by_autograd() -> Tensor:
        leaf = z.clone().requires_grad_()
        energy = field.net(leaf).sum()
        (slope,) = torch.autograd.grad(energy, leaf, create_graph=torch.is_grad_enabled())
        return torch.cat((slope[:, FREEDOMS:], -slope[:, :FREEDOMS]), dim=1)

    def update(rates: Callable[[], Tensor]) -> None:
        field.zero_grad()
        (rates() - wanted).square().mean().backward()

    torch.testing.assert_close(closed(), by_autograd(), rtol=1e-4, atol=1e-5)
    names = {"closed gradient": closed, "autograd, create_graph": by_autograd}
    repeats = 1 if quick else 10
    candidates = {name: partial(_often, repeats, partial(update, f)) for name, f in names.items()}
    timings = interleaved(candidates, rounds=rounds, tick=tick)
    times = timings["autograd, create_graph"].over(timings["closed gradient"])
    return Section(
        f"HNN, an update: {count} states of {2 * FREEDOMS} numbers, 2 × {width}, {repeats} updates",
        ("", "ms", "times ours"),
        timing_rows(timings, "closed gradient"),
        (f"autograd takes {times:.2f} times as long as closed gradients (at least 1 wanted).",),
        {
            "timings": {name: timing.to_dict() for name, timing in timings.items()},
            "autograd_over_closed": times,
        },
    )


def _often(count: int, work: Callable[[], None]) -> None:
    for _ in range(count):
        work()


def symplectic_memory(*, rounds: int, quick: bool, tick: Tick) -> Section:
    """Compare peak memory and gradients of SRNN over many steps, undone and back-propagated.

    Args:
        rounds: Not used: memory is measured once.
        quick: Whether to take few steps.
        tick: Called with a name after every measurement.
    """
    short, long = (10, 40) if quick else (100, 10_000)
    middle = 20 if quick else 1000
    peaks: dict[str, dict[int, int]] = {}
    for gradient, lengths in (
        ("reversible", (short, middle, long)),
        ("backprop", (short, middle)),
    ):
        peaks[gradient] = {}
        for steps in lengths:
            peaks[gradient][steps] = peak_memory(_memory_work, gradient, steps)
            if tick is not None:
                tick(f"memory, {gradient}, {steps} steps")
    apart = _gradient_difference(short)
    undone = peaks["reversible"]
    rows = tuple(
        (gradient, *(f"{of[n] / 1e6:.1f}" if n in of else "" for n in (short, middle, long)))
        for gradient, of in peaks.items()
    )
    grown = (undone[long] - undone[short]) / 1e6
    return Section(
        "SRNN, gradients over many steps: peak memory in MB",
        ("", *(f"{n:,} steps" for n in (short, middle, long))),
        rows,
        (
            f"Undone steps take {grown:.1f} MB more for {long:,} than for {short:,} (flat wanted).",
            f"Their gradients are those of back-propagation to {apart:.1e} ({AGREE:g} wanted).",
        ),
        {
            "peak_bytes": {g: {str(n): b for n, b in of.items()} for g, of in peaks.items()},
            "gradient_difference": apart,
        },
    )


def _model(gradient: str) -> SRNN:
    torch.manual_seed(0)
    return SRNN(2, hidden_size=64, step_size=0.01, gradient=gradient).double()  # type: ignore[arg-type]


def _work(model: SRNN, steps: int) -> None:
    start = torch.linspace(-1, 1, 256).double().reshape(64, 4)
    model.trajectory(start, [0.01 * steps]).square().sum().backward()


def _memory_work(gradient: str, steps: int) -> Callable[[], None]:
    """Prepare a pass in a fresh process: libraries are in place before."""
    model = _model(gradient)
    _work(model, 4)
    return partial(_work, model, steps)


def _gradient_difference(steps: int) -> float:
    """Return the largest relative difference of the two gradients, parameter by parameter."""
    found = []
    for gradient in ("reversible", "backprop"):
        model = _model(gradient)
        _work(model, steps)
        found.append([p.grad for p in model.parameters()])
    worst = 0.0
    for a, b in zip(*found, strict=True):
        assert a is not None and b is not None
        worst = max(worst, ((a - b).norm() / b.norm()).item())
    return worst
