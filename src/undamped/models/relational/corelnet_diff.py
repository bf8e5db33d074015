"""CoRelNet-diff (Kerg, 2022): an answer from the differences of a learned size of the pictures."""

from __future__ import annotations

from typing import ClassVar, Unpack

from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import Units
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, decoder


def differences(sizes: Tensor) -> Tensor:
    """Return D_ij = s_i − s_j of numbers (time, batch): (batch, time, time)."""
    sizes = sizes.T
    return sizes.unsqueeze(2) - sizes.unsqueeze(1)


@models.register("corelnet-diff")
class CoRelNetDiff(RelationalModel):
    """CoRelNet for relations that are not symmetric: a perceptron that sees differences alone.

    Equation:
        s_i = w · z_i,  D_ij = s_i − s_j,  y = W₂ ReLU(W₁ vec(D) + b₁) + b₂

    Symbols:
        z_i normalised code of picture i, w learned direction, s size along it, D differences.

    Promise:
        Answers see pictures through D alone: other pictures with the same D get the same answer.

    Args:
        shape: The shape of the task.
        hidden_size: Units of the perceptron.
        sight: How pictures are seen; see `SightOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("comparison", transitive=True)
        >>> model = undamped.models.CoRelNetDiff(task.task_shape)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        G. Kerg. Inductive biases for efficient information transfer in artificial networks, section
        7.2. Thesis, Université de Montréal, 2022.
    """

    promises = (
        Promise(
            Kind.RELATIONS_ALONE,
            "pictures that differ in the same way get the same answer, whatever they show",
        ),
    )
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    @checked
    def __init__(
        self, shape: TaskShape, *, hidden_size: Units = 256, **sight: Unpack[SightOptions]
    ) -> None:
        super().__init__(shape, **sight)
        assert self.length is not None
        self.size = nn.Linear(self.features, 1, bias=False)
        self.decoder = decoder(self.length**2, hidden_size, shape.output_size)

    def relation_matrix(self, codes: Tensor) -> Tensor:
        """Return D of codes (time, batch, features): (batch, time, time)."""
        return differences(self.size(self.normalise(codes)).squeeze(-1))

    def relations(self, codes: Tensor) -> Tensor:
        """Return all that an answer depends on, (batch, numbers)."""
        return self.relation_matrix(codes).flatten(1)

    def decide(self, codes: Tensor) -> Tensor:
        """Return the answers (batch, output) to codes (time, batch, features)."""
        return self.decoder(self.relations(codes))
