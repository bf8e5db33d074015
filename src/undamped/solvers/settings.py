"""The settings of a solve: read, checked, and refused where they would change nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from undamped.errors import OptionError, explain
from undamped.options import NonNegativeFloat, PositiveFloat, PositiveInt, check, convert
from undamped.registry import solvers
from undamped.solvers.gradients.gradient import GradientMethod, gradients
from undamped.solvers.loop.control import StepControl
from undamped.solvers.methods.solver import Solver

Gradient = Literal["checkpoint", "backprop", "adjoint", "reversible"]
Steps = Literal["batch", "sample"]


@dataclass(frozen=True)
class Settings:
    """How a solve is to be done.

    Args:
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
        step_size: Fixed step size; None lets an adaptive method choose.
        first_step: First step size of an adaptive solve; None chooses it.
        max_step: Largest step size of an adaptive solve; None sets no limit.
        max_steps: Steps, accepted and rejected, after which to give up.
        control: Step control.
        piece: Steps recomputed at a time when gradients are taken from checkpoints.
        norm_size: How many leading numbers of the state count in the error; None counts all.
    """

    rtol: NonNegativeFloat = 1e-7
    atol: NonNegativeFloat = 1e-9
    step_size: PositiveFloat | None = None
    first_step: PositiveFloat | None = None
    max_step: PositiveFloat | None = None
    max_steps: PositiveInt = 100_000
    control: StepControl = field(default_factory=StepControl)
    piece: PositiveInt = 1
    norm_size: PositiveInt | None = None

    @property
    def loosest_rtol(self) -> float:
        """The largest relative tolerance of any number."""
        return self.rtol


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
    return solvers[method]()


def read_settings(
    solver: Solver, rtol: float | None, atol: float | None, options: dict[str, Any]
) -> Settings:
    """Return the settings of a solve, refusing those a method has no use for."""
    if not isinstance(options, dict):
        raise OptionError(
            explain(
                "options",
                expected="settings by name",
                got=f"a {type(options).__name__}",
                remedy="Write them as {'step_size': 0.1}.",
            )
        )
    chosen = check("options", Settings, options)
    for reserved in ("rtol", "atol", "norm_size"):
        if reserved in chosen:
            raise OptionError(
                f"options.{reserved}: expected it as an argument of its own, got it among the "
                "options. Pass rtol= and atol= to solve."
            )
    fixed = not solver.adaptive or chosen.get("step_size") is not None
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
        chosen[name] = convert(NonNegativeFloat, value, name)
    if fixed and ("first_step" in chosen or "max_step" in chosen or "control" in chosen):
        raise OptionError(
            f"options of '{solver.name}': expected step_size or max_steps, got step control for "
            "fixed steps. Leave first_step, max_step and control out."
        )
    return Settings(**chosen)


def check_choices(
    solver: Solver,
    settings: Settings,
    gradient: str,
    own_steps: bool,
    steps: str,
    compact: bool,
) -> GradientMethod:
    """Refuse choices that do not fit together; return the gradient method."""
    convert(Gradient, gradient, "gradient")
    convert(Steps, steps, "steps")
    if settings.piece != 1 and gradient != "checkpoint":
        raise OptionError(
            explain(
                "options.piece",
                expected="gradient='checkpoint', which recomputes pieces",
                got=f"gradient='{gradient}'",
                remedy="Leave piece out.",
            )
        )
    method = gradients[gradient]()
    method.check(solver)
    if compact and not own_steps:
        raise OptionError(
            "compact: expected steps='sample', got one step size for the batch. All samples of "
            "a batch with one step size finish together."
        )
    if own_steps and not (solver.per_sample and solver.adaptive and settings.step_size is None):
        raise OptionError(
            explain(
                "a step size for every sample",
                expected="an explicit method that chooses its steps",
                got=f"'{solver.name}'" + (" with a fixed step_size" if settings.step_size else ""),
                remedy="Use 'dopri5', 'tsit5', 'bosh3', 'heun' or 'dopri8'.",
            )
        )
    return method
