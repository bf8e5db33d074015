"""Models of moving systems by a field and a solver, and the options that they share.

Promises belong to a field and a solver together: a Hamiltonian field conserves its energy only up
to the error of the steps if the method is not symplectic for it. So the promises of an object may
differ from those of its class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

import torch
from torch import Tensor, nn

from undamped._base.contract import StateSpace
from undamped._base.errors import OptionError
from undamped._base.options import Default, PositiveFloat, PositiveInt, select
from undamped._base.promises import Kind, Promise
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.hamiltonian import HamiltonianField
from undamped.models.physics.fields.ports import Forced, TimeScaled
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.models.physics.state_model import StateModel
from undamped.models.task_model import EVALUATIONS
from undamped.ode import Solver, solve
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.flows.solving import TOLERANCE, SolveOptions, solver_arguments
from undamped.ode.settings import Gradient, choose_solver
from undamped.ode.solve import OnFailure

ENERGY = Promise(Kind.PRESERVED_ENERGY, "the field keeps its energy: ∇E · f = 0")
VOLUME = Promise(Kind.DIVERGENCE_FREE, "the field keeps phase volume: div f = 0")
BALANCE = Promise(Kind.POWER_BALANCE, "energy changes by the power of the inputs: dE/dt = yᵀu")
PASSIVE = Promise(Kind.PASSIVE, "energy never grows by more than the power supplied: dE/dt ≤ yᵀu")
MASS = Promise(Kind.POSITIVE_MASS, "masses are positive: no eigenvalue of M⁻¹ below its bound")
CIRCLE = Promise(Kind.PRESERVED_CONSTRAINTS, "angles stay angles: the field keeps cos² + sin²")
SYMPLECTIC = Promise(Kind.SYMPLECTIC, "every step is symplectic: DᵀJD = J")

Angles = Literal["plain", "embedded"]
Width = Annotated[PositiveInt, Default(200, "Width of the hidden layers.")]
Softplus = Annotated[SmoothActivation, Default("softplus", "Activation of the perceptrons.")]
Embedded = Annotated[
    Angles, Default("embedded", "Whether perceptrons read angles as numbers or by cosine and sine.")
]
STEP = "Size of all steps; readings that lie further apart are reached in several steps."


class LayerOptions(TypedDict, total=False):
    """Sizes and activation of the perceptrons of a model."""

    hidden_size: Annotated[PositiveInt, Default(64, "Width of the hidden layers.")]
    hidden_layers: Annotated[PositiveInt, Default(2, "Number of hidden layers.")]
    activation: Annotated[
        SmoothActivation,
        Default("tanh", "Activation of the perceptrons; it has to have two derivatives."),
    ]


class PerceptronOptions(LayerOptions, total=False):
    """Sizes and activation of the perceptrons of a model, and how they read angles."""

    angles: Annotated[
        Angles,
        Default("plain", "Whether perceptrons read angles as numbers or by cosine and sine."),
    ]


def perceptron_arguments(coordinates: Coordinates, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return layers and embedded angles, as keyword arguments of a field, from all options."""
    angles = coordinates.angles if options["angles"] == "embedded" else ()
    return {**select(options, LayerOptions), "angles": angles}


class MotionSolveOptions(SolveOptions, total=False):
    """How the field of a moving system is solved: with a tolerance fine enough for energies."""

    tolerance: Annotated[PositiveFloat, Default(1e-6, TOLERANCE)]


class StepOptions(TypedDict, total=False):
    """How the steps of a symplectic model are taken: method, size, gradient."""

    method: Annotated[str, Default("leapfrog", "Solver: leapfrog, yoshida4, symplectic-euler, …")]
    step_size: Annotated[PositiveFloat, Default(0.1, STEP)]
    gradient: Annotated[
        Gradient,
        Default(
            "reversible",
            "How gradients are computed; 'reversible' undoes the steps, so that memory does not "
            "grow with their number.",
        ),
    ]


class FourthOrderOptions(StepOptions, total=False):
    """How models of few steps take them: by a method of order four, with backpropagation."""

    method: Annotated[str, Default("yoshida4", "Solver: yoshida4, leapfrog, symplectic-euler, …")]
    gradient: Annotated[
        Gradient, Default("backprop", "How gradients are computed; 'reversible' for long windows.")
    ]


class MotionModel(StateModel):
    """A model of a moving system by a field and a solver.

    Subclasses build a field and pass it to `_build`.
    """

    flow: NeuralODE
    coordinates: Coordinates | None = None
    """How states are sorted for the field; None where the field takes them unsorted."""

    def _build(
        self, field: nn.Module, space: StateSpace | Coordinates, options: Mapping[str, Any]
    ) -> None:
        """Set the field and its solver, and the promises of the two.

        Args:
            field: dz/dt, called with (t, state, u).
            space: The coordinates of a state, and how they are sorted for the field if they are.
            options: All options of the model, those of `MotionSolveOptions` or `StepOptions` among
                them.
        """
        if isinstance(space, Coordinates):
            self.space, self.coordinates = space.space, space
        else:
            self.space = space
        if "tolerance" in options:
            solver = solver_arguments(options, MotionSolveOptions)  # type: ignore[arg-type]
        else:
            solver = select(options, StepOptions)
        self.flow = NeuralODE(field, **solver)
        self.promises = promises_of(field, self.solver)

    def notes(self) -> list[str]:
        """Return warnings about promises that the solver does not keep."""
        return cautions(self.field, self.solver)

    def _sorted(self, states: Tensor) -> Tensor:
        return states if self.coordinates is None else self.coordinates.sort(states)

    def _unsorted(self, states: Tensor) -> Tensor:
        return states if self.coordinates is None else self.coordinates.unsort(states)

    @property
    def field(self) -> nn.Module:
        """dz/dt."""
        return self.flow.field

    @property
    def solver(self) -> Solver:
        """The method that solves the field."""
        return choose_solver(self.flow.method)

    def evaluations(self) -> dict[str, int]:
        """Return how often the last solve called the field; empty if there was none."""
        if self.flow.solution is None:
            return {}
        return {name: getattr(self.flow, name) for name in EVALUATIONS}

    def derivative(self, states: Tensor, u: Tensor | None = None) -> Tensor:
        self.flow.solution = None
        time = torch.zeros((), dtype=states.dtype, device=states.device)
        return self._unsorted(self.field(time, self._sorted(states), u))

    def _solve(
        self, start: Tensor, times: Tensor, first: int, u: Tensor | None, on_failure: OnFailure
    ) -> Tensor:
        field = self.field if u is None else Forced(self.field, u)
        start = self._sorted(start)
        if times.dim() == 2 and self.flow.step_size is not None:
            states = self._solve_per_sample(field, start, times, on_failure)
        else:
            states = self.flow.solve(start, times, field=field, on_failure=on_failure).values
        return self._unsorted(states[first:])

    def _solve_per_sample(
        self, field: nn.Module, start: Tensor, times: Tensor, on_failure: OnFailure
    ) -> Tensor:
        """Solve from output to output in scaled time, with no step above the step size."""
        if self.solver.doubles_state:
            raise OptionError(
                f"'{self.solver.name}' needs the same target times for all samples of a batch. "
                "Resample the data, or choose another model."
            )
        assert self.flow.step_size is not None
        self.flow.solution = None
        states = [start]
        for gap in times.diff(dim=0):
            count = max(1, math.ceil(float(gap.max()) / self.flow.step_size - 1e-9))
            solution = solve(
                TimeScaled(field, gap.to(start.dtype).unsqueeze(-1)),
                states[-1],
                [0.0, 1.0],
                method=self.flow.method,
                options={"step_size": 1 / count},
                gradient=self.flow.gradient,
                on_failure=on_failure,
            )
            states.append(solution.final)
        return torch.stack(states)

    def energy(self, states: Tensor) -> Tensor:
        energy = getattr(self.field, "energy", None)
        return super().energy(states) if energy is None else energy(self._sorted(states))

    def supplied(self, states: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that inputs supply to the learned energy, (…,)."""
        return self.field.supplied(self._sorted(states), u)  # type: ignore[operator]

    def phase_states(self, count: int, generator: torch.Generator) -> Tensor:
        """Return random states: positions in the first half, momenta in the second."""
        return self._sorted(self.example_states(count, generator)[0])

    def phase_step(self, states: Tensor) -> Tensor:
        """Take one step with the method and step size of the model, without inputs."""
        return self._one_step(self.field, states)

    def _one_step(self, field: nn.Module, states: Tensor) -> Tensor:
        size = self.flow.step_size or 0.1
        return solve(
            field,
            states,
            [0.0, size],
            method=self.flow.method,
            options={"step_size": size},
            gradient="backprop",
        ).final


def promises_of(field: nn.Module, solver: Solver) -> tuple[Promise, ...]:
    """Return the promises that a field keeps when it is solved by a solver."""
    if not hasattr(field, "energy"):
        return ()
    ports = getattr(field, "ports", None)
    if ports is not None and ports.friction is not None:
        return (PASSIVE,)
    promises = [ENERGY] if ports is None or ports.inputs is None else [ENERGY, BALANCE]
    if isinstance(field, HamiltonianField):
        promises.append(VOLUME)
        if is_symplectic(field, solver):
            promises.append(SYMPLECTIC)
    return tuple(promises)


def is_symplectic(field: HamiltonianField, solver: Solver) -> bool:
    """Return whether steps of a solver are symplectic for a field, in its phase space.

    Those of Tao's method are symplectic in a doubled phase space, which does not count here.
    """
    fits = field.separable or not solver.needs_separable
    return fits and solver.symplectic and not solver.doubles_state


def cautions(field: nn.Module, solver: Solver) -> list[str]:
    """Return a warning if a symplectic solver is not symplectic for this field."""
    if not (isinstance(field, HamiltonianField) and solver.symplectic):
        return []
    if is_symplectic(field, solver) or solver.doubles_state:
        return []
    reason = "has friction" if field.splits else "is not of the form T(p) + V(q)"
    return [
        f"'{solver.name}' is symplectic only for separable energies, and this one {reason}: no "
        "symplectic step is promised. 'implicit-midpoint' is symplectic for any energy; 'srnn' "
        "has a separable energy."
    ]
