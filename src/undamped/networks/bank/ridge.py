"""Ridge regression whose penalty is chosen by what each sample is predicted to be without it.

    W = argmin ‖Y − F W‖² + λ ‖W‖²,    F and Y centred

The answer for sample i by the regression that was not shown it has a closed form, so every penalty
is judged on answers to unseen samples at the price of one eigendecomposition:

    y_i − ŷ₋ᵢ = (Y − Ŷ)_i / (1 − 1/n − h_i),    h = diag F (FᵀF + λ)⁻¹ Fᵀ
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

PENALTIES = 10.0 ** torch.linspace(-3, 6, 28, dtype=torch.float64)
_LEAST_FREEDOM = 1e-9  # of a residual; below it a sample is all that holds its own answer


class Ridge(NamedTuple):
    """What was learnt.

    Args:
        weight: (outputs, features).
        bias: (outputs,).
        penalty: λ.
        left_out: (samples, outputs) the answers for every sample by what was learnt without it.
    """

    weight: Tensor
    bias: Tensor
    penalty: float
    left_out: Tensor


def fit_ridge(features: Tensor, answers: Tensor, penalty: float | None = None) -> Ridge:
    """Learn answers from features.

    Args:
        features: (samples, features).
        answers: (samples, outputs).
        penalty: λ; the one with the smallest error on samples left out if not given.
    """
    centre, middle = features.mean(0), answers.mean(0)
    x = (features - centre).double()
    y = (answers - middle).double()
    samples = len(x)
    # The smaller of the two matrices that have the same eigenvalues.
    wide = samples <= x.shape[1]
    values, vectors = torch.linalg.eigh(x @ x.T if wide else x.T @ x)
    values = values.clamp_min(0)
    # Left singular vectors, scaled so that ŷ = basis · shrink(λ) · basisᵀ y.
    basis = vectors if wide else x @ vectors
    power = values if wide else torch.ones_like(values)
    seen = basis.T @ y

    def residuals(strength: float) -> Tensor:
        shrink = power / (values + strength)
        fitted = basis @ (shrink.unsqueeze(1) * seen)
        leverage = basis.square() @ shrink
        free = (1 - 1 / samples - leverage).clamp_min(_LEAST_FREEDOM)
        return (y - fitted) / free.unsqueeze(1)

    if penalty is None:
        errors = [float(residuals(float(one)).square().mean()) for one in PENALTIES]
        penalty = float(PENALTIES[min(range(len(errors)), key=errors.__getitem__)])
    inner = seen / (values + penalty).unsqueeze(1)
    weight = (x.T @ (vectors @ inner) if wide else vectors @ inner).T
    left_out = answers - residuals(penalty)
    bias = middle - weight @ centre.double()
    return Ridge(weight, bias, penalty, left_out)
