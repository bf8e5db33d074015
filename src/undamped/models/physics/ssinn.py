"""SSINN (DiPietro, Xiong and Zhu, 2020): an energy as an equation, found by sparse regression."""

from __future__ import annotations

from typing import ClassVar, Unpack

from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.options import NonNegativeFloat, NonNegativeInt, PositiveInt
from undamped._base.registry import models
from undamped.models.physics.base import MotionModel
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.library import FunctionLibrary, LibraryField, written_sum
from undamped.models.physics.promised import ENERGY, SYMPLECTIC, VOLUME
from undamped.models.physics.state_model import space_of
from undamped.models.physics.step_options import FourthOrderOptions, step_arguments


@models.register("ssinn")
class SSINN(MotionModel):
    """Sparse symplectically integrated network: the energy as an equation that can be read.

    Equation:
        H = Σ_k a_k φ_k(p) + Σ_k b_k φ_k(q), with few a_k and b_k that are not zero

    Symbols:
        q positions, p momenta, φ_k monomials, and of positions sines and cosines if wished.

    Promise:
        Every step is symplectic. An energy that is not of the form T(p) + V(q) cannot be
        represented, nor one whose functions are not in the library.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions with a momentum each.
        degree: Largest power of each variable.
        total_degree: Largest sum of powers in a term; as large as powers allow if none is given.
        harmonics: Sines and cosines of positions, of 1, 2, … times each; 0 for none, which it is
            by default unless there are angles, and then 1.
        sparsity: Factor on the sum of absolute coefficients, which training adds to its loss.
        threshold: Terms whose coefficients are smaller are dropped for good, from time to time.
        prune_every: Steps of training between two such times.
        solve: Method, step_size and gradient: see `StepOptions`.

    Example:
        >>> model = undamped.models.SSINN(1, degree=2)
        >>> sorted(model.terms())
        ['p1', 'p1²', 'q1', 'q1²']

    Reference:
        D. M. DiPietro, S. Xiong, B. Zhu. Sparse symplectically integrated neural networks. NeurIPS,
        2020.
    """

    promises = (ENERGY, VOLUME, SYMPLECTIC)
    recipe: ClassVar = {
        "task": {"form": "trajectory", "window": 1, "error": "absolute"},
        "train": {"learning_rate": 5e-2},
    }

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        degree: PositiveInt = 3,
        total_degree: PositiveInt | None = None,
        harmonics: NonNegativeInt | None = None,
        sparsity: NonNegativeFloat = 1e-3,
        threshold: NonNegativeFloat = 0.05,
        prune_every: PositiveInt = 1000,
        **solve: Unpack[FourthOrderOptions],
    ) -> None:
        super().__init__()
        space = space_of(shape, "SSINN")
        coordinates = Coordinates.of(space, "SSINN")
        self.sparsity, self.threshold, self.prune_every = sparsity, threshold, prune_every
        waves = int(bool(coordinates.angles)) if harmonics is None else harmonics
        self.library = LibraryField(coordinates.freedoms, degree, total_degree, waves)
        self._build(space, self.library, step_arguments(solve), coordinates)

    def penalty(self) -> Tensor:
        """Return what training adds to its loss: the weighed sum of absolute coefficients."""
        sizes = [part.weights.abs().sum() for part in self._parts]
        return self.sparsity * (sizes[0] + sizes[1])

    def after_optimizer_step(self, step: int) -> None:
        """Drop small terms, when it is time."""
        if self.threshold and (step + 1) % self.prune_every == 0:
            for part in self._parts:
                part.prune(self.threshold)

    @property
    def _parts(self) -> tuple[FunctionLibrary, FunctionLibrary]:
        return self.library.of_momenta, self.library.of_positions

    def terms(self, threshold: float = 0.0) -> dict[str, float]:
        """Return the terms of H with their coefficients, momenta first.

        Args:
            threshold: Terms with smaller coefficients are left out.
        """
        assert self.coordinates is not None
        names = [self.space.names[place] for place in self.coordinates.order]
        half = self.coordinates.freedoms
        momenta, positions = self._parts
        return {
            **momenta.terms(names[half:], threshold),
            **positions.terms(names[:half], threshold),
        }

    def equation(self, threshold: float = 1e-3) -> str:
        """Return H as a person writes it.

        Args:
            threshold: Terms with smaller coefficients are left out.
        """
        return f"H = {written_sum(self.terms(threshold))}"

    def found(self) -> list[str]:
        """Say the equation."""
        return [f"The equation found: {self.equation()}."]
