"""The settings of a solve: read, checked, and refused where they would change nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch
from torch import Tensor

from undamped._base.errors import OptionError, shortened
from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt, check
from undamped._base.registry import solvers
from undamped.ode.loop.control import StepControl
from undamped.ode.loop.route import Jumps, read_stops
from undamped.ode.methods.solver import Solver
from undamped.ode.state.packing import Packing, type_name

Gradient = Literal["checkpoint", "backprop", "adjoint", "reversible"]
Steps = Literal["batch", "sample"]


@dataclass(frozen=True)
class CommonOptions:
    """What can be set for any steps.

    Args:
        step_size: Fixed step size; without it a method that can chooses its steps, and others take
            one step from output to output.
        max_steps: Steps, accepted and rejected, after which to give up.
        checkpoint_steps: Steps recomputed at a time when gradients are taken from checkpoints.
    """

    step_size: PositiveFloat | None = None
    max_steps: PositiveInt = 100_000
    checkpoint_steps: PositiveInt = 1


@dataclass(frozen=True)
class FixedOptions(CommonOptions):
    """What can be set for fixed steps.

    Args:
        step_size: Fixed step size; None takes one step from output to output.
        max_steps: Steps after which to give up.
        checkpoint_steps: Steps recomputed at a time when gradients are taken from checkpoints.
        grid: Times at which steps end, beside the output times; in place of step_size.
        perturb: Whether to evaluate the field just inside every step, never at its ends: for
            fields that jump at the ends of steps.
    """

    grid: Any = None
    perturb: bool = False


@dataclass(frozen=True)
class ChosenOptions(CommonOptions):
    """What can be set for steps that a method chooses.

    Args:
        step_size: None; with a size the steps are fixed.
        max_steps: Steps, accepted and rejected, after which to give up.
        checkpoint_steps: Steps recomputed at a time when gradients are taken from checkpoints.
        first_step: First step size; None chooses it.
        max_step: Largest step size; None sets no limit.
        min_step: Smallest step size: a step so small is accepted whatever its error.
        step_t: Times at which a step is to end.
        jump_t: Times at which the field jumps: steps end there, and evaluate it on their own
            side only.
        control: Step control.
        norm: A function from errors in units of the tolerance, in the form of the state, to one
            number, at most 1 where a step is good enough; None takes the root mean square, and
            of a tuple that of its worst member.
    """

    first_step: PositiveFloat | None = None
    max_step: PositiveFloat | None = None
    min_step: NonNegativeFloat = 0.0
    step_t: Any = None
    jump_t: Any = None
    control: StepControl = field(default_factory=StepControl)
    norm: Any = None


COMMON = {option.name for option in fields(CommonOptions)}
ADAPTIVE_ONLY = tuple(option.name for option in fields(ChosenOptions) if option.name not in COMMON)
FIXED_ONLY = tuple(option.name for option in fields(FixedOptions) if option.name not in COMMON)


@dataclass(frozen=True)
class Settings(ChosenOptions, FixedOptions):
    """How a solve is to be done.

    Args:
        rtol: Relative tolerance of a step; one, or one for every number of the packed state.
        atol: Absolute tolerance of a step, likewise.
    """

    rtol: float | Tensor = 1e-7
    atol: float | Tensor = 1e-9

    @property
    def stops(self) -> tuple[float, ...]:
        """Times at which a step has to end, beside the output times."""
        return tuple(sorted({*(self.step_t or ()), *(self.jump_t or ()), *(self.grid or ())}))

    @property
    def jumps(self) -> Jumps:
        """On which side of a jump steps evaluate their field."""
        return Jumps(self.jump_t or (), everywhere=self.perturb)

    @property
    def loosest_rtol(self) -> float:
        """The largest relative tolerance of any number."""
        return float(self.rtol.max()) if isinstance(self.rtol, Tensor) else self.rtol

    @property
    def tightest(self) -> tuple[float, float]:
        """The smallest tolerances of any number, relative and absolute."""
        both = self.rtol, self.atol
        rtol, atol = (float(x.min()) if isinstance(x, Tensor) else x for x in both)
        return rtol, atol


def choose_solver(method: str | Solver) -> Solver:
    """Return a method by its registry name, or as it was given."""
    if isinstance(method, Solver):
        return method
    if not isinstance(method, str):
        name = method.__name__ if isinstance(method, type) else type(method).__name__
        if isinstance(method, type):
            raise OptionError(f"method must be a solver, got the class {name}. Write {name}().")
        raise OptionError(f"method must be the name of a solver or a solver, got a {name}.")
    return solvers[_registry_name(method)]()


def _registry_name(name: str) -> str:
    """Return the registry name of a method, which may be given with underscores or an alias."""
    if name in solvers:
        return name
    plain = name.replace("_", "-").lower()
    if plain in solvers:
        return plain
    return next((key for key in solvers if plain in solvers[key].aliases), name)


def read_settings(
    solver: Solver, rtol: Any, atol: Any, options: dict[str, Any], packing: Packing, like: Tensor
) -> Settings:
    """Return the settings of a solve, refusing those a method has no use for.

    Args:
        solver: The method.
        rtol: Relative tolerance as it was given, or None.
        atol: Absolute tolerance, likewise.
        options: Further settings by name.
        packing: Of the state, which tolerances may follow.
        like: The packed start.
    """
    if not isinstance(options, dict):
        raise OptionError(
            f"options must be a dict such as {{'step_size': 0.1}}, got a {type(options).__name__}."
        )
    for reserved in ("rtol", "atol"):
        if reserved in options:
            raise OptionError(
                f"{reserved} must be an argument of its own, not one of the options: pass "
                "rtol= and atol= beside them."
            )
    _refuse_control(solver, options)
    fixed = not solver.adaptive or options.get("step_size") is not None
    values = check("options", FixedOptions if fixed else ChosenOptions, options)
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
            remedy = (
                "Leave out step_size"
                if solver.adaptive
                else "Choose a method with step control, such as 'dopri5'"
            )
            raise OptionError(
                f"{name} has no effect, since the steps are fixed with '{solver.name}', got "
                f"{shortened(value)}. {remedy}, or set only options={{'step_size': …}}."
            )
        values[name] = packing.tolerance(value, name, like)
    settings = Settings(**values)
    if not fixed:
        _refuse_coarse(settings, packing, user_rtol=rtol is not None)
    return settings


def _refuse_control(solver: Solver, options: dict[str, Any]) -> None:
    """Refuse step control where steps are fixed, and the other way round."""
    fixed = not solver.adaptive or options.get("step_size") is not None
    names = [name for name in (ADAPTIVE_ONLY if fixed else FIXED_ONLY) if name in options]
    if names and not fixed:
        raise OptionError(
            f"{', '.join(names)} of options are for fixed steps, but '{solver.name}' chooses its "
            "steps. Set step_size too, or use step_t and jump_t."
        )
    if names:
        remedy = (
            "Leave step_size out"
            if solver.adaptive
            else "Choose a method with step control, such as 'dopri5'"
        )
        raise OptionError(
            f"{', '.join(names)} of options have no effect, since the steps are fixed with "
            f"'{solver.name}'. {remedy}, or leave these options out."
        )


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
