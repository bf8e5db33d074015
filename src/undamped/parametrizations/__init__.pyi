"""Matrices constrained to a set, and orthogonal initialisation; imported on first access.

Written by `python -m undamped.lab.catalogue`; do not edit.
"""

from undamped.parametrizations.cayley import Riemannian as Riemannian
from undamped.parametrizations.cayley import ScaledCayley as ScaledCayley
from undamped.parametrizations.cayley import riemannian_step as riemannian_step
from undamped.parametrizations.exponential import Exponential as Exponential
from undamped.parametrizations.exponential import Skew as Skew
from undamped.parametrizations.exponential import rotation as rotation
from undamped.parametrizations.householder import Householder as Householder
from undamped.parametrizations.initial import orthogonal_start as orthogonal_start
from undamped.parametrizations.initial import random_orthogonal as random_orthogonal
from undamped.parametrizations.matrix_set import MatrixSet as MatrixSet
from undamped.parametrizations.matrix_set import isometry_defect as isometry_defect
from undamped.parametrizations.matrix_set import nearest_isometry as nearest_isometry
from undamped.parametrizations.spectra import Schur as Schur
from undamped.parametrizations.spectra import SingularBand as SingularBand
from undamped.parametrizations.spectra import orthogonality_penalty as orthogonality_penalty
from undamped.parametrizations.transforms import FourierUnitary as FourierUnitary
from undamped.parametrizations.transforms import Givens as Givens
