"""∂L/∂h_t with all its paths, through the recurrence and through what is remembered.

A step's hidden state goes on in the recurrence and is remembered besides. Adding a number that is
zero to it before anybody reads it gives both: the gradient with respect to that number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from undamped._base.registry import tasks
from undamped.lab.tasks.copying import RECALLED
from undamped.models.sequence_model import SequenceModel


def hidden_gradients(model: SequenceModel, task: str, delay: int, sequences: int) -> list[float]:
    """Return ‖∂L/∂h_t‖ for every step t, with L the loss on the symbols that have to be said.

    Args:
        model: A model with one layer in one direction.
        task: "copy" or "denoise".
        delay: The delay.
        sequences: How many sequences the norm is averaged over.
    """
    built: Any = tasks.build(task, delay=delay, seed=0)
    batch = built.batch("test", 0, sequences)
    model.eval()
    prediction, zeros = _shifted_pass(model, batch.inputs)
    said, answers = prediction[-RECALLED:], batch.targets[-RECALLED:]
    loss = cross_entropy(said.flatten(0, 1), answers.flatten())
    gradients = torch.autograd.grad(loss, zeros)
    # The loss is a mean over sequences; the norm is that of one.
    return [float(gradient.norm(dim=1).mean()) * sequences for gradient in gradients]


def _shifted_pass(model: SequenceModel, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Run step by step; return answers, and the zeros that were added to the hidden states."""
    cell: Any = model.network.cell(0)
    inner = getattr(cell, "recurrence", cell)
    advance, zeros, outputs = inner.advance, [], []

    def shifted(projected: Tensor, state: Any, constants: Any) -> Any:
        hidden, *rest = advance(projected, state, constants)
        if len(zeros) > len(outputs):  # asked a second time in a step, for what would have been
            return hidden, *rest
        zeros.append(torch.zeros_like(hidden, requires_grad=True))
        return hidden + zeros[-1], *rest

    x = model.encode(inputs)
    state, constants = cell.initial_state(x.shape[1], x), cell.constants()
    inner.advance = shifted
    try:
        for projected in cell.project(x):
            state = cell.advance(projected, state, constants)
            outputs.append(cell.output(state))
    finally:
        del inner.advance
    return model.head(torch.stack(outputs)), zeros
