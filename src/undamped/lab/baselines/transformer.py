"""A causal Transformer without positions: what attention does with the time of a recurrence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.window import as_vectors
from undamped.models.task_model import TaskModel


class _Block(nn.Module):
    """Causal self-attention and a perceptron, each after a normalisation and with a shortcut."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList((nn.LayerNorm(size), nn.LayerNorm(size)))
        self.qkv, self.mix = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.perceptron = nn.Sequential(
            nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the next representation of a sequence (batch, time, size)."""
        size, steps, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(size, steps, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.mix(attention.transpose(1, 2).reshape(size, steps, width))
        return x + self.perceptron(self.norms[1](x))


@models.register("transformer")
class Transformer(TaskModel):
    """Causal Transformer: every step attends to all earlier ones.

    It has no codes of positions: a causal mask gives them implicitly, and codes of positions are
    the part of a Transformer that fails first on sequences longer than those of training. Time and
    memory grow with the square of the length.

    Equation:
        z = x + W softmax(Q Kᵀ/√d + mask) V,  y = z + perceptron(z)

    Symbols:
        Q, K, V linear in LayerNorm(x), d size of a head.

    Promise:
        None: it has no state.

    Args:
        shape: Sizes of the task.
        hidden_size: Size of a step's representation.
        num_layers: Number of layers.
        heads: Number of attention heads.

    Example:
        >>> model = undamped.build("transformer", shape=undamped.models.TaskShape(3, 2))
        >>> model(torch.randn(50, 4, 3)).shape
        torch.Size([4, 2])

    Reference:
        A. Vaswani and others. Attention is all you need. NeurIPS, 2017.
        A. Kazemnejad and others. The impact of positional encoding on length generalization in
        transformers. NeurIPS, 2023.
    """

    sequential = True
    input_kinds = frozenset({"vectors", "pixels"})

    def __init__(
        self,
        shape: TaskShape,
        *,
        hidden_size: PositiveInt = 64,
        num_layers: PositiveInt = 2,
        heads: PositiveInt = 4,
    ) -> None:
        super().__init__()
        if hidden_size % heads:
            raise OptionError(
                f"transformer.hidden_size must be a multiple of heads={heads}, got {hidden_size}."
            )
        self.every_step = shape.readout == "every"
        self.embedding = nn.Linear(shape.input_size, hidden_size)
        self.blocks = nn.Sequential(*(_Block(hidden_size, heads) for _ in range(num_layers)))
        self.readout = nn.Sequential(
            nn.LayerNorm(hidden_size), nn.Linear(hidden_size, shape.output_size)
        )

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the answers at every step, or after the last one of every sequence."""
        x = self.blocks(self.embedding(as_vectors(batch.inputs).transpose(0, 1))).transpose(0, 1)
        if self.every_step:
            return self.readout(x), None
        if batch.lengths is None:
            return self.readout(x[-1]), None
        index = torch.arange(x.shape[1], device=x.device)
        return self.readout(x[batch.lengths.to(x.device) - 1, index]), None
