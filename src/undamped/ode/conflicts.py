"""Which choices for a solve contradict each other: one table of conditions and messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from undamped._base.errors import OptionError, ShapeError

if TYPE_CHECKING:
    from undamped.ode.problem import Problem


def refuse_conflicts(problem: Problem, start: Tensor) -> None:
    """Refuse the first choice that does not fit the others, or the shapes of the packed start."""
    solver, packing = problem.solver, problem.field.packing
    problem.gradient.check(solver)
    for holds, message in CONFLICTS:
        if holds(problem):
            raise OptionError(message(problem))
    shapes = f"shapes {[tuple(shape) for shape in packing.shapes]}"
    if solver.phase_space and not packing.single and len({*packing.shapes}) > 1:
        raise ShapeError(
            f"'{solver.name}' needs positions and momenta of equal shapes in y0, got {shapes}. "
            "Give (q, p)."
        )
    if problem.per_sample and not (start.dim() if packing.single else packing.batched):
        raise ShapeError(
            "With a step size per sample y0 must have the batch in its first dimension, the same "
            f"in every tensor, got {shapes}. Use steps='batch' for other states."
        )


def _implicit_samples(p: Problem) -> bool:
    return p.per_sample and p.solver.implicit


CONFLICTS: Sequence[tuple[Callable[[Problem], bool], Callable[[Problem], str]]] = (
    (
        lambda p: p.settings.checkpoint_steps != 1 and not p.gradient.keeps_states,
        lambda p: (
            "options.checkpoint_steps needs gradient='checkpoint', got "
            f"gradient='{p.gradient.name}'."
        ),
    ),
    (
        lambda p: p.per_sample and p.settings.norm is not None,
        lambda p: (
            "options.norm needs one step size for the batch, got one per sample. Leave out norm or "
            "steps='sample'; rtol and atol may be tensors."
        ),
    ),
    (
        lambda p: p.per_sample and bool(p.settings.stops or p.settings.min_step),
        lambda p: (
            "options.step_t, jump_t and min_step need one step size for the batch, got one per "
            "sample. Leave them out, or steps='sample'."
        ),
    ),
    (
        lambda p: p.compact and not p.per_sample,
        lambda p: (
            "compact needs steps='sample': all samples of a batch with one step size finish "
            "together."
        ),
    ),
    (
        lambda p: p.per_sample and not (p.solver.per_sample and p.chooses_steps),
        lambda p: (
            "A step size per sample needs a method that chooses its steps for each sample, got "
            f"'{p.solver.name}'{' with a fixed step_size' if p.settings.step_size else ''}. Use "
            "'dopri5', 'tsit5', 'bosh3', 'heun', 'dopri8', or for stiff fields 'radau5', 'sdirk4' "
            "or 'trbdf2'."
        ),
    ),
    (
        lambda p: _implicit_samples(p) and (p.compact or p.gradient.solves_back),
        lambda p: (
            f"'{p.solver.name}' with a step size per sample needs gradient='checkpoint' or "
            "'backprop' and compact=False, got "
            f"{'compact=True' if p.compact else repr(p.gradient.name)}. Leave that out, or use an "
            "explicit method."
        ),
    ),
    (
        lambda p: _implicit_samples(p) and (p.event is not None or p.keeps_dense),
        lambda p: (
            f"'{p.solver.name}' with a step size per sample takes no "
            f"{'dense=True' if p.event is None else 'event'}. Use steps='batch', or an explicit "
            "method."
        ),
    ),
    (
        lambda p: p.per_sample and p.event is not None and not p.event.terminal,
        lambda p: (
            "With a step size per sample an event ends its sample, got terminal=False. Use "
            "steps='batch', or dense=True and locate the events afterwards."
        ),
    ),
)
"""Conditions that are refused, with their messages; the first that holds is raised."""
