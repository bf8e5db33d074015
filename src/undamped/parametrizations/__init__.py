"""Matrices constrained to a set, and orthogonal initialisation."""

from undamped.parametrizations.cayley import Riemannian, ScaledCayley, riemannian_step
from undamped.parametrizations.exponential import Exponential, Skew, rotation
from undamped.parametrizations.fourier_unitary import FourierUnitary
from undamped.parametrizations.givens import Givens
from undamped.parametrizations.householder import Householder
from undamped.parametrizations.initial import orthogonal_start, random_orthogonal
from undamped.parametrizations.matrix_set import MatrixSet, isometry_defect, nearest_isometry
from undamped.parametrizations.schur import Schur
from undamped.parametrizations.singular_band import SingularBand, orthogonality_penalty

__all__ = [
    "Exponential",
    "FourierUnitary",
    "Givens",
    "Householder",
    "MatrixSet",
    "Riemannian",
    "ScaledCayley",
    "Schur",
    "SingularBand",
    "Skew",
    "isometry_defect",
    "nearest_isometry",
    "orthogonal_start",
    "orthogonality_penalty",
    "random_orthogonal",
    "riemannian_step",
    "rotation",
]
