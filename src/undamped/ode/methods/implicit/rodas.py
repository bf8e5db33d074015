"""Rosenbrock methods: one linear system a stage, all with the same matrix, and no iterations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped.ode.methods.implicit.local_field import LocalField, Systems
from undamped.ode.methods.implicit.method import L_STABLE
from undamped.ode.methods.solver import (
    Field,
    Number,
    Solver,
    SolverState,
    Stepper,
    StepResult,
    register_solver,
)
from undamped.ode.methods.stages import combine, stage_times, table

_GAMMA = 0.21193756319429014
_NODES, _TIME_WEIGHTS, _LAST = table("""
    0 0.6358126895828704 0.4095798393397535 0.9769306725060716 0.4288403609558664 1 1 1;
    0.21193756319429014 -0.42387512638858027 -0.3384627126235924 1.8046452872882734
        2.325825639765069;
    -7.502846399306121 2.561846144803919 -11.627539656261098 -0.18268767659942256
        0.030198172008377946;
""")
_POINTS = (
    (),
    (3.0,),
    (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    _LAST,
    (*_LAST, 1.0),
    (*_LAST, 1.0, 1.0),
)
_COUPLING = table("""
    ;
    -14.155112264123755;
    -17.97296035885952 -2.859693295451294;
    147.12150275711716 -1.41221402718213 71.68940251302358;
    165.43517024871676 -0.4592823456491126 42.90938336958603 -5.961986721573306;
    24.854864614690072 -3.0009227002832186 47.4931110020768 5.5814197821558125 -0.6610691825249471;
    30.91273214028599 -3.1208243349937974 77.79954646070892 34.28646028294783 -19.097331116725623
        -28.087943162872662;
    37.80277123390563 -3.2571969029072276 112.26918849496327 66.9347231244047 -40.06618937091002
        -54.66780262877968 -9.48861652309627;
""")
_WEIGHTS = (*_LAST, 1.0, 1.0, 1.0)
_INSIDE = table("""
    25.948786856663858 -2.5579724845846235 10.433815404888879 -2.3679251022685204
        0.524948541321073 1.1241088310450404 0.4272876194431874 -0.17202221070155493;
    -9.91568850695171 -0.9689944594115154 3.0438037242978453 -24.495224566215796
        20.176138334709044 15.98066361424651 -6.789040303419874 -6.710236069923372;
    11.419903575922262 2.8879645146136994 72.92137995996029 80.12511834622643
        -52.072871366152654 -59.78993625266729 -0.15582684282751913 4.883087185713722;
""")
_SHIFT_IN_TIME = 1e-5
"""Fraction of a step over which the field is differenced in time."""


class _Start(NamedTuple):
    """f and its derivative where a step begins, and how rows are divided into systems."""

    slope: Tensor
    matrix: Tensor
    systems: Systems


@register_solver("rodas5p")
class Rodas5P(Solver):
    """Rodas5P: eight stages, order five, no iterations, a polynomial of order four inside steps.

    Equation:
        (1/γ − h J) u_i = h f(t + α_i h, y + Σ_{j<i} a_ij u_j) + Σ_{j<i} c_ij u_j + γ_i h² ∂f/∂t,
        y' = y + Σ m_i u_i

    The derivative J is computed in every step and has to be exact, since no iteration corrects it.
    Gradients differentiate it exactly, and can be taken any number of times.

    Args:
        dense_size: Largest system for which the derivative is formed as a matrix, which
            this method always needs.

    Promise:
        A-stable and L-stable; stiffly accurate.

    Reference:
        G. Steinebach. Construction of Rosenbrock–Wanner method Rodas5P and numerical benchmarks
        within the Julia Differential Equations package. BIT 63 (2023).
    """

    promises = L_STABLE
    order = 5
    error_order = 4
    implicit = True
    dense = True

    def __init__(self, dense_size: PositiveInt = 512) -> None:
        self.dense_size = dense_size

    def begin(self, field: Field, t: Number, h: Number, y: Tensor) -> _Start:
        """Compute the derivative where a step begins."""
        systems, time = Systems.by_row(y), stage_times(t, h, (0.0,), y)[0]
        # Where nothing has a gradient, the derivative has no graph either.
        graph = torch.is_grad_enabled() and (y.requires_grad or field(time, y).requires_grad)
        local, matrix = LocalField(field, time, y, create_graph=graph), None
        for division in (systems, systems.joined()):
            if division.size > self.dense_size:
                raise OptionError(
                    f"'{self.name}' forms a matrix and takes systems of at most {self.dense_size} "
                    f"numbers, got {division.size}. Use 'radau5', which needs none, or "
                    "Rodas5P(dense_size=…)."
                )
            systems, matrix = division, local.jacobian(division)
            if matrix is not None:
                break
        assert matrix is not None
        slope = local.value if graph else local.value.detach()
        return _Start(slope, matrix.to(y.dtype), systems)

    def stages(
        self, field: Field, t: Number, h: Number, y: Tensor, start: _Start | None = None
    ) -> list[Tensor]:
        """Return the u, differentiably."""
        if not y.numel():
            return [torch.zeros_like(y) for _ in _NODES]
        start = self.begin(field, t, h, y) if start is None else start
        systems, rows = start.systems, start.systems.rows
        times = stage_times(t, h, _NODES, y)
        shift = torch.eye(systems.size, dtype=y.dtype, device=y.device) / _GAMMA
        factors, pivots, _ = torch.linalg.lu_factor_ex(shift - start.matrix * h)
        drift = self._drift(field, t, h, y, start.slope)
        stages: list[Tensor] = []
        for index, time in enumerate(times):
            if index == 0:
                slope = start.slope
            else:
                slope = field(time, systems.state(combine(rows(y), 1.0, _POINTS[index], stages)))
            right = rows(slope) * h
            if index:
                right = right + combine(None, 1.0, _COUPLING[index], stages)
            if drift is not None and index < len(_TIME_WEIGHTS):
                right = right + (_TIME_WEIGHTS[index] * h) * rows(drift)
            stages.append(torch.linalg.lu_solve(factors, pivots, right.unsqueeze(2)).squeeze(2))
        return [systems.state(u) for u in stages]

    def _drift(self, field: Field, t: Number, h: Number, y: Tensor, slope: Tensor) -> Tensor | None:
        """Return h ∂f/∂t, or None where the field does not depend on time."""
        after, before = stage_times(t, h, (_SHIFT_IN_TIME, -_SHIFT_IN_TIME), y)
        later = field(after, y)
        if torch.equal(later.detach(), slope.detach()):
            return None
        return (later - field(before, y)) / (2 * _SHIFT_IN_TIME)

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Take a step; the last stage is the error estimate."""
        stages = self.stages(field, t, h, state[0])
        return (combine(state[0], 1.0, _WEIGHTS, stages),), stages[-1]

    def replay(
        self, field: Field, t: Number, h: Number, state: SolverState, inside: Sequence[float] = ()
    ) -> tuple[SolverState, list[Tensor]]:
        stages = self.stages(field, t, h, state[0])
        y1 = combine(state[0], 1.0, _WEIGHTS, stages)
        return (y1,), [_inside(state[0], y1, stages, fraction) for fraction in inside]

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Return the stepper, which reuses the derivative when a step is rejected."""
        return RosenbrockStepper(self, field, t, y)


def _inside(y: Tensor, y1: Tensor, stages: Sequence[Tensor], fraction: float) -> Tensor:
    """Return the value at a fraction of a step."""
    first, second, third = (combine(None, 1.0, row, stages) for row in _INSIDE)
    rest = first + fraction * (second + fraction * third)
    return (1 - fraction) * y + fraction * (y1 + (1 - fraction) * rest)


class RosenbrockStepper(Stepper):
    """A Rosenbrock method during one solve."""

    solver: Rodas5P

    def __init__(self, solver: Rodas5P, field: Field, t: Number, y: Tensor) -> None:
        super().__init__(solver, field, t, y)
        self._start: _Start | None = None
        self._stages: list[Tensor] = []

    def attempt(self, t: Number, h: Number) -> Tensor:
        (y,) = self.state
        if self._start is None and y.numel():
            self._start = self.solver.begin(self.field, t, h, y)
        stages = self.solver.stages(self.field, t, h, y, self._start)
        self._proposed, self._error = (combine(y, 1.0, _WEIGHTS, stages),), stages[-1]
        self._stages = stages
        return self._proposed[0]

    def accept(self) -> None:
        super().accept()
        self._start = None

    @property
    def points(self) -> list[tuple[float, float, Tensor]]:
        """Gauss's three points of the last attempt: weights, nodes and states."""
        far = math.sqrt(3 / 5) / 2
        nodes = ((5 / 18, 0.5 - far), (4 / 9, 0.5), (5 / 18, 0.5 + far))
        return [(weight, node, self.inside(0.0, node)) for weight, node in nodes]

    def inside(self, h: float, fraction: float) -> Tensor:
        return _inside(self.state[0], self._proposed[0], self._stages, fraction)
