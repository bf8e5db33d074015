"""The settings of a solve: read, checked, and refused where they change nothing or contradict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError, shortened
from undamped._base.options import (
    NonNegativeFloat,
    Option,
    PositiveFloat,
    PositiveInt,
    check_against,
    options_of,
)
from undamped._base.registry import solvers
from undamped.ode.loop.control import StepControl
from undamped.ode.loop.route import Jumps, read_stops
from undamped.ode.methods.solver import Solver
from undamped.ode.state.packing import Packing, type_name

if TYPE_CHECKING:
    from undamped.ode.problem import Problem

Gradient = Literal["checkpoint", "backprop", "adjoint", "reversible"]
Steps = Literal["batch", "sample"]
FIXED_ONLY = ("grid", "perturb")
"""Options for fixed steps."""
ADAPTIVE_ONLY = ("first_step", "max_step", "min_step", "step_t", "jump_t", "control", "norm")
"""Options for steps that the method chooses."""


@dataclass(frozen=True)
class Settings:
    """How a solve is done.

    Args:
        step_size: Fixed step size. None lets a method with step control choose its steps, and
            others take one step from output to output.
        max_steps: Steps, accepted and rejected, after which to give up.
        checkpoint_steps: Steps recomputed at a time when gradients are taken from checkpoints.
        grid: Times at which fixed steps end, besides the output times; in place of step_size.
        perturb: Whether fixed steps evaluate the field just inside every step and never at its
            ends, for fields that jump there.
        first_step: First step size; None chooses it.
        max_step: Largest step size; None sets no limit.
        min_step: Smallest step size: a step so small is accepted whatever its error.
        step_t: Times at which a step is to end.
        jump_t: Times at which the field jumps: steps end there, and evaluate the field on their
            side only.
        control: Step control.
        norm: A function from errors in units of the tolerance, in the form of the state, to one
            number, at most 1 where a step is good enough. None takes the root mean square, and
            of a tuple that of its worst tensor.
        rtol: Relative tolerance of a step; one, or one for every number of the packed state.
        atol: Absolute tolerance of a step, likewise.
    """

    step_size: PositiveFloat | None = None
    max_steps: PositiveInt = 100_000
    checkpoint_steps: PositiveInt = 1
    grid: Any = None
    perturb: bool = False
    first_step: PositiveFloat | None = None
    max_step: PositiveFloat | None = None
    min_step: NonNegativeFloat = 0.0
    step_t: Any = None
    jump_t: Any = None
    control: StepControl = field(default_factory=StepControl)
    norm: Any = None
    rtol: float | Tensor = 1e-7
    atol: float | Tensor = 1e-9

    @property
    def stops(self) -> tuple[float, ...]:
        """Times at which a step has to end, besides the output times."""
        return tuple(sorted({*(self.step_t or ()), *(self.jump_t or ()), *(self.grid or ())}))

    @property
    def jumps(self) -> Jumps:
        """On which side of a jump steps evaluate their field."""
        return Jumps(self.jump_t or (), everywhere=self.perturb)

    @property
    def tightest(self) -> tuple[float, float]:
        """The smallest tolerances of any number, relative and absolute."""
        both = self.rtol, self.atol
        rtol, atol = (float(x.min()) if isinstance(x, Tensor) else x for x in both)
        return rtol, atol


@cache
def _declared_options(fixed: bool) -> dict[str, Option]:
    """Return the options of fixed steps, or of steps that the method chooses."""
    excluded = {"rtol", "atol", *(ADAPTIVE_ONLY if fixed else FIXED_ONLY)}
    return {name: option for name, option in options_of(Settings).items() if name not in excluded}


def choose_solver(method: str | Solver) -> Solver:
    """Return a method by its registry name, or the solver itself."""
    if isinstance(method, Solver):
        return method
    if not isinstance(method, str):
        name = method.__name__ if isinstance(method, type) else type(method).__name__
        if isinstance(method, type):
            raise OptionError(f"method must be a solver, got the class {name}. Write {name}().")
        raise OptionError(f"method must be the name of a solver or a solver, got a {name}.")
    return solvers[_registry_name(method)]()


def _registry_name(name: str) -> str:
    """Return the registry name of a method, which may be written with underscores or an alias."""
    if name in solvers:
        return name
    plain = name.replace("_", "-").lower()
    if plain in solvers:
        return plain
    return next((key for key in solvers if plain in solvers[key].aliases), name)


def has_fixed_steps(solver: Solver, options: dict[str, Any]) -> bool:
    """Whether a method takes fixed steps with these options."""
    if not isinstance(options, dict):
        raise OptionError(
            f"options must be a dict such as {{'step_size': 0.1}}, got a {type(options).__name__}."
        )
    return not solver.adaptive or options.get("step_size") is not None


def read_settings(
    solver: Solver, rtol: Any, atol: Any, options: dict[str, Any], packing: Packing, like: Tensor
) -> Settings:
    """Return the settings of a solve, refusing those that have no effect on a method.

    Args:
        solver: The method.
        rtol: Relative tolerance as the user wrote it, or None.
        atol: Absolute tolerance, likewise.
        options: Further settings by name.
        packing: Of the state, whose form tolerances may have.
        like: The packed start.
    """
    fixed = has_fixed_steps(solver, options)
    for reserved in ("rtol", "atol"):
        if reserved in options:
            raise OptionError(
                f"{reserved} is not one of the options, but a separate argument: pass "
                f"{reserved}=… to the function."
            )
    remedy = "Leave out step_size"
    if not solver.adaptive:
        remedy = "Choose a method with step control, such as 'dopri5'"
    names = [name for name in (ADAPTIVE_ONLY if fixed else FIXED_ONLY) if name in options]
    if names and fixed:
        raise OptionError(
            f"{', '.join(names)} of options have no effect, since the steps are fixed with "
            f"'{solver.name}'. {remedy}, or leave these options out."
        )
    if names:
        raise OptionError(
            f"{', '.join(names)} of options are for fixed steps, but '{solver.name}' chooses its "
            "steps. Set step_size too, or use step_t and jump_t."
        )
    values = check_against("options", _declared_options(fixed), options)
    for name in ("step_t", "jump_t", "grid"):
        if values.get(name) is not None:
            values[name] = read_stops(values[name], name)
    norm = values.get("norm")
    if norm is not None and not callable(norm):
        raise OptionError(
            "options.norm must be a function from errors to one number, got a "
            f"{type(norm).__name__}."
        )
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is None:
            continue
        if fixed:
            raise OptionError(
                f"{name} has no effect, since the steps are fixed with '{solver.name}', got "
                f"{shortened(value)}. {remedy}, or set only options={{'step_size': …}}."
            )
        values[name] = packing.tolerance(value, name, like)
    settings = Settings(**values)
    if not fixed:
        _refuse_coarse(settings, packing, user_rtol=rtol is not None)
    return settings


def _refuse_coarse(settings: Settings, packing: Packing, *, user_rtol: bool) -> None:
    """Refuse a tolerance that a state in half precision cannot show."""
    eps, kind = max((torch.finfo(kind).eps, type_name(kind)) for kind in packing.types)
    rtol = settings.tightest[0]
    if eps > 1e-4 and rtol < eps:
        raise OptionError(
            f"rtol of a state in {kind} must be at least {eps:.2g}, the resolution of the format, "
            f"got {rtol:g}{'' if user_rtol else ' (the default)'}. Start from y0.float() and let "
            "the field compute in half precision under torch.autocast, or set rtol=1e-2 and "
            "atol=1e-2."
        )


def refuse_conflicts(problem: Problem, start: Tensor) -> None:
    """Refuse the first choice that does not fit the others, or the shapes of the packed start."""
    solver, packing = problem.solver, problem.field.packing
    problem.gradient.check(solver)
    for holds, message in _conflicts(problem):
        if holds:
            raise OptionError(message)
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


def _conflicts(p: Problem) -> Iterator[tuple[bool, str]]:
    """Yield conditions that are refused, with their messages."""
    settings, name, implicit = p.settings, p.solver.name, p.per_sample and p.solver.implicit
    yield (
        settings.checkpoint_steps != 1 and not p.gradient.keeps_states,
        f"options.checkpoint_steps needs gradient='checkpoint', got gradient='{p.gradient.name}'.",
    )
    yield (
        p.per_sample and settings.norm is not None,
        "options.norm needs one step size for the batch, got one per sample. Leave out norm or "
        "steps='sample'; rtol and atol may be tensors.",
    )
    yield (
        p.per_sample and bool(settings.stops or settings.min_step),
        "options.step_t, jump_t and min_step need one step size for the batch, got one per "
        "sample. Leave them out, or steps='sample'.",
    )
    yield (
        p.compact and not p.per_sample,
        "compact needs steps='sample': all samples of a batch with one step size finish together.",
    )
    yield (
        p.per_sample and not (p.solver.per_sample and p.chooses_steps),
        "A step size per sample needs a method that chooses its steps for each sample, got "
        f"'{name}'{' with a fixed step_size' if settings.step_size else ''}. Use 'dopri5', "
        "'tsit5', 'bosh3', 'heun', 'dopri8', or for stiff fields 'radau5', 'sdirk4' or 'trbdf2'.",
    )
    yield (
        implicit and (p.compact or p.gradient.solves_back),
        f"'{name}' with a step size per sample needs gradient='checkpoint' or 'backprop' and "
        f"compact=False, got {'compact=True' if p.compact else repr(p.gradient.name)}. Leave that "
        "out, or use an explicit method.",
    )
    yield (
        implicit and (p.event is not None or p.keeps_dense),
        f"'{name}' with a step size per sample takes no "
        f"{'dense=True' if p.event is None else 'event'}. Use steps='batch', or an explicit "
        "method.",
    )
    yield (
        p.per_sample and p.event is not None and not p.event.terminal,
        "With a step size per sample an event ends its sample, got terminal=False. Use "
        "steps='batch', or dense=True and locate the events afterwards.",
    )
