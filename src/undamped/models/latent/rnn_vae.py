"""RNN-VAE: the baseline of latent ODEs, with a recurrent encoder and decoder and no flow."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import select
from undamped._base.registry import models
from undamped.models.irregular.gap_rnn import GapOptions, GapRNN
from undamped.models.irregular.network import Parts
from undamped.models.latent.latent_model import BoundOptions, LatentModel, LatentOptions
from undamped.models.latent.path import BackwardEncoder, long_memory_options
from undamped.models.timestamped import gap_feature, refuse_before


class _StillRNN(GapRNN):
    """A cell that reads ln(1 + Δt), the time since the previous sample in usual gaps.

    The state does not change between samples.
    """

    def __init__(self, input_size: int, hidden_size: int, **options: Unpack[GapOptions]) -> None:
        super().__init__(input_size, hidden_size, more=1, **options)

    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Tensor:
        """Return the cell's projection of values, of the mask, and of the gaps."""
        parts = [x, observed.to(x.dtype)] if self.missing else [x]
        ago = gap_feature(gaps, 1.0).unsqueeze(-1).to(x.dtype)
        return self.cell.project(torch.cat([*parts, ago], -1))

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Return the state unchanged."""
        return state


class RNNVAEOptions(LatentOptions, BoundOptions, total=False):
    """Sizes and training of an RNN-VAE."""


@models.register("rnn-vae")
class RNNVAE(LatentModel):
    """RNN-VAE: one network encodes a sequence backwards, another decodes it from a latent state.

    Equation:
        z ~ N(0, 1),  h₀ = W z,  h_i = GRU(ln(1 + Δt_i), h_{i−1}),  x(t_i) ~ N(g(h_i), σ²)
        q(z | x) normal, from a GRU that reads (x_i, ln(1 + Δt_i)) backwards

    Symbols:
        z latent state, Δt_i time between two points, in usual gaps, the only input of the decoder.
        A prediction depends on the other query times, which those of a flow do not.

    Promise:
        None.

    Args:
        shape: The shape of the task.
        options: See `LatentOptions` and `BoundOptions`; the decoder network has `hidden_size`
            units too.

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
    def __init__(self, shape: TaskShape, **options: Unpack[RNNVAEOptions]) -> None:
        latent = select(options, LatentOptions)
        hidden_size = latent["hidden_size"]
        super().__init__(shape, state_size=hidden_size, **latent, **select(options, BoundOptions))
        missing = "observed" in shape.needs
        network = _StillRNN(
            shape.input_size,
            hidden_size,
            cell="gru",
            cell_options=long_memory_options(1 + shape.input_size * (2 if missing else 1)),
            missing=missing,
            gap=self.gap,
        )
        self.encoder = BackwardEncoder(network, self.latent_size, hidden_size)
        self.first = nn.Linear(self.latent_size, hidden_size)
        self.writer: Any = models.build("gru", input_size=1, hidden_size=hidden_size)

    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        """Return states of the decoder network (draws, times, batch, hidden)."""
        refuse_before(times, 0.0)
        draws, batch = z.shape[:2]
        ordered, order = times.sort(0)
        gaps = torch.diff(ordered, dim=0, prepend=torch.zeros_like(ordered[:1]))
        inputs = gap_feature(gaps, self.gap).to(z.dtype).unsqueeze(-1).repeat(1, draws, 1)
        start = self.first(z).view(1, draws * batch, -1)
        states, _ = self.writer(inputs, start)
        back = order.argsort(0).repeat(1, draws).unsqueeze(-1).expand_as(states)
        return states.gather(0, back).unflatten(1, (draws, batch)).transpose(0, 1)
