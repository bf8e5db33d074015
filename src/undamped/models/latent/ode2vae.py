"""ODE²VAE (Yıldız, Heinonen and Lähdesmäki, 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch, TaskShape
from undamped._base.options import (
    Default,
    NonNegativeFloat,
    PositiveInt,
    Units,
    select,
)
from undamped._base.registry import models
from undamped.models.irregular.gap_rnn import ModesRNN
from undamped.models.latent.latent_model import LatentFlowModel, LatentOptions, PathOptions
from undamped.models.latent.path import (
    UNITS,
    BackwardEncoder,
    LatentFlow,
    integral,
    long_memory_options,
)
from undamped.models.latent.points import Normal, Points, standard
from undamped.models.task_model import LossOutput, TaskLoss
from undamped.ode.fields.bayesian_acceleration import BayesianAcceleration


class ODE2VAEOptions(LatentOptions, PathOptions, total=False):
    """Sizes, training and solver of an ODE²VAE."""

    latent_size: Annotated[Units, Default(6, "Number of positions; as many velocities.")]


@models.register("ode2vae")
class ODE2VAE(LatentFlowModel):
    """ODE²VAE: latent positions and velocities, accelerated by a field whose weights are uncertain.

    Equation:
        s' = v,  v' = f_W(s, v),  x(t_i) ~ N(g(s(t_i)), σ²),  W ~ N(m, λ²)
        log q(z(t)) = log q(z(0)) − ∫ tr ∂f_W/∂v dt,  z = (s, v)
        bound = E [log p(x | s) − c Σ_i (log q(z(t_i)) − log p(z(t_i)))/n − KL(q(z₀))] − KL(W)/N

    Symbols:
        s positions, v velocities, g decoder, σ noise, f_W a perceptron, q the density that the flow
        transports from the encoder's q(z₀); p = N(0, 1); n points of a sequence, N sequences. With
        c = 0 it is a bound on the likelihood; with c > 0 the whole path is regularised towards p,
        as in the paper, which counts one random start several times.

    Promise:
        The flow is a homeomorphism: it can be solved back.

    Args:
        shape: The shape of the task.
        field_size: Width of the field's hidden layer.
        path_weight: c, the weight of the density along the path.
        sequences: N, the number of training sequences; by default that of the task if it is fixed.
        options: See `LatentOptions` and `PathOptions`.

    Example:
        >>> model = undamped.models.ODE2VAE(undamped.models.TaskShape(3, 2), latent_size=4)
        >>> x, times = torch.randn(20, 8, 3), torch.rand(20, 8).cumsum(0)
        >>> model(undamped._base.contract.Batch(x, times=times)).shape
        torch.Size([8, 2])

    Reference:
        Ç. Yıldız, M. Heinonen, H. Lähdesmäki. ODE²VAE: deep generative second order ODEs with
        Bayesian neural networks. NeurIPS, 2019.
    """

    recipe: ClassVar[dict[str, dict[str, Any]]] = {
        "train": {"learning_rate": 5e-3, "schedule": "cosine", "clip": 1.0}
    }

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        field_size: Units = 50,
        path_weight: NonNegativeFloat = 0.0,
        sequences: PositiveInt = 1000,
        **options: Unpack[ODE2VAEOptions],
    ) -> None:
        latent = select(options, LatentOptions)
        latent_size = latent.pop("latent_size")
        super().__init__(shape, latent_size=2 * latent_size, state_size=latent_size, **latent)
        missing = "observed" in shape.needs
        network = ModesRNN(
            shape.input_size,
            latent["hidden_size"],
            cell_options=long_memory_options(shape.input_size * (2 if missing else 1)),
            missing=missing,
            gap=self.gap,
        )
        self.encoder = BackwardEncoder(network, 2 * latent_size, field_size)
        self.field = BayesianAcceleration(latent_size, field_size)
        self.flow = LatentFlow(self.field, span=self.span, **select(options, PathOptions))
        self.positions = latent_size
        self.path_weight, self.sequences = path_weight, sequences

    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        """Return positions (draws, times, batch, latent)."""
        return self.flow(z, times)[..., : self.positions]

    def objective(self, batch: Batch, loss: TaskLoss, state: Any = None) -> LossOutput:
        """Return the bound for one draw of the weights, negative and per point."""
        self.field.draw()
        try:
            return super().objective(batch, loss, state)
        finally:
            self.field.settle()

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Yield the parts of a pass with one draw of the weights."""
        self.field.draw()
        try:
            yield from super().parts_for_guard(batch)
        finally:
            self.field.settle()

    def of_weights(self) -> Tensor:
        """Return KL(W)/N, for one sequence."""
        return self.field.divergence() / self.sequences

    def of_times(
        self, posterior: Normal, starts: Tensor, states: Tensor, points: Points
    ) -> Tensor | float:
        """Return −c times the mean of log q − log p along the path, for every sequence."""
        if not self.path_weight:
            return 0.0
        measured = points.mask.any(-1)  # (points, batch)
        times = torch.where(measured, points.times, 0.0)
        position = times * (self.flow.steps / self.flow.span)
        density = self.path_density(posterior, starts, position)
        states = self.flow(starts, times)
        prior = standard(states).log_density(states)
        each = torch.where(measured, density - prior, 0.0).sum(1) / measured.sum(0).clamp(min=1)
        return -self.path_weight * self.divergence_weight() * each

    def path_density(self, posterior: Normal, starts: Tensor, position: Tensor) -> Tensor:
        """Return log q along the path, (draws, times, batch).

        Args:
            posterior: q(z₀).
            starts: (draws, batch, 2 latent).
            position: (times, batch) in steps of the flow's grid.
        """
        path, slopes = self.flow.path_until(starts, position)
        size = UNITS / self.flow.steps
        spread = torch.stack(
            [integral(path, slopes, lambda z: size * self.field.trace(z), end) for end in position],
            1,
        ).squeeze(-1)
        return posterior.log_density(starts).unsqueeze(1) - spread
