"""A transformer of images, a baseline of relational networks in the literature."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt, Range, Units
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, start


def sinusoids(length: int, like: Tensor) -> Tensor:
    """Return sines and cosines of the step, (length, features), of wave lengths to 10,000 · 2π."""
    size = like.shape[-1]
    steps = torch.arange(length, device=like.device, dtype=like.dtype).unsqueeze(1)
    pair = torch.arange(0, size, 2, device=like.device, dtype=like.dtype)
    angles = steps * torch.exp(-math.log(10_000) / size * pair)
    table = like.new_empty(length, size)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()[:, : size // 2]
    return table


@models.register("picture-transformer")
class PictureTransformer(RelationalModel):
    """A transformer encoder over the codes of the images; their mean gives the prediction.

    Equation:
        a_h = softmax(Q_h z K_hᵀ zᵀ / √d) V_h z,  u = norm(z + W_o [a_1 … a_H])
        v = norm(u + W₂ ReLU(W₁ u)),  y = MLP(mean_i norm(v_i))

    Symbols:
        z normalised codes of the images plus sinusoids of their steps, Q, K and V maps of each
        head h, d size of a head.

    Promise:
        None: attention mixes the images themselves.

    Args:
        shape: The shape of the task.
        heads: Heads of the attention.
        feed_forward_size: Units between attention layers.
        layers: Layers.
        hidden_size: Units of the perceptron at the end.
        sight: See `SightOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("rmts", holdout=95)
        >>> model = undamped.models.PictureTransformer(task.task_shape)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        A. Vaswani and others. Attention is all you need. NeurIPS, 2017; as T. W. Webb and others
        have it.
    """

    usual_choice = True
    fixed_length = False
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        heads: PositiveInt = 8,
        feed_forward_size: Units = 512,
        layers: Annotated[int, Range(low=1, high=100)] = 1,
        hidden_size: Units = 256,
        **sight: Unpack[SightOptions],
    ) -> None:
        super().__init__(shape, **sight)
        if self.features % heads:
            raise OptionError(
                f"PictureTransformer.heads must divide features={self.features}, got {heads}."
            )
        layer = nn.TransformerEncoderLayer(
            self.features, heads, dim_feedforward=feed_forward_size, dropout=0.0
        )
        self.transformer = nn.TransformerEncoder(
            layer, layers, nn.LayerNorm(self.features), enable_nested_tensor=False
        )
        for name, parameter in self.transformer.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "self_attn" in name:
                nn.init.xavier_normal_(parameter)
            elif "linear" in name:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")
        self.hidden = start(nn.Linear(self.features, hidden_size), "relu")
        self.head = start(nn.Linear(hidden_size, shape.output_size))

    def decide(self, codes: Tensor) -> Tensor:
        """Return predictions (batch, output) for codes (time, batch, features)."""
        z = self.normalise(codes)
        mixed = self.transformer(z + sinusoids(len(z), z).unsqueeze(1))
        return self.head(torch.relu(self.hidden(mixed.mean(0))))
