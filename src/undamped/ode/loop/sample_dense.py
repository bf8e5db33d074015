"""Dense output of samples that have steps of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError, explain
from undamped.ode.field import CountedField
from undamped.ode.loop.dense import Guarded, quartic_weights
from undamped.ode.methods.combine import combine
from undamped.ode.methods.explicit.runge_kutta import RungeKutta


class SampleDenseOutput(Guarded):
    """Call it with a time, or with one for every sample, to get the states there.

    Values only: to differentiate one, ask for it among the output times.

    Args:
        solver: The method.
        field: The field.
        y0: Start values, (batch, …).
        times: First and last time of every sample, (2, batch).
    """

    def __init__(self, solver: RungeKutta, field: CountedField, y0: Tensor, times: Tensor) -> None:
        self.solver, self.field, self.y0, self.times = solver, field, y0.detach(), times
        self.direction = torch.sign(times[1] - times[0])
        self.reached = times[0].clone()
        self._starts: list[Tensor] = []  # (batch,) each
        self._sizes: list[Tensor] = []  # (batch,), zero for those who did not step
        self._values: list[Tensor] = []  # (5, batch, …) at the fourths of the step, or (1, …)

    def watch(
        self, rows: Tensor, t: Tensor, h: Tensor, y: Tensor, y1: Tensor, taken: list[Tensor]
    ) -> None:
        """Remember a step: of these rows, from t (rows,), by h (rows,), zero where refused."""
        y, taken = y.detach(), [part.detach() for part in taken]
        nodes = [y]
        if self.solver.dense:
            column = h.view(len(rows), *(1,) * (y.dim() - 1))
            weights = [self.solver.tableau.inside_weights(k / 4) for k in range(1, 4)]
            nodes += [combine(y, column, row, taken) for row in weights] + [y1.detach()]
        full = self.y0.new_zeros(len(nodes), *self.y0.shape)
        full[:, rows] = torch.stack(nodes)
        starts, sizes = torch.zeros_like(self.reached), torch.zeros_like(self.reached)
        starts[rows], sizes[rows] = t, h
        self._starts.append(starts)
        self._sizes.append(sizes)
        self._values.append(full)
        self.reached = torch.where(sizes != 0, starts + sizes, self.reached)

    def __call__(self, t: float | Sequence[float] | Tensor) -> Any:
        """Return the states at time t, one for all samples or (batch,), or at (times, batch)."""
        with torch.no_grad():
            values = self._look_up(t)
        return self.field.packing.unpack(self._guard(values, t))

    def _look_up(self, t: float | Sequence[float] | Tensor) -> Tensor:
        wanted = torch.as_tensor(t, dtype=self.reached.dtype, device=self.reached.device).detach()
        batch = len(self.reached)
        if wanted.dim() > 2 or (wanted.dim() and wanted.shape[-1] not in (1, batch)):
            raise ShapeError(
                explain(
                    "times",
                    expected=f"one, one for each of the {batch} samples, or rows of such",
                    got=f"shape {tuple(wanted.shape)}",
                    remedy="Give times that are the same for all samples as a column, "
                    "t.unsqueeze(1).",
                )
            )
        if wanted.dim() < 2:
            return self._at(wanted.expand(batch))
        values = [self._at(row) for row in wanted.expand(-1, batch)]
        return torch.stack(values) if values else self.y0.new_empty(0, *self.y0.shape)

    def _at(self, wanted: Tensor) -> Tensor:
        # Ends that were not reached exactly, for rounding, still count.
        slack = 1e-12 * (1 + self.reached.abs())
        before = (wanted - self.times[0]) * self.direction < -slack
        after = (self.reached - wanted) * self.direction < -slack
        still = (self.direction == 0) & ((wanted - self.times[0]).abs() > slack)
        outside = before | after | still
        if bool(outside.any()):
            sample = int(outside.nonzero()[0])
            low, high = sorted((float(self.times[0, sample]), float(self.reached[sample])))
            raise OptionError(
                explain(
                    f"time of sample {sample}",
                    expected=f"from {low:.6g} to {high:.6g}, where its equation was solved",
                    got=f"{float(wanted[sample]):.6g}",
                    remedy="Solve further to look further.",
                )
            )
        result = self.y0.clone()
        if not self._starts:
            return result
        starts, sizes = torch.stack(self._starts), torch.stack(self._sizes)
        number = torch.arange(1, len(starts) + 1, device=starts.device).unsqueeze(1)
        behind = (sizes != 0) & ((wanted - starts) * self.direction >= 0)
        last = (behind * number).amax(0) - 1  # −1: no step begins before this time
        for step in last.unique().tolist():
            if step >= 0:
                rows = (last == step).nonzero().squeeze(1)
                ahead = (wanted - starts[step])[rows]
                result[rows] = self._inside(step, rows, ahead, sizes[step][rows])
        return result

    def _inside(self, step: int, rows: Tensor, ahead: Tensor, size: Tensor) -> Tensor:
        values = self._values[step]
        column = (-1,) + (1,) * (values.dim() - 2)
        if len(values) > 1:
            weights = quartic_weights(ahead / size)
            parts = zip(weights, values[:, rows], strict=True)
            return sum(
                (w.to(v.dtype).view(column) * v for w, v in parts),
                torch.zeros_like(values[0, rows]),
            )
        # No polynomial: a step of the method, for all samples, so that the field sees its batch.
        h = torch.zeros_like(self.reached)
        h[rows] = ahead
        start = self._starts[step].view(column)
        return self.solver.stages(self.field, start, h.view(column), values[0])[0][rows]
