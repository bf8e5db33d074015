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
from torch.nn import functional as F

from undamped._base.contract import Batch, TaskShape

PENALTIES = 10.0 ** torch.linspace(-3, 6, 28, dtype=torch.float64)
_SHARPNESSES = 2.0 ** torch.linspace(-3, 5, 33, dtype=torch.float64)
_LEAST_FREEDOM = 1e-12  # of a residual; below it a sample is all that holds its own answer


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


def fit_ridge(
    features: Tensor,
    answers: Tensor,
    penalty: float | None = None,
    penalties: Tensor = PENALTIES,
    weights: Tensor | None = None,
) -> Ridge:
    """Learn answers from features.

    Args:
        features: (samples, features).
        answers: (samples, outputs).
        penalty: λ; the one with the smallest error on samples left out if not given.
        penalties: What to choose from.
        weights: (samples,) what each counts; all alike if not given.
    """
    samples = len(features)
    each = torch.ones(samples, dtype=torch.float64) if weights is None else weights.double()
    centre = (each / each.sum()).to(features.dtype) @ features
    middle = each @ answers.double() / each.sum()
    root = each.sqrt().unsqueeze(1)
    x = (features - centre).double()
    x *= root
    y = (answers - middle).double() * root
    mean = root.squeeze(1) / root.norm()  # the direction that centring takes away
    # The smaller of the two matrices that have the same eigenvalues.
    wide = samples <= x.shape[1]
    if wide:
        gram = x @ x.T
        # Centring takes the mean away, which belongs to no λ: it is given the largest eigenvalue
        # and left out, lest its rounding stand beside small penalties.
        gram += (gram.diagonal().sum() + 1) * mean.outer(mean)
        values, vectors = (found[..., :-1] for found in torch.linalg.eigh(gram))
    else:
        values, vectors = torch.linalg.eigh(x.T @ x)
    values = values.clamp_min(0)
    # Scaled so that ŷ = basis · shrink(λ) · basisᵀ y.
    basis = vectors if wide else x @ vectors
    seen = basis.T @ y

    def residuals(strength: float) -> Tensor:
        shrink = 1 / (values + strength)
        if wide:  # what is left over, and not one minus what is not
            left = basis @ ((strength * shrink).unsqueeze(1) * seen)
            free = basis.square() @ (strength * shrink)
        else:
            left = y - basis @ (shrink.unsqueeze(1) * seen)
            free = 1 - mean.square() - basis.square() @ shrink
        return left / free.clamp_min(_LEAST_FREEDOM).unsqueeze(1)

    if penalty is None:
        errors = [float(residuals(float(one)).square().mean()) for one in penalties]
        penalty = float(penalties[min(range(len(errors)), key=errors.__getitem__)])
    inner = seen / (values + penalty).unsqueeze(1)
    weight = (x.T @ (vectors @ inner) if wide else vectors @ inner).T
    left_out = answers - residuals(penalty) / root
    bias = middle - weight @ centre.double()
    return Ridge(weight, bias, penalty, left_out)


def error_covariance(solved: Ridge, answers: Tensor, factor: float = 1.0) -> Tensor:
    """Return how answers to sequences that were not learnt from go wrong, (outputs, outputs).

    The mean of e eᵀ over the sequences, where e is what the answer by the regression that was not
    shown a sequence lacks. Its diagonal holds squared standard errors of an answer.

    Args:
        solved: What was learnt.
        answers: (samples, outputs) what was to be answered.
        factor: What answers are multiplied with afterwards.
    """
    errors = (answers.double() - solved.left_out) * factor
    return errors.T @ errors / len(errors)


def wanted_answers(shape: TaskShape, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return what a regression is to answer (batch, outputs), and which rows are known.

    Classes are asked for as 1 for the right one and -1 for the others.

    Args:
        shape: The shape of the task.
        batch: Sequences with their targets.
    """
    if shape.answer == "class":
        known = batch.targets >= 0
        rows = F.one_hot(batch.targets.clamp_min(0), shape.output_size)
        return rows.double() * 2 - 1, known
    rows = batch.targets.double().reshape(len(batch.targets), -1)
    return rows, ~rows.isnan().any(1)


def row_weights(shape: TaskShape, answers: Tensor, given: Tensor | None = None) -> Tensor | None:
    """Return what each sample counts (samples,); None where all count alike.

    Args:
        shape: The shape of the task; its weights of classes are heeded.
        answers: (samples, outputs) what is to be answered.
        given: (samples,) what each counts beside its class.
    """
    if not shape.class_weights:
        return None if given is None else given.double()
    by_class = torch.tensor(shape.class_weights, dtype=torch.float64)[answers.argmax(1)]
    return by_class if given is None else by_class * given


def class_shares(shape: TaskShape, answers: Tensor, weights: Tensor | None) -> Tensor:
    """Return how often each class occurs (classes,), as if each had been met once more.

    Args:
        shape: The shape of the task.
        answers: (samples, classes) what was to be answered.
        weights: (samples,) what each counts; all alike if not given.
    """
    each = torch.ones(len(answers), dtype=torch.float64) if weights is None else weights.double()
    once = each.sum() / len(each)
    counts = each.new_full((shape.output_size,), float(once))
    counts.index_add_(0, answers.argmax(1), each)
    return counts / counts.sum()


def sharpness(
    shape: TaskShape, solved: Ridge, answers: Tensor, weights: Tensor | None = None
) -> float:
    """Return what turns ±1 answers into logits: best for the sequences left out; 1 for numbers.

    Args:
        shape: The shape of the task.
        solved: What was learnt.
        answers: (samples, outputs) what was to be answered.
        weights: (samples,) what each counts; all alike if not given.
    """
    if shape.answer != "class":
        return 1.0
    classes = answers.argmax(1)
    each = torch.ones(len(classes), dtype=torch.float64) if weights is None else weights

    def loss(factor: float) -> float:
        losses = F.cross_entropy(solved.left_out * factor, classes, reduction="none")
        return float(each @ losses / each.sum())

    return min(_SHARPNESSES.tolist(), key=loss)
