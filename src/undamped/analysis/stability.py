"""Stability of a step: forward Euler's criterion along a trajectory, and its stiffness.

Forward Euler with step h follows y' = f(y) without blowing up where |1 + hλ| ≤ 1 for every
eigenvalue λ of the Jacobian of f (Haber and Ruthotto, 2017). An undamped oscillator has imaginary
eigenvalues and so never passes; that is why oscillators are stepped symplectically.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undamped._base.errors import ShapeError, explain
from undamped.analysis.core.layout import Layout, reference
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace

Array = NDArray[Any]


@dataclass(frozen=True)
class EulerStability(Result):
    """`amplification[t]` is max |1 + hλ| at point t of a trajectory.

    `largest_step[t]` is the largest h that would be stable there (0 if none is), `stiffness[t]`
    the ratio of the largest to the smallest |λ|.
    """

    step: float
    amplification: Array
    largest_step: Array
    stiffness: Array

    @property
    def stable(self) -> bool:
        """Whether the criterion holds at every point, up to rounding."""
        return bool((self.amplification <= 1 + 1e-12).all())

    @property
    def sentence(self) -> str:
        """Whether the criterion holds."""
        words = "holds everywhere" if self.stable else "is broken where the line is above 1"
        return f"The criterion |1 + hλ| ≤ 1 {words} (h = {self.step:g})."

    @property
    def layout(self) -> Layout:
        """Amplification along the trajectory, with its limit."""
        return Layout(
            "Forward-Euler stability",
            "point of the trajectory [steps]",
            "max |1 + hλ|",
            self.sentence,
            background=(reference([0, len(self.amplification) - 1], [1, 1], "limit"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """One line."""
        points = range(len(self.amplification))
        return [style.line(points, self.amplification, "max |1 + hλ|")]


def _matrices(jacobians: ArrayLike) -> Array:
    found = np.asarray(jacobians, dtype=np.float64)
    if found.ndim == 2:
        found = found[None]
    if found.ndim != 3 or found.shape[1] != found.shape[2]:
        raise ShapeError(
            explain(
                "jacobians",
                expected="(n, n) or (points, n, n)",
                got=found.shape,
                remedy="Give ∂f/∂y at the points of a trajectory.",
            )
        )
    return found


def euler_stability(jacobians: ArrayLike, step: float) -> EulerStability:
    """Check |1 + hλ| ≤ 1 along a trajectory.

    Args:
        jacobians: Jacobians ∂f/∂y of the field, (n, n) or (points, n, n).
        step: The step h of forward Euler.
    """
    eigenvalues = np.linalg.eigvals(_matrices(jacobians))
    return EulerStability(
        step,
        np.abs(1 + step * eigenvalues).max(1),
        np.array([_largest_step(values) for values in eigenvalues]),
        np.array([_ratio(np.abs(values)) for values in eigenvalues]),
    )


def _largest_step(eigenvalues: NDArray[np.complex128]) -> float:
    # |1 + hλ|² = 1 + 2h Re λ + h²|λ|² ≤ 1 holds for 0 ≤ h ≤ −2 Re λ / |λ|².
    moving = eigenvalues[np.abs(eigenvalues) > 0]
    if not len(moving):
        return float("inf")
    return max(0.0, float((-2 * moving.real / np.abs(moving) ** 2).min()))


def _ratio(sizes: Array) -> float:
    return float(sizes.max() / sizes.min()) if sizes.min() > 0 else float("inf")
