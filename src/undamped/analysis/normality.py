"""Non-normality: how far a matrix is from one with orthogonal eigenvectors (TH 2.3 and ch. 3).

Henrici's number is √(‖A‖_F² − Σ|λ|²): zero for a normal matrix, and otherwise the size of what
lies off the diagonal of its Schur form. A non-normal matrix may let states grow for a while
although all its eigenvalues lie inside the unit circle: its transients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undamped._base.errors import ShapeError, explain
from undamped._base.packages import require
from undamped._base.registry import instruments
from undamped.analysis.core.figures import PALETTE, new_figure
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace

Array = NDArray[Any]


@instruments.register("normality")
@dataclass(frozen=True)
class Normality(Result):
    """Henrici's number, relative to ‖A‖_F too, and ‖Aᵏ‖ for k = 0, 1, …"""

    question = "How far may states grow before the eigenvalues have their way?"
    place = 64
    on_request = True

    henrici: float
    relative: float
    growth: Array

    @property
    def transient(self) -> float:
        """The largest ‖Aᵏ‖: how much a state can grow before it decays."""
        return float(self.growth.max())

    @classmethod
    def measure(cls, probe: Probe) -> Normality:
        """Look at the first free square matrix that reads the state of the first layer."""
        matrices = probe.recurrent().cell(0).recurrent_matrices()
        square = [m for m in matrices if m.dim() == 2 and m.shape[0] == m.shape[1]]
        if not square or square[0].is_complex():
            raise InapplicableError("no free, real, square matrix of its own reads its state")
        return normality(square[0].detach().double().cpu().numpy())

    @property
    def sentence(self) -> str:
        """Transient growth and Henrici's number."""
        return (
            f"States grow up to {self.transient:.4g} times before eigenvalues have their way; "
            f"Henrici's number is {self.henrici:.4g}."
        )

    @property
    def layout(self) -> Layout:
        """‖Aᵏ‖ against k, in decades."""
        return Layout(
            "Transient growth",
            "steps k",
            "‖Aᵏ‖₂",
            "A line that rises before it falls belongs to a matrix that is not normal.",
            log_y=True,
        )

    def traces(self, style: Style) -> list[Trace]:
        """One line."""
        shown = np.flatnonzero(self.growth > 0)
        return [style.line(shown, self.growth[shown], "‖Aᵏ‖₂")]


@dataclass(frozen=True)
class SchurStructure(Result):
    """The lower-triangular real Schur form A = P Θ Pᵀ.

    `angles` are the angles of the eigenvalues in [0, π] (one for each complex pair),
    `histogram` counts them in equal bins, `subdiagonals[k]` is the mean |entry| of Θ on its k-th
    sub-diagonal, the diagonal being the zeroth.
    """

    form: Array
    angles: Array
    histogram: NDArray[np.int64]
    edges: Array
    subdiagonals: Array

    @property
    def layout(self) -> Layout:
        """Mean size of each sub-diagonal, as TH fig. 3 (c)."""
        return Layout(
            "Schur form by sub-diagonal",
            "sub-diagonal k",
            "mean |Θᵢ₊ₖ,ᵢ|",
            "A peak at 1 is a delay line; an even floor is a full lower triangle.",
        )

    def traces(self, style: Style) -> list[Trace]:
        """One line."""
        return [style.line(range(len(self.subdiagonals)), self.subdiagonals, "mean size")]

    def plot_angles(self) -> Any:
        """Draw the histogram of the eigenvalues' angles, as the insets of TH fig. 3."""
        figure = new_figure(
            "Angles of the eigenvalues",
            "angle θ [radians]",
            "number of eigenvalues",
            "Even angles rotate every which way; angles in one place make a delay line.",
        )
        middle = (self.edges[1:] + self.edges[:-1]) / 2
        figure.add_bar(
            x=middle.tolist(),
            y=self.histogram.tolist(),
            name="eigenvalues",
            marker_color=PALETTE[0],
        )
        return figure


def _square(matrix: ArrayLike) -> Array:
    square = np.asarray(matrix, dtype=np.float64)
    if square.ndim != 2 or square.shape[0] != square.shape[1]:
        raise ShapeError(
            explain("matrix", expected="(n, n)", got=square.shape, remedy="Give a square matrix.")
        )
    return square


def henrici_number(matrix: ArrayLike) -> float:
    """Return √(‖A‖_F² − Σ|λ|²), from the Schur form, where nothing cancels.

    Args:
        matrix: A square matrix.
    """
    require("the Schur form of a matrix", "scipy")
    from scipy.linalg import schur

    form = schur(_square(matrix), output="complex")[0]
    return float(np.linalg.norm(np.triu(form, 1)))


def normality(matrix: ArrayLike, *, steps: int = 100) -> Normality:
    """Measure how non-normal a matrix is and how far it lets states grow.

    Args:
        matrix: A square matrix.
        steps: How many powers to look at.
    """
    square = _square(matrix)
    henrici = henrici_number(square)
    size = float(np.linalg.norm(square))
    power, growth = np.eye(len(square)), []
    for _ in range(steps + 1):
        growth.append(float(np.linalg.norm(power, 2)))
        power = square @ power
    return Normality(henrici, henrici / size if size else 0.0, np.array(growth))


def schur_structure(matrix: ArrayLike, *, bins: int = 20) -> SchurStructure:
    """Return the Schur form with the angles of its eigenvalues and its sub-diagonals.

    Args:
        matrix: A square matrix.
        bins: Number of bins of the histogram of angles over [0, π].
    """
    require("the Schur form of a matrix", "scipy")
    from scipy.linalg import schur

    square = _square(matrix)
    # Aᵀ = P U Pᵀ with U upper triangular gives A = P Uᵀ Pᵀ, lower triangular as in TH 3.4.
    form = schur(square.T, output="real")[0].T
    eigenvalues = np.linalg.eigvals(form)
    angles = np.angle(eigenvalues[eigenvalues.imag >= 0])
    histogram, edges = np.histogram(angles, bins=bins, range=(0.0, np.pi))
    subdiagonals = np.array([np.abs(np.diag(form, -k)).mean() for k in range(len(form))])
    return SchurStructure(form, np.sort(angles), histogram, edges, subdiagonals)
