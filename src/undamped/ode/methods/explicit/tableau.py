"""A Butcher tableau: the numbers of an explicit Runge–Kutta method."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from undamped.ode.methods.stages import Row, Terms, terms_of


@dataclass(frozen=True)
class Tableau:
    """The numbers of an explicit Runge–Kutta method.

    Equation:
        k_i = f(t + c_i h, y + h Σ_{j<i} a_ij k_j),  y' = y + h Σ b_i k_i

    Args:
        nodes: The c_i.
        rows: The a_ij, a row for each stage but the first.
        weights: The b_i.
        error: Weights of the error estimate, y' minus its companion, over h; may need one stage
            more than y' does: f at the end of the step.
        inside: Polynomials in the fraction θ of the step, one row a stage, powers from θ¹ up.
    """

    nodes: Row
    rows: tuple[Row, ...]
    weights: Row
    error: Row | None = None
    inside: tuple[Row, ...] | None = None

    @cached_property
    def reuses_last(self) -> bool:
        """Whether the estimate evaluates f at the end, which is the next step's first stage."""
        return self.error is not None and len(self.error) == len(self.weights) + 1

    @cached_property
    def all_nodes(self) -> Row:
        """The nodes, with the end of the step where f is evaluated there too."""
        return (*self.nodes, 1.0) if self.reuses_last else self.nodes

    @cached_property
    def row_terms(self) -> tuple[Terms, ...]:
        """The rows without their zeros."""
        return tuple(terms_of(row) for row in self.rows)

    @cached_property
    def weight_terms(self) -> Terms:
        """The weights without their zeros."""
        return terms_of(self.weights)

    @cached_property
    def error_terms(self) -> Terms:
        """The weights of the error estimate without their zeros."""
        return terms_of(self.error or ())

    @cached_property
    def end_pair(self) -> tuple[Terms, Terms] | None:
        """Two differences between f at the end and the last stage, where that is at the end too.

        That of f, and that of the values it was taken at, over h.
        """
        count = len(self.weights)
        if not self.reuses_last or self.nodes[-1] != 1.0:
            return None
        values = tuple(b - a for b, a in zip(self.weights, (*self.rows[-1], 0.0), strict=True))
        return Terms(((count - 1, -1.0), (count, 1.0))), terms_of(values)

    @cached_property
    def stability_limit(self) -> float:
        """Largest z for which a step of size z of ẏ = −y does not grow, nor any shorter one."""
        stages = len(self.weights)
        matrix = np.zeros((stages, stages))
        for number, row in enumerate(self.rows):
            matrix[number + 1, : len(row)] = row
        power, growth = np.ones(stages), [1.0]
        for _ in range(stages):
            growth.append(float(np.dot(self.weights, power)))
            power = matrix @ power
        z = np.arange(1, 2000) / 100
        grows = np.abs(np.polynomial.polynomial.polyval(-z, growth)) > 1 + 1e-9
        return float(z[grows.argmax()]) if grows.any() else math.inf

    def inside_weights(self, fraction: float) -> Row:
        """Return the weights of the stages for the value at a fraction of the step."""
        assert self.inside is not None
        return tuple(
            sum(p * fraction ** (power + 1) for power, p in enumerate(row)) for row in self.inside
        )
