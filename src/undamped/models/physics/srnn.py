"""SRNN (Chen, Zhang, Arjovsky and Bottou, 2020): separable energies, symplectic steps."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch, StateSpace, TaskShape
from undamped._base.errors import ShapeError, explain
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import models
from undamped.models.physics.base import MotionModel
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.energies import PerceptronSeparable
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.models.physics.hnn import Angles
from undamped.models.physics.promised import ENERGY, SYMPLECTIC, VOLUME
from undamped.models.physics.starts import better_starts
from undamped.models.physics.state_model import space_of
from undamped.models.physics.step_options import StepOptions, step_arguments


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
        shape: The shape of the task; a `StateSpace`, or a number of positions with a momentum each.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: Activation of T and V.
        angles: Whether V sees angles as numbers or by cosine and sine.
        start_iterations: Iterations of L-BFGS that move the noisy starts of every training batch to
            where the readings that follow want them; 0 takes starts as they were read.
        solve: Method, step_size and gradient: see `StepOptions`.

    Example:
        >>> model = undamped.models.SRNN(2, hidden_size=16)
        >>> model.trajectory(torch.randn(5, 4), [0.1, 0.2, 0.3]).shape
        torch.Size([3, 5, 4])

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
        hidden_size: PositiveInt = 64,
        hidden_layers: PositiveInt = 2,
        activation: SmoothActivation = "tanh",
        angles: Angles = "plain",
        start_iterations: NonNegativeInt = 0,
        **solve: Unpack[StepOptions],
    ) -> None:
        super().__init__()
        space = space_of(shape, "SRNN")
        coordinates = Coordinates.of(space, "SRNN")
        field = PerceptronSeparable(
            coordinates.freedoms,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            angles=coordinates.angles if angles == "embedded" else (),
        )
        self.start_iterations = start_iterations
        self._build(space, field, step_arguments(solve), coordinates)

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return rates or trajectories; in training from starts that were made better."""
        if self.training and self.start_iterations and batch.target_times is not None:
            batch = batch._replace(inputs=self._better(batch))
        return super().run(batch)

    def _better(self, batch: Batch) -> Tensor:
        if batch.targets.numel() == 0 or batch.target_mask is not None:
            raise ShapeError(
                explain(
                    "SRNN.start_iterations",
                    expected="a batch in which every reading that follows is known",
                    got="one with gaps, or without targets",
                    remedy="Set start_iterations to 0.",
                )
            )
        times, like = batch.target_times, next(self.parameters())
        assert times is not None
        return better_starts(
            lambda start: self.trajectory(start, times),
            batch.inputs.to(like.dtype),
            batch.targets.to(like.dtype),
            self.start_iterations,
        )
