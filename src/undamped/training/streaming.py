"""Prepared samples, one at a time, to a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped.data.recordings.preparation import Preparation
from undamped.data.recordings.prepared import PreparedSample
from undamped.errors import OptionError, explain
from undamped.networks.task_model import StreamingModel, TaskModel


def sample_tensors(
    sample: PreparedSample, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return inputs (1, channels), the time since the sample before (1,), what was measured."""
    x = torch.from_numpy(sample.inputs).to(dtype).unsqueeze(0)
    dt = None if sample.dt is None else torch.tensor([sample.dt], dtype=dtype)
    observed = None if sample.observed is None else torch.from_numpy(sample.observed).unsqueeze(0)
    return x, dt, observed


@torch.inference_mode()
def push_sample(
    model: TaskModel, preparation: Preparation, sample: PreparedSample, state: Any
) -> tuple[Tensor, Any]:
    """Return what a model says after one more sample (1, output), and its state.

    Args:
        model: The model.
        preparation: What was done to the sample; it knows what is asked.
        sample: The sample.
        state: What the sample before left; None for the first.
    """
    if not isinstance(model, StreamingModel):
        raise whole_sequences_only(model)
    x, dt, observed = sample_tensors(sample, model.dtype)
    if not preparation.at_times:
        return model.step(x, state, dt, observed=observed)
    ahead = torch.arange(1, preparation.horizon + 1, dtype=model.dtype)
    answers, state = model.step(x, state, dt, observed=observed, ahead=ahead)
    return answers.transpose(0, 1).flatten(1), state


def whole_sequences_only(model: TaskModel) -> OptionError:
    """Return the error for a model that cannot be fed one sample after the other."""
    return OptionError(
        explain(
            type(model).__name__,
            expected="a model that takes one sample after the other",
            got="one that reads whole sequences",
            remedy="Ask it about a whole sequence, with 'undamped predict'.",
        )
    )
