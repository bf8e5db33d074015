"""Ridge regression whose penalty is chosen by leave-one-out predictions.

    W = argmin ‖Y − F W‖² + λ ‖W‖²,    F and Y centred

The prediction of sample i by a regression that was fitted without it has a closed form, so every
penalty is judged on unseen samples at the cost of one eigendecomposition:

    y_i − ŷ₋ᵢ = (Y − Ŷ)_i / (1 − 1/n − h_i),    h = diag F (FᵀF + λ)⁻¹ Fᵀ
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.contract import Batch, TaskShape

PENALTIES = 10.0 ** torch.linspace(-3, 6, 28, dtype=torch.float64)
_LOGIT_SCALES = 2.0 ** torch.linspace(-3, 5, 33, dtype=torch.float64)
_LEAST_DOF = 1e-12  # 1 − 1/n − h; below it, a prediction depends on its own sample only


class Ridge(NamedTuple):
    """A fitted ridge regression.

    Args:
        weight: (outputs, features).
        bias: (outputs,).
        penalty: λ.
        loo_predictions: (samples, outputs) leave-one-out predictions.
    """

    weight: Tensor
    bias: Tensor
    penalty: float
    loo_predictions: Tensor


def fit_ridge(
    features: Tensor,
    targets: Tensor,
    penalty: float | None = None,
    penalties: Tensor = PENALTIES,
    weights: Tensor | None = None,
) -> Ridge:
    """Fit a ridge regression.

    Args:
        features: (samples, features).
        targets: (samples, outputs).
        penalty: λ; by default the one with the smallest leave-one-out error.
        penalties: The candidates for λ.
        weights: (samples,) weights of the samples; equal by default.
    """
    samples = len(features)
    weights = _weights_or_ones(weights, samples)
    centre = (weights / weights.sum()).to(features.dtype) @ features
    intercept = weights @ targets.double() / weights.sum()
    root = weights.sqrt().unsqueeze(1)
    x = (features - centre).double()
    x *= root
    y = (targets - intercept).double() * root
    mean = root.squeeze(1) / root.norm()  # the direction that centring removes
    # The smaller of the two matrices that have the same eigenvalues.
    wide = samples <= x.shape[1]
    if wide:
        gram = x @ x.T
        # Centring removes the mean, which depends on no λ. It gets the largest eigenvalue and is
        # dropped, so that its rounding error does not compete with small penalties.
        gram += (gram.diagonal().sum() + 1) * mean.outer(mean)
        values, vectors = (part[..., :-1] for part in torch.linalg.eigh(gram))
    else:
        values, vectors = torch.linalg.eigh(x.T @ x)
    values = values.clamp_min(0)
    # Scaled so that ŷ = basis · shrink(λ) · basisᵀ y.
    basis = vectors if wide else x @ vectors
    coefficients = basis.T @ y

    def loo_residuals(strength: float) -> Tensor:
        shrink = 1 / (values + strength)
        if wide:  # computed directly, since 1 − h would cancel
            residuals = basis @ ((strength * shrink).unsqueeze(1) * coefficients)
            dof = basis.square() @ (strength * shrink)
        else:
            residuals = y - basis @ (shrink.unsqueeze(1) * coefficients)
            dof = 1 - mean.square() - basis.square() @ shrink
        return residuals / dof.clamp_min(_LEAST_DOF).unsqueeze(1)

    if penalty is None:
        errors = [float(loo_residuals(float(value)).square().mean()) for value in penalties]
        penalty = float(penalties[min(range(len(errors)), key=errors.__getitem__)])
    inner = coefficients / (values + penalty).unsqueeze(1)
    weight = (x.T @ (vectors @ inner) if wide else vectors @ inner).T
    loo_predictions = targets - loo_residuals(penalty) / root
    bias = intercept - weight @ centre.double()
    return Ridge(weight, bias, penalty, loo_predictions)


def error_covariance(ridge: Ridge, targets: Tensor, factor: float = 1.0) -> Tensor:
    """Return the mean of e eᵀ, (outputs, outputs), where e are leave-one-out errors.

    Its diagonal holds the squared standard errors of a prediction.

    Args:
        ridge: The regression.
        targets: (samples, outputs).
        factor: The factor that predictions are multiplied by afterwards.
    """
    errors = (targets.double() - ridge.loo_predictions) * factor
    return errors.T @ errors / len(errors)


def ridge_targets(shape: TaskShape, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the targets of a regression (batch, outputs), and a mask of those that exist.

    The target of a class is 1 for that class and -1 for the others.

    Args:
        shape: The shape of the task.
        batch: Sequences with their targets.
    """
    if shape.answer == "class":
        rows = F.one_hot(batch.targets.clamp_min(0), shape.output_size)
        return rows.double() * 2 - 1, batch.targets >= 0
    rows = batch.targets.double().reshape(len(batch.targets), -1)
    return rows, ~rows.isnan().any(1)


def sample_weights(
    shape: TaskShape, targets: Tensor, weights: Tensor | None = None
) -> Tensor | None:
    """Return the weights of samples with those of their classes (samples,); None if all are equal.

    Args:
        shape: The shape of the task, with the weights of classes.
        targets: (samples, outputs).
        weights: (samples,) weights of the samples themselves.
    """
    if not shape.class_weights:
        return None if weights is None else weights.double()
    by_class = torch.tensor(shape.class_weights, dtype=torch.float64)[targets.argmax(1)]
    return by_class if weights is None else by_class * weights


def class_frequencies(shape: TaskShape, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Return the relative frequency of each class (classes,), as if each occurred once more.

    Args:
        shape: The shape of the task.
        targets: (samples, classes).
        weights: (samples,) weights of the samples; equal by default.
    """
    weights = _weights_or_ones(weights, len(targets))
    counts = weights.new_full((shape.output_size,), float(weights.sum() / len(weights)))
    counts.index_add_(0, targets.argmax(1), weights)
    return counts / counts.sum()


def logit_scale(
    shape: TaskShape, ridge: Ridge, targets: Tensor, weights: Tensor | None = None
) -> float:
    """Return the factor that turns predictions of ±1 into logits; 1 for numbers.

    It minimises the cross-entropy of the leave-one-out predictions.

    Args:
        shape: The shape of the task.
        ridge: The regression.
        targets: (samples, outputs).
        weights: (samples,) weights of the samples; equal by default.
    """
    if shape.answer != "class":
        return 1.0
    classes = targets.argmax(1)
    weights = _weights_or_ones(weights, len(classes))

    def loss(factor: float) -> float:
        losses = F.cross_entropy(ridge.loo_predictions * factor, classes, reduction="none")
        return float(weights @ losses / weights.sum())

    return min(_LOGIT_SCALES.tolist(), key=loss)


def _weights_or_ones(weights: Tensor | None, samples: int) -> Tensor:
    return torch.ones(samples, dtype=torch.float64) if weights is None else weights.double()
