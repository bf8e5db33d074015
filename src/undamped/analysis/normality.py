"""Non-normality: how far a matrix is from one with orthogonal eigenvectors (TH 2.3 and ch. 3).

Henrici's number is √(‖A‖_F² − Σ|λ|²): zero for a normal matrix, and otherwise the size of what
lies off the diagonal of its Schur form. With a non-normal matrix states may grow transiently
although all eigenvalues lie inside the unit circle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from undamped._base.packages import require
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.figures import PALETTE, new_figure
from undamped.analysis.jacobian import square_matrix

Array = NDArray[Any]


@instruments.register("normality")
@dataclass(frozen=True)
class Normality(Result):
    """Henrici's number, relative to ‖A‖_F too, and ‖Aᵏ‖ for k = 0, 1, …"""

    question = "How much can states grow transiently, before they decay?"
    page_order = 64
    on_request = True
    figure_layout = Layout(
        "Transient growth",
        "steps k",
        "‖Aᵏ‖₂",
        "A line that rises before it falls shows that the matrix is not normal.",
        log_y=True,
    )

    henrici: float
    relative: float
    growth: Array

    @property
    def transient(self) -> float:
        """The largest ‖Aᵏ‖, by which a state can grow before it decays."""
        return float(self.growth.max())

    @classmethod
    def measure(cls, probe: Probe) -> Normality:
        """Measure the first unconstrained square matrix of the first layer's state."""
        matrices = probe.recurrent().cell(0).recurrent_matrices()
        square = [m for m in matrices if m.dim() == 2 and m.shape[0] == m.shape[1]]
        if not square or square[0].is_complex():
            raise InapplicableError("no unconstrained, real, square matrix multiplies its state")
        return normality(square[0].detach().double().cpu().numpy())

    @property
    def sentence(self) -> str:
        return (
            f"States grow transiently by up to a factor of {self.transient:.4g}; "
            f"Henrici's number is {self.henrici:.4g}."
        )

    def traces(self, style: Style) -> list[Trace]:
        steps = np.flatnonzero(self.growth > 0)
        return [style.line(steps, self.growth[steps], "‖Aᵏ‖₂")]


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

    figure_layout = Layout(
        "Schur form by sub-diagonal",
        "sub-diagonal k",
        "mean |Θᵢ₊ₖ,ᵢ|",
        "A peak at 1 is a delay line; an even floor is a full lower triangle.",
    )

    def traces(self, style: Style) -> list[Trace]:
        return [style.line(range(len(self.subdiagonals)), self.subdiagonals, "mean size")]

    def plot_angles(self) -> Any:
        """Draw the histogram of the eigenvalues' angles, as the insets of TH fig. 3."""
        layout = Layout(
            "Angles of the eigenvalues",
            "angle θ [radians]",
            "number of eigenvalues",
            "Evenly spread angles are rotations; angles in one bin form a delay line.",
        )
        figure = new_figure(layout)
        middle = (self.edges[1:] + self.edges[:-1]) / 2
        figure.add_bar(
            x=middle.tolist(),
            y=self.histogram.tolist(),
            name="eigenvalues",
            marker_color=PALETTE[0],
        )
        return figure


def henrici_number(matrix: ArrayLike) -> float:
    """Return √(‖A‖_F² − Σ|λ|²), from the Schur form, which avoids cancellation.

    Args:
        matrix: A square matrix.
    """
    require("the Schur form of a matrix", "scipy")
    from scipy.linalg import schur

    form = schur(square_matrix(matrix), output="complex")[0]
    return float(np.linalg.norm(np.triu(form, 1)))


def normality(matrix: ArrayLike, *, steps: int = 100) -> Normality:
    """Measure how non-normal a matrix is and how much states can grow.

    Args:
        matrix: A square matrix.
        steps: Number of powers.
    """
    square = square_matrix(matrix)
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

    square = square_matrix(matrix)
    # Aᵀ = P U Pᵀ with U upper triangular gives A = P Uᵀ Pᵀ, lower triangular as in TH 3.4.
    form = schur(square.T, output="real")[0].T
    eigenvalues = np.linalg.eigvals(form)
    angles = np.angle(eigenvalues[eigenvalues.imag >= 0])
    histogram, edges = np.histogram(angles, bins=bins, range=(0.0, np.pi))
    subdiagonals = np.array([np.abs(np.diag(form, -k)).mean() for k in range(len(form))])
    return SchurStructure(form, np.sort(angles), histogram, edges, subdiagonals)
