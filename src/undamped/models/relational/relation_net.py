"""Relation network (Santoro and others, 2017): a sum over all pairs of images."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import Units
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, start
from undamped.models.relational.predinet import tagged


@models.register("relation-net")
class RelationNet(RelationalModel):
    """A perceptron reads every pair of images, and another the sum of its outputs.

    Equation:
        y = f(Σ_i Σ_j g([z_i, i, z_j, j]))

    Symbols:
        z_i normalised code of image i, g and f perceptrons.

    Promise:
        None: predictions depend on the images themselves.

    Args:
        shape: The shape of the task.
        pair_size: Units of the first layer of g.
        hidden_size: Units of the second layer of g, and of f.
        sight: See `SightOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("rmts", holdout=95)
        >>> model = undamped.models.RelationNet(task.task_shape)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        A. Santoro, D. Raposo, D. Barrett, M. Malinowski, R. Pascanu, P. Battaglia, T. Lillicrap. A
        simple neural network module for relational reasoning. NeurIPS, 2017; as T. W. Webb and
        others have it.
    """

    fixed_length = False
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        pair_size: Units = 512,
        hidden_size: Units = 256,
        **sight: Unpack[SightOptions],
    ) -> None:
        super().__init__(shape, **sight)
        self.pair = start(nn.Linear(2 * (self.features + 1), pair_size), "relu")
        self.pair_out = start(nn.Linear(pair_size, hidden_size), "relu")
        self.hidden = start(nn.Linear(hidden_size, hidden_size), "relu")
        self.head = start(nn.Linear(hidden_size, shape.output_size))

    def decide(self, codes: Tensor) -> Tensor:
        """Return predictions (batch, output) for codes (time, batch, features)."""
        z = tagged(self.normalise(codes)).transpose(0, 1)
        # The first layer is linear in both images of a pair, so it is applied to each image once.
        left, right = self.pair.weight.split(z.shape[-1], 1)
        first = (z @ left.T + self.pair.bias).unsqueeze(2)
        pairs = torch.relu(first + (z @ right.T).unsqueeze(1))
        summed = torch.relu(self.pair_out(pairs)).sum((1, 2))
        return self.head(torch.relu(self.hidden(summed)))
