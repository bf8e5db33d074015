"""Modules with a penalty, which say so when a training loop forgets it."""

from __future__ import annotations

import warnings

from torch import Tensor

from undamped.nn.bases.updates import Watched


class Penalised(Watched):
    """A module whose `penalty` belongs into the loss.

    An update that was made without it is noticed, and said once.
    """

    _penalty_taken = False
    _penalty_missed = False

    def wanted_penalty(self) -> str:
        """Name the option that asks for the penalty and its value; "" if none does."""
        return ""

    def penalty(self) -> Tensor:
        """Return the penalty, and note that it was asked for."""
        self._penalty_taken = True
        return self.penalty_value()

    def penalty_value(self) -> Tensor:
        """Compute the penalty."""
        raise NotImplementedError

    def after_whole_update(self) -> None:
        """Look whether the penalty was taken since the last update."""
        wanted = self.wanted_penalty()
        if wanted and not (self._penalty_taken or self._penalty_missed):
            self._penalty_missed = True
            name = type(self).__name__.removeprefix("Parametrized")
            warnings.warn(
                f"{name}: {wanted} asks for a penalty, and an optimiser made an "
                "update without it. Add `undamped.nn.penalty(model)` to the loss, or set the "
                "option to 0.",
                stacklevel=2,
            )
        self._penalty_taken = False
        super().after_whole_update()
