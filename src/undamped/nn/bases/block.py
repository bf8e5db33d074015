"""The block of the state-space literature around a layer of independent units.

    v = norm(e),  r = layer(v),  g = gelu(r),  out = e + (W₁ g + b₁) ⊙ σ̂(W₂ g + b₂)

where e is the input, after a linear encoder in the first layer and wherever the sizes differ. A
block is a cell: its output needs the input of its step, so the output is a part of the state.
Dropout is applied to g and to the summand of e, with one mask per sequence each.

Layer normalisation reads one step and allows streaming. Batch normalisation, without parameters, is
that of the papers: in training over all true steps of the batch, so that an output depends on the
other sequences and on the future; in evaluation by running averages, which are constant.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped.kernels.linear.block_parts import gated_unit, reference_gated_unit, row_norm
from undamped.nn.bases.cell import Cell, ScanResult, State
from undamped.nn.sequence_tensors import mask_and_last

BlockKind = Literal["none", "layer-norm", "batch-norm"]
Norm = Literal["layer-norm", "batch-norm"]
MOMENTUM = 0.1
EPSILON = 1e-5


class Block(Cell):
    """A cell inside normalisation, gelu, gated linear unit and residual connection.

    Args:
        cell: The cell inside, as wide as the block.
        norm: The normalisation.
        dropout: Probability of dropping a unit.
        first: Whether the block is the first layer, where the input is always encoded.
    """

    independent_units = True
    mean: Tensor
    variance: Tensor

    def __init__(
        self, cell: Cell, input_size: int, *, norm: Norm, dropout: float = 0.0, first: bool = False
    ) -> None:
        size = cell.input_size
        super().__init__(input_size, size)
        self.cell, self.norm, self.dropout = cell, norm, dropout
        self.state_names = ("block", *cell.state_names)
        self.encoder = nn.Linear(input_size, size) if first or input_size != size else None
        self.gate = nn.Linear(cell.output_size, 2 * size)  # W₁ above W₂
        if norm == "batch-norm":
            self.register_buffer("mean", torch.zeros(size))
            self.register_buffer("variance", torch.ones(size))

    @property
    def state_sizes(self) -> tuple[int | None, ...]:
        return (self.hidden_size, *self.cell.state_sizes)

    @property
    def looks_ahead(self) -> bool:
        """Whether an output depends on later steps, by statistics of the whole batch."""
        return self.norm == "batch-norm" and self.training

    def encode(self, x: Tensor) -> Tensor:
        """Return e."""
        return x if self.encoder is None else self.encoder(x)

    def normalise(self, e: Tensor) -> Tensor:
        """Return v, from the step itself or by running averages."""
        if self.norm == "layer-norm":
            return F.layer_norm(e, e.shape[-1:], eps=EPSILON)
        return (e - self.mean) * torch.rsqrt(self.variance + EPSILON)

    def _normalise_batch(self, e: Tensor, lengths: Tensor | None) -> Tensor:
        """Return v by the statistics of all true steps, and update the running averages."""
        rows = e
        if lengths is not None:
            rows = e[torch.arange(len(e), device=e.device).unsqueeze(1) < lengths]
        rows = rows.reshape(-1, e.shape[-1])
        variance, mean = torch.var_mean(rows, 0, correction=0)
        with torch.no_grad():
            unbiased = variance * (len(rows) / max(1, len(rows) - 1))
            self.mean.lerp_(mean.to(self.mean.dtype), MOMENTUM)
            self.variance.lerp_(unbiased.to(self.variance.dtype), MOMENTUM)
        return (e - mean) * torch.rsqrt(variance + EPSILON)

    def draw_masks(self, batch: int, like: Tensor) -> State:
        """Draw the masks of a pass, (1, batch, features) each; none without dropout."""
        if not self.dropout or not self.training:
            return ()
        p = 1 - self.dropout
        sizes = (self.cell.output_size, self.hidden_size)
        return tuple(like.new_empty(1, batch, n).bernoulli_(p).div_(p) for n in sizes)

    def constants(self) -> State:
        return self.cell.cached_constants()

    def project(self, x: Tensor) -> Tensor:
        """Return the projection of the cell, and e."""
        e = self.encode(x)
        return torch.cat([self.cell.project(self.normalise(e)), e], -1)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make a step of the cell, then apply gelu, gate and residual connection."""
        cell_input, e = projected[..., : -self.hidden_size], projected[..., -self.hidden_size :]
        inner = self.cell.advance(cell_input, state[1:], constants)
        r = self.cell.output(inner)
        return (reference_gated_unit(r, e, self.gate.weight, self.gate.bias), *inner)

    def initial_state(self, batch: int, like: Tensor) -> State:
        return like.new_zeros(batch, self.hidden_size), *self.cell.initial_state(batch, like)

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        return self.scan_with(x, state, lengths, self.draw_masks(x.shape[1], x))

    def scan_with(
        self, x: Tensor, state: State, lengths: Tensor | None, masks: State
    ) -> ScanResult:
        """Scan with given dropout masks; lengths may be 0, for sequences that have ended."""
        e = self.encode(x)
        if self.norm == "layer-norm":
            scan = self.cell._block_scan(*e.shape[:2])
            result = scan and scan(e, state, lengths, self.gate, masks, EPSILON)
            if result is not None:
                return result
            v, e = row_norm(e, EPSILON)
        else:
            v = self._normalise_batch(e, lengths) if self.looks_ahead else self.normalise(e)
        r, inner = self.cell.scan(v, state[1:], lengths)
        output = gated_unit(r, e, self.gate.weight, self.gate.bias, masks)
        output, last = mask_and_last(output, state[0], lengths)
        return output, (last, *inner)
