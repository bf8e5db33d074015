"""The settings of a solve: read, checked, and refused where they would change nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt, check
from undamped._base.registry import solvers
from undamped.ode.loop.control import StepControl
from undamped.ode.loop.jumps import Jumps, read_stops
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
        piece: Steps recomputed at a time when gradients are taken from checkpoints.
    """

    step_size: PositiveFloat | None = None
    max_steps: PositiveInt = 100_000
    piece: PositiveInt = 1


@dataclass(frozen=True)
class FixedOptions(CommonOptions):
    """What can be set for fixed steps.

    Args:
        step_size: Fixed step size; None takes one step from output to output.
        max_steps: Steps after which to give up.
        piece: Steps recomputed at a time when gradients are taken from checkpoints.
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
        piece: Steps recomputed at a time when gradients are taken from checkpoints.
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


COMMON = {one.name for one in fields(CommonOptions)}
ADAPTIVE_ONLY = tuple(one.name for one in fields(ChosenOptions) if one.name not in COMMON)
FIXED_ONLY = tuple(one.name for one in fields(FixedOptions) if one.name not in COMMON)


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
        raise OptionError(
            explain(
                "method",
                expected="the name of a solver or a solver",
                got=f"the class {name}" if isinstance(method, type) else f"a {name}",
                remedy=f"Write {name}() for one of its own."
                if isinstance(method, type)
                else "`undamped list` shows the names.",
            )
        )
    return solvers[_known_as(method)]()


def _known_as(name: str) -> str:
    """Return the registry name of a method, which may be given with underscores or an alias."""
    if name in solvers:
        return name
    plain = name.replace("_", "-").lower()
    if plain in solvers:
        return plain
    return next((known for known in solvers if plain in solvers[known].aliases), name)


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
            explain(
                "options",
                expected="settings by name",
                got=f"a {type(options).__name__}",
                remedy="Write them as {'step_size': 0.1}.",
            )
        )
    for reserved in ("rtol", "atol"):
        if reserved in options:
            raise OptionError(
                f"options.{reserved}: expected it as an argument of its own, got it among the "
                "options. Pass rtol= and atol= beside them."
            )
    _refuse_control(solver, options)
    fixed = not solver.adaptive or options.get("step_size") is not None
    chosen = check("options", FixedOptions if fixed else ChosenOptions, options)
    for name in ("step_t", "jump_t", "grid"):
        if chosen.get(name) is not None:
            chosen[name] = read_stops(chosen[name], name)
    norm = chosen.get("norm")
    if norm is not None and not callable(norm):
        raise OptionError(
            explain(
                "options.norm",
                expected="a function from errors to one number",
                got=f"a {type(norm).__name__}",
                remedy="Write it as lambda errors: errors.abs().max().",
            )
        )
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is None:
            continue
        if fixed:
            raise OptionError(
                explain(
                    f"{name} of '{solver.name}'",
                    expected="to be left out, since the steps are fixed",
                    got=value,
                    remedy="Leave out step_size to have them chosen."
                    if solver.adaptive
                    else "Choose a method with step control, such as 'dopri5', or set only "
                    "options={'step_size': …}.",
                )
            )
        chosen[name] = packing.tolerance(value, name, like)
    settings = Settings(**chosen)
    if not fixed:
        _refuse_coarse(settings, packing, given=rtol is not None)
    return settings


def _refuse_control(solver: Solver, options: dict[str, Any]) -> None:
    """Refuse step control where steps are fixed, and the other way round."""
    fixed = not solver.adaptive or options.get("step_size") is not None
    named = [name for name in (ADAPTIVE_ONLY if fixed else FIXED_ONLY) if name in options]
    if named and not fixed:
        raise OptionError(
            explain(
                f"options of '{solver.name}'",
                expected="a step_size beside them, since they are for fixed steps",
                got=", ".join(named),
                remedy="Set step_size too, or use step_t and jump_t.",
            )
        )
    if named:
        raise OptionError(
            explain(
                f"options of '{solver.name}'",
                expected="step_size, max_steps or piece, since the steps are fixed",
                got=", ".join(named),
                remedy="Leave step_size out to have steps chosen."
                if solver.adaptive
                else "Choose a method with step control, such as 'dopri5', or leave them out.",
            )
        )


def _refuse_coarse(settings: Settings, packing: Packing, *, given: bool) -> None:
    """Refuse a tolerance that a state in half precision cannot show."""
    eps, kind = max((torch.finfo(kind).eps, type_name(kind)) for kind in packing.types)
    rtol = settings.tightest[0]
    if eps > 1e-4 and rtol < eps:
        raise OptionError(
            explain(
                f"rtol of a state in {kind}",
                expected=f"at least {eps:.2g}, what the format can tell apart",
                got=f"{rtol:g}" + ("" if given else ", which it is if not given"),
                remedy="Start from y0.float() and let the field compute in half precision under "
                "torch.autocast, or set rtol=1e-2 and atol=1e-2.",
            )
        )
