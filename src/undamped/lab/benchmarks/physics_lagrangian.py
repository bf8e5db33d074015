"""Accelerations of a Lagrangian network beside what torch.func and a loop over samples make."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, vmap

from undamped.lab.benchmarks.physics_sections import Section, timing_rows
from undamped.lab.benchmarks.timing import interleaved
from undamped.models.physics.fields.lagrangian import LagrangianField
from undamped.models.physics.fields.perceptron_lagrangian import PerceptronLagrangian

Tick = Callable[[str], None] | None
FREEDOMS, WIDTH, LAYERS, STATES = 2, 64, 3, 256
OURS, MAPPED, LOOPED = "one pass, written out", "vmap(hessian)", "a loop over samples"


def lagrangian_accelerations(*, rounds: int, quick: bool, tick: Tick) -> Section:
    """Time accelerations of LNN by one pass, by `vmap(hessian)`, and sample by sample.

    Args:
        rounds: How often each is timed.
        quick: Whether to take small sizes.
        tick: Called with a name after every measurement.
    """
    torch.manual_seed(0)
    width, count = (8, 4) if quick else (WIDTH, STATES)
    field = PerceptronLagrangian(FREEDOMS, width, hidden_layers=LAYERS)
    q, v, wanted = torch.randn(3, count, FREEDOMS)

    def one(place: Tensor, speed: Tensor) -> Tensor:
        """The equation as it stands, for one sample."""
        by_q = grad(field.lagrangian, 0)(place, speed)
        mixed = jacfwd(grad(field.lagrangian, 1), 0)(place, speed)
        masses = hessian(field.lagrangian, 1)(place, speed)
        return torch.linalg.solve(masses, by_q - mixed @ speed)

    ways: dict[str, Callable[[], Tensor]] = {
        OURS: lambda: field.acceleration(q, v),
        "reverse over reverse": lambda: LagrangianField.acceleration(field, q, v),
        MAPPED: lambda: vmap(one)(q, v),
        LOOPED: lambda: torch.stack([one(*pair) for pair in zip(q, v, strict=True)]),
    }
    for way in ways.values():
        torch.testing.assert_close(way(), ways[OURS](), rtol=1e-4, atol=1e-5)

    def update(way: Callable[[], Tensor]) -> None:
        field.zero_grad()
        (way() - wanted).square().mean().backward()

    def accelerations(way: Callable[[], Tensor]) -> None:
        with torch.no_grad():
            way()

    works = {"accelerations": accelerations, "an update": update}
    timings = {
        title: interleaved(
            {name: partial(work, way) for name, way in ways.items()}, rounds=rounds, tick=tick
        )
        for title, work in works.items()
    }
    rows, sentences = [], []
    for title, found in timings.items():
        rows += [(f"{row[0]}, {title}", *row[1:]) for row in timing_rows(found, OURS)]
        mapped, looped = (found[name].over(found[OURS]) for name in (MAPPED, LOOPED))
        sentences.append(
            f"{title.capitalize()}: vmap(hessian) takes {mapped:.1f} times as long as ours (2 "
            f"wanted), a loop over samples {looped:.0f} times (10 wanted)."
        )
    return Section(
        f"LNN: {count} states of {2 * FREEDOMS} numbers, {LAYERS} × {width}",
        ("", "ms", "times ours"),
        tuple(rows),
        tuple(sentences),
        {
            "timings": {
                title: {name: timing.to_dict() for name, timing in found.items()}
                for title, found in timings.items()
            }
        },
    )
