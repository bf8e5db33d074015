"""Running torch's own recurrent kernels behind the Cell contract.

`torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu` are what `torch.nn.LSTM` and its
kin call. Unequal lengths go through a packed sequence, which is the only form in which these
kernels leave the state of a finished sequence alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from undamped.nn.bases.cell import State


def gate_parameters(
    module: nn.Module,
    input_size: int,
    hidden_size: int,
    gates: int,
    bias: bool = True,
    projection: int = 0,
) -> None:
    """Give `module` the parameters of a torch kernel, drawn as torch draws them.

    Without a bias two of them are None, as in torch; with a projection there is one more.
    """
    bound = hidden_size**-0.5
    shapes: dict[str, tuple[int, ...]] = {
        "weight_ih": (gates * hidden_size, input_size),
        "weight_hh": (gates * hidden_size, projection or hidden_size),
        "bias_ih": (gates * hidden_size,),
        "bias_hh": (gates * hidden_size,),
    }
    if projection:
        shapes["weight_hr"] = (projection, hidden_size)
    for name, shape in shapes.items():
        if name.startswith("bias") and not bias:
            module.register_parameter(name, None)
            continue
        parameter = nn.Parameter(torch.empty(shape))
        nn.init.uniform_(parameter, -bound, bound)
        module.register_parameter(name, parameter)


def summed_bias(first: Tensor | None, second: Tensor | None) -> tuple[Tensor, ...]:
    """Return the sum of two biases, or nothing where there are none."""
    return () if first is None or second is None else (first + second,)


def kernel_scan(
    kernel: Callable[..., Any],
    x: Tensor,
    state: State,
    weights: Sequence[Tensor | None],
    lengths: Tensor | None,
) -> tuple[Tensor, State]:
    """Run one layer in one direction.

    `weights` is (input, recurrent, both biases or None), and the projection where there is one.
    """
    biased = weights[2] is not None
    tensors = [weight for weight in weights if weight is not None]
    hx = [part.unsqueeze(0) for part in state]
    first = hx if len(hx) > 1 else hx[0]
    if lengths is None:
        output, *final = kernel(x, first, tensors, biased, 1, 0.0, False, False, False)
        return output, tuple(part.squeeze(0) for part in final)
    packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
    order, back = packed.sorted_indices, packed.unsorted_indices
    assert order is not None and back is not None  # enforce_sorted=False always sorts
    hx = [part.index_select(1, order) for part in hx]
    first = hx if len(hx) > 1 else hx[0]
    data, *final = kernel(
        packed.data, packed.batch_sizes, first, tensors, biased, 1, 0.0, False, False
    )
    output, _ = pad_packed_sequence(
        PackedSequence(data, packed.batch_sizes, order, back), total_length=x.shape[0]
    )
    return output, tuple(part.squeeze(0).index_select(0, back) for part in final)
