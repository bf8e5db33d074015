"""SRNN (Chen, Zhang, Arjovsky and Bottou, 2020): separable energies, symplectic steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Batch, StateSpace, TaskShape
from undamped._base.errors import ShapeError
from undamped._base.options import NonNegativeInt
from undamped._base.registry import models
from undamped.models.physics.base import (
    ENERGY,
    SYMPLECTIC,
    VOLUME,
    MotionModel,
    PerceptronOptions,
    StepOptions,
    perceptron_arguments,
)
from undamped.models.physics.fields.coordinates import Coordinates, PositionFeatures
from undamped.models.physics.fields.hamiltonian import PairField
from undamped.models.physics.fields.ports import Ports
from undamped.models.physics.fields.smooth_perceptron import SmoothPerceptron


class PerceptronPotential(nn.Module):
    """An energy of positions alone, or of momenta alone, by a perceptron.

    Equation:
        V = w σ(W₂ σ(W₁ φ(q) + b₁) + b₂)

    Args:
        dof: Positions.
        angles: Positions that are replaced by cosine and sine.
        layers: Sizes and activation, as for `SmoothPerceptron`.
    """

    def __init__(self, dof: int, *, angles: Sequence[int] = (), **layers: Any) -> None:
        super().__init__()
        self.features = PositionFeatures(dof, angles)
        size = self.features.size
        self.net = SmoothPerceptron(size, 1, orthogonal=True, readout_bias=False, **layers)

    def forward(self, q: Tensor) -> Tensor:
        """Return V, (…,)."""
        return self.net(self.features(q)).squeeze(-1)

    def gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q in closed form, (…, dof)."""
        features = self.features(q)
        return self.features.vjp(features, self.net.linearise(features).gradient())


class PerceptronSeparable(PairField):
    """T(p) + V(q), a perceptron each.

    Equation:
        H = T(p) + V(φ(q))

    Args:
        angles: Positions that are replaced by cosine and sine.
        layers: Sizes and activation, as for `SmoothPerceptron`.
    """

    def __init__(
        self, dof: int, *, angles: Sequence[int] = (), ports: Ports | None = None, **layers: Any
    ) -> None:
        of_momenta = PerceptronPotential(dof, **layers)
        of_positions = PerceptronPotential(dof, angles=angles, **layers)
        super().__init__(dof, of_momenta, of_positions, ports)


class SRNNOptions(PerceptronOptions, StepOptions, total=False):
    """Perceptrons and steps of an SRNN."""


@models.register("srnn")
class SRNN(MotionModel):
    """Symplectic recurrent network: T(p) + V(q) stepped by leapfrog, learned over several steps.

    Equation:
        H = T(p) + V(q);  p' = p − h/2 V'(q),  q' = q + h T'(p'),  p'' = p' − h/2 V'(q')

    Symbols:
        q positions, p momenta, T and V perceptrons, h step size.

    Promise:
        Every step is symplectic and can be undone exactly, so that gradients over thousands of
        steps take no more memory than over one. An energy that is not of this form cannot be
        represented.

    Args:
        start_iterations: Iterations of L-BFGS that fit the noisy starts of every training batch to
            the readings that follow; 0 uses the starts as they were read.
        options: See `PerceptronOptions` and `StepOptions`.

    Reference:
        Z. Chen, J. Zhang, M. Arjovsky, L. Bottou. Symplectic recurrent neural networks. ICLR,
        2020.
    """

    usual_choice = True
    promises = (ENERGY, VOLUME, SYMPLECTIC)
    recipe: ClassVar = {"task": {"form": "trajectory"}, "model": {"hidden_size": 64}}

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        start_iterations: NonNegativeInt = 0,
        **options: Unpack[SRNNOptions],
    ) -> None:
        super().__init__()
        coordinates = Coordinates.of(shape, "SRNN")
        arguments = perceptron_arguments(coordinates, options)
        self.start_iterations = start_iterations
        self._build(PerceptronSeparable(coordinates.dof, **arguments), coordinates, options)

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return rates or trajectories; in training from starts fitted to the targets."""
        if self.training and self.start_iterations and batch.target_times is not None:
            batch = batch._replace(inputs=self._fitted_starts(batch))
        return super().run(batch)

    def _fitted_starts(self, batch: Batch) -> Tensor:
        if batch.targets.numel() == 0 or batch.target_mask is not None:
            raise ShapeError(
                "SRNN.start_iterations needs a batch with targets and without missing values. "
                "Set start_iterations to 0."
            )
        times, like = batch.target_times, next(self.parameters())
        assert times is not None
        return fit_starts(
            lambda start: self.trajectory(start, times),
            batch.inputs.to(like.dtype),
            batch.targets.to(like.dtype),
            self.start_iterations,
        )


def fit_starts(
    predict: Callable[[Tensor], Tensor], start: Tensor, targets: Tensor, iterations: int
) -> Tensor:
    """Return starts near the measured ones whose trajectories fit the measurements that follow.

    L-BFGS fits all starts of a batch together, with fixed weights; the measured start counts as
    much as each measurement that follows.

    Equation:
        min over z₀ of |z₀ − ẑ₀|² + Σ_t |z_t(z₀) − ẑ_t|²

    Args:
        predict: From starts (batch, size) to states (outputs, batch, size).
        start: Measured starts, ẑ₀.
        targets: Measurements that follow, ẑ_t.
        iterations: Iterations of L-BFGS.
    """
    with torch.enable_grad():
        fitted = start.detach().clone().requires_grad_()
        optimizer = torch.optim.LBFGS([fitted], max_iter=iterations, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            error = (predict(fitted) - targets).square().sum() + (fitted - start).square().sum()
            (fitted.grad,) = torch.autograd.grad(error, fitted)
            return error

        optimizer.step(closure)
    return fitted.detach()
