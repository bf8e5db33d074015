"""Integrated gradients: contributions of samples to an output of a differentiable model.

    c_s = (x_s − x̄) ∫₀¹ ∂f/∂x_s (x̄ + a (x − x̄)) da

x̄ is the mean of training, 0 in standardised units. The contributions sum to f(x) − f(x̄) up to the
error of the integral, which is returned (M. Sundararajan, A. Taly, Q. Yan. Axiomatic attribution
for deep networks. ICML, 2017).
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped.models.task_model import TaskModel

_POINTS = 32  # of the Gauss-Legendre rule
_ERROR = 0.01  # relative error of the sum, above which the integral is divided
# Intervals that halve towards 0, where layer normalisation of small inputs changes within 10⁻³.
_HALVES = 12


class IntegratedGradients(NamedTuple):
    """Contributions of the samples of a sequence.

    Args:
        samples: (time, channels).
        offset: The output for the mean of training.
        output: The output for the sequence.
    """

    samples: Tensor
    offset: float
    output: float


def integrated_gradients(
    model: TaskModel, sequence: Batch, direction: Tensor
) -> IntegratedGradients:
    """Return the contributions to a combination of the last outputs.

    Args:
        model: The model, in evaluation mode.
        sequence: A batch of one sequence.
        direction: (outputs,) the weights of the outputs.
    """
    inputs = sequence.inputs.detach()
    direction = direction.to(inputs.dtype)

    def output(x: Tensor) -> Tensor:
        return model(sequence._replace(inputs=x)).reshape(-1, len(direction))[-1] @ direction

    def integral(edges: list[float]) -> Tensor:
        """Return the contributions by a Gauss-Legendre rule on every interval."""
        points, weights = np.polynomial.legendre.leggauss(_POINTS)
        total = torch.zeros_like(inputs)
        for start, stop in itertools.pairwise(edges):
            for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
                x = (inputs * (start + (stop - start) * point)).requires_grad_()
                (gradient,) = torch.autograd.grad(output(x), x)
                total += weight * (stop - start) * gradient
        return (total * inputs)[:, 0].double()

    with torch.no_grad():
        offset, value = float(output(torch.zeros_like(inputs))), float(output(inputs))
    samples = integral([0.0, 1.0])
    if abs(float(samples.sum()) - (value - offset)) > _ERROR * abs(value - offset):
        samples = integral([0.0, *(2.0**-power for power in range(_HALVES, -1, -1))])
    return IntegratedGradients(samples, offset, value)
