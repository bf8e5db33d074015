"""Matrices constrained to a set, and orthogonal initialisation; imported on first access."""

from undamped._base.lazy import lazy_names

_NAMES = {
    "Exponential": "undamped.parametrizations.exponential",
    "FourierUnitary": "undamped.parametrizations.transforms",
    "Givens": "undamped.parametrizations.transforms",
    "Householder": "undamped.parametrizations.householder",
    "MatrixSet": "undamped.parametrizations.matrix_set",
    "Riemannian": "undamped.parametrizations.cayley",
    "ScaledCayley": "undamped.parametrizations.cayley",
    "Schur": "undamped.parametrizations.spectra",
    "SingularBand": "undamped.parametrizations.spectra",
    "Skew": "undamped.parametrizations.exponential",
    "isometry_defect": "undamped.parametrizations.matrix_set",
    "nearest_isometry": "undamped.parametrizations.matrix_set",
    "orthogonal_start": "undamped.parametrizations.initial",
    "orthogonality_penalty": "undamped.parametrizations.spectra",
    "random_orthogonal": "undamped.parametrizations.initial",
    "riemannian_step": "undamped.parametrizations.cayley",
    "rotation": "undamped.parametrizations.exponential",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
