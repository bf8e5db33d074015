"""PrediNet (Shanahan and others, 2020): differences of images that several heads select."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import Units
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, start


def tagged(codes: Tensor) -> Tensor:
    """Return codes (time, batch, features) with their step as a further feature."""
    steps = torch.arange(len(codes), device=codes.device, dtype=codes.dtype)
    return torch.cat([codes, steps[:, None, None].expand(-1, codes.shape[1], 1)], -1)


@models.register("predinet")
class PrediNet(RelationalModel):
    """Each head attends to two images and compares them along learned relations.

    Equation:
        E¹ = softmax_i(Q¹ · K z_i) z,  E² = softmax_i(Q² · K z_i) z,  D = W_s E¹ − W_s E²
        y = W₂ ReLU(W₁ [D, t¹, t²] + b₁) + b₂

    Symbols:
        z_i normalised code of image i with its step, Q¹ and Q² queries of a head from the whole
        sequence, K keys that all heads share, W_s relations, t steps that were attended to.

    Promise:
        None: queries and attention depend on the images themselves.

    Args:
        shape: The shape of the task.
        heads: Number of pairs that are compared.
        key_size: Units of keys and queries.
        relations: Relations of a head.
        hidden_size: Units of the perceptron at the end.
        sight: See `SightOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("rmts", holdout=95)
        >>> model = undamped.models.PrediNet(task.task_shape)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        M. Shanahan, K. Nikiforou, A. Creswell, C. Kaplanis, D. Barrett, M. Garnelo. An explicitly
        relational neural network architecture. ICML, 2020; as T. W. Webb and others have it.
    """

    recipe: ClassVar = {"model": {"hidden_size": 8}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        heads: Units = 32,
        key_size: Units = 16,
        relations: Units = 16,
        hidden_size: Units = 8,
        **sight: Unpack[SightOptions],
    ) -> None:
        super().__init__(shape, **sight)
        assert self.length is not None
        size = self.features + 1
        self.heads = heads
        self.key = start(nn.Linear(size, key_size, bias=False))
        self.queries = nn.ModuleList(
            [start(nn.Linear(self.length * size, heads * key_size, bias=False)) for _ in range(2)]
        )
        self.relation = start(nn.Linear(size, relations, bias=False))
        self.hidden = start(nn.Linear(heads * (relations + 2), hidden_size), "relu")
        self.head = start(nn.Linear(hidden_size, shape.output_size))

    def decide(self, codes: Tensor) -> Tensor:
        """Return predictions (batch, output) for codes (time, batch, features)."""
        z = tagged(self.normalise(codes)).transpose(0, 1)
        keys = self.key(z)
        attended = []
        for to_query in self.queries:
            queries = to_query(z.flatten(1)).unflatten(1, (self.heads, -1))
            attended.append(torch.softmax(queries @ keys.transpose(1, 2), -1) @ z)
        first, second = attended
        compared = self.relation(first - second)
        steps = torch.stack([first[..., -1], second[..., -1]], -1)
        return self.head(torch.relu(self.hidden(torch.cat([compared, steps], -1).flatten(1))))
