"""RNN-VAE: the baseline of latent ODEs, recurrent networks in both directions and no flow."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Batch, TaskShape
from undamped._base.options import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Units,
)
from undamped._base.registry import models
from undamped.models.irregular.still import StillNetwork
from undamped.models.latent.encoder import BackwardEncoder, remembering
from undamped.models.latent.latent_model import Bound, LatentModel
from undamped.models.latent.normal import Normal
from undamped.models.stamped import gap_feature, refuse_before


@models.register("rnn-vae")
class RNNVAE(LatentModel):
    """RNN-VAE: a network reads a sequence backwards, another one writes it from a latent start.

    Equation:
        z ~ N(0, 1),  h₀ = W z,  h_i = GRU(ln(1 + Δt_i), h_{i−1}),  x(t_i) ~ N(g(h_i), σ²)
        q(z | x) normal, from a GRU that reads (x_i, ln(1 + Δt_i)) backwards

    Symbols:
        z latent start, Δt_i time between two points, in usual gaps; the writer is told nothing but
        these. An answer so depends on which other times are asked for, as those of a flow do not.

    Promise:
        None.

    Args:
        shape: The shape of the task.
        latent_size: Features of the latent start.
        hidden_size: Units of the network that reads, and of the one that writes.
        decoder_size: Width of the decoder's hidden layer; 0 for a linear decoder.
        noise: Standard deviation of measurements; learnt for every feature if not given.
        draws: Draws of the latent start for every sequence in training.
        bound: "elbo" is the mean of the draws, "iwae" the tighter bound of all of them together.
        annealing: Updates over which the weight of the divergence grows from 0 to 1.
        label_weight: How much a label counts beside a point.

    Example:
        >>> model = undamped.models.RNNVAE(undamped.models.TaskShape(3, 2), latent_size=4)
        >>> x, times = torch.randn(20, 8, 3), torch.rand(20, 8).cumsum(0)
        >>> model(undamped._base.contract.Batch(x, times=times)).shape
        torch.Size([8, 2])

    Reference:
        The baseline of Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations
        for irregularly-sampled time series. NeurIPS, 2019.
    """

    recipe: ClassVar[dict[str, dict[str, Any]]] = {
        "train": {"learning_rate": 1e-2, "schedule": "cosine", "clip": 1.0}
    }

    decoder_name = "writer"

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        latent_size: Units = 10,
        hidden_size: Units = 40,
        decoder_size: NonNegativeInt = 0,
        noise: PositiveFloat | None = None,
        draws: PositiveInt = 1,
        bound: Bound = "elbo",
        annealing: NonNegativeInt = 500,
        label_weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(
            shape,
            latent_size=latent_size,
            state_size=hidden_size,
            decoder_size=decoder_size,
            noise=noise,
            draws=draws,
            bound=bound,
            annealing=annealing,
            label_weight=label_weight,
        )
        missing = "observed" in shape.needs
        network = StillNetwork(
            shape.input_size,
            hidden_size,
            cell="gru",
            cell_options=remembering(1 + shape.input_size * (2 if missing else 1)),
            missing=missing,
            gap=self.gap,
        )
        self.encoder = BackwardEncoder(network, latent_size, hidden_size)
        self.first = nn.Linear(latent_size, hidden_size)
        self.writer: Any = models.build("gru", input_size=1, hidden_size=hidden_size)

    def posterior(self, batch: Batch) -> Normal:
        """Return q(z | x), (batch, latent)."""
        return self.encoder(batch, self.dtype)

    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        """Return states of the writer (draws, times, batch, hidden), in the order of time."""
        refuse_before(times, 0.0)
        draws, batch = z.shape[:2]
        ordered, order = times.sort(0)
        gaps = torch.diff(ordered, dim=0, prepend=torch.zeros_like(ordered[:1]))
        told = gap_feature(gaps, self.gap).to(z.dtype).unsqueeze(-1).repeat(1, draws, 1)
        start = self.first(z).view(1, draws * batch, -1)
        written, _ = self.writer(told, start)
        back = order.argsort(0).repeat(1, draws).unsqueeze(-1).expand_as(written)
        found = written.gather(0, back).unflatten(1, (draws, batch))
        return found.transpose(0, 1)
