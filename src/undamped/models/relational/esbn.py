"""ESBN (Webb, Sinha and Cohen, 2021): symbols bound to images in an external memory."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import Units
from undamped._base.registry import models
from undamped.models.relational.base import start, start_gates
from undamped.models.relational.comparing import RELATIONS_ONLY, ComparingModel, RelationOptions


@models.register("esbn")
class ESBN(ComparingModel):
    """Emergent symbol binding network: an LSTM that reads keys, and finds them by similarity.

    Equation:
        h_t = LSTM(r_{t−1}),  k_t = ReLU(W_k h_t),  g_t = σ(W_g h_t),  s_ti = z_t · z_i
        r_t = g_t Σ_{i<t} softmax_{i<t}(s_ti) [k_i, σ(γ s_ti + β)],  y = W_y h_{T+1}

    Symbols:
        z_t normalised code of image t, k_t key written with it, r_t key that is read, g gate,
        γ and β gain and bias of the confidence; r_1 is zero.

    Promise:
        Predictions depend on images only through their similarities: other images with the same
        ones have the same prediction. Not with `sensory`.

    Args:
        hidden_size: Units of the LSTM.
        key_size: Units of a key.
        sensory: Whether the LSTM also reads the codes z themselves (cat).
        options: See `SightOptions` and `SimilarityOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("rmts", holdout=95)
        >>> model = undamped.models.ESBN(task.task_shape, hidden_size=32)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        T. W. Webb, I. Sinha, J. D. Cohen. Emergent symbols through binding in external memory.
        ICLR, 2021.
    """

    usual_choice = True
    promises = RELATIONS_ONLY
    fixed_length = False
    recipe: ClassVar = {"model": {"hidden_size": 512}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        hidden_size: Units = 512,
        key_size: Units = 256,
        sensory: bool = False,
        **options: Unpack[RelationOptions],
    ) -> None:
        super().__init__(shape, sensory, **options)
        self.hidden_size, self.key_size = hidden_size, key_size
        self.lstm = nn.LSTMCell(key_size + 1 + sensory * self.features, hidden_size)
        start_gates(self.lstm)
        self.key = start(nn.Linear(hidden_size, key_size), "relu")
        self.gate = start(nn.Linear(hidden_size, 1))
        self.gain = nn.Parameter(torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(1))
        self.head = start(nn.Linear(hidden_size, shape.output_size))

    def relation_matrix(self, codes: Tensor) -> Tensor:
        """Return the read weights, (batch, time, time): zero but for earlier images."""
        scores = self.scores(codes)
        earlier = torch.ones_like(scores[0], dtype=torch.bool).tril(-1)
        earlier[0, 0] = True  # a softmax needs at least one entry; nothing is read there
        return torch.softmax(scores.masked_fill(~earlier, -torch.inf), -1).tril(-1)

    def relations(self, codes: Tensor) -> Tensor:
        """Return all quantities that a prediction depends on, (batch, entries)."""
        row, column = torch.tril_indices(len(codes), len(codes), -1, device=codes.device)
        return self.scores(codes)[:, row, column]

    def answer(self, scores: Tensor, codes: Tensor | None) -> Tensor:
        """Return predictions (batch, output) from similarities (batch, time, time)."""
        confidence = torch.sigmoid(self.gain * scores.to(self.dtype) + self.bias)
        batch, steps, _ = scores.shape
        retrieved = confidence.new_zeros(batch, self.lstm.input_size)
        state: Any = None
        keys: list[Tensor] = []
        for t in range(steps):
            state = self.lstm(retrieved, state)
            hidden = state[0]
            if t == 0:
                retrieved = confidence.new_zeros(batch, self.key_size + 1)
            else:
                # (batch, 1, t) weights times (batch, t, keys and confidence)
                weights = torch.softmax(scores[:, t, :t], -1).unsqueeze(1).to(self.dtype)
                memory = torch.cat([torch.stack(keys, 1), confidence[:, t, :t, None]], -1)
                retrieved = torch.sigmoid(self.gate(hidden)) * (weights @ memory).squeeze(1)
            keys.append(torch.relu(self.key(hidden)))
            if codes is not None:
                retrieved = torch.cat([retrieved, codes[t]], -1)
        return self.head(self.lstm(retrieved, state)[0])
