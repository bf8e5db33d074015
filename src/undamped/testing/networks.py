"""Checks of recurrent networks: padding, packing, streaming, state, gradients, promises."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from undamped.nn.bases.cell import Cell
from undamped.nn.recurrent import Recurrent
from undamped.testing.comparison import assert_promises, assert_same, run_checks, tensors_of

Build = Callable[..., Recurrent]
"""Returns a network, given options of its constructor: `build(num_layers=2)`."""

INPUT_SIZE, HIDDEN_SIZE = 3, 4


def check_cell(cell_class: type[Cell], **options: Any) -> None:
    """Check a cell in networks of several layers and directions.

    Args:
        cell_class: The class of the cell.
        options: Its options beside the sizes.
    """
    network = type(f"Stacked{cell_class.__name__}", (Recurrent,), {"cell_class": cell_class})
    check_network(network, **options)


def check_network(network_class: type[Recurrent], **options: Any) -> None:
    """Check a recurrent network: all of `NETWORK_CHECKS`, one after the other.

    Args:
        network_class: The class of the network.
        options: Options beside the sizes, for example those of its cell.
    """
    build = partial(small_network, network_class, **options)
    run_checks(network_class.__name__, NETWORK_CHECKS, build)


def small_network(network_class: Callable[..., Recurrent], **options: Any) -> Recurrent:
    """Return a network of two layers with four units, in float64 and with fixed weights.

    Args:
        network_class: The class, or any function that builds a network.
        options: Options of the constructor, which override these sizes.
    """
    torch.manual_seed(7)
    sizes = {"input_size": INPUT_SIZE, "hidden_size": HIDDEN_SIZE, "num_layers": 2}
    return network_class(**{**sizes, **options}).double().eval()


def sequences(time: int = 6, batch: int = 3, size: int = INPUT_SIZE, seed: int = 0) -> Tensor:
    """Return random sequences (time, batch, size) in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(time, batch, size, generator=generator, dtype=torch.float64)


def _gradients_of(network: Recurrent) -> dict[str, Tensor]:
    return {n: p.grad for n, p in network.named_parameters() if p.grad is not None}


def _same_width(part: Tensor, shorter: Tensor) -> Tensor:
    """Return a state that grows up to the width of a shorter one; the rest must be empty."""
    if part.shape == shorter.shape:
        return part
    assert not part[..., shorter.shape[-1] :].any(), "a finished sequence changes its state"
    return part[..., : shorter.shape[-1]]


def check_padding(
    build: Build,
    *,
    lengths: Sequence[int] = (2, 6, 4),
    time: int = 6,
    padding: float = math.nan,
    bidirectional: bool = False,
) -> None:
    """Check that outputs, states and gradients are those of each sequence without padding.

    Args:
        build: Builds the network.
        lengths: The lengths of the sequences.
        time: The length with padding.
        padding: The value after the end of each sequence.
        bidirectional: Whether the network has two directions.
    """
    network = build(bidirectional=bidirectional)
    x = sequences(time, len(lengths))
    padded = x.clone()
    for i, length in enumerate(lengths):
        padded[length:, i] = padding
    padded.requires_grad_(True)
    counts = torch.tensor(lengths)
    output, state = network(padded, None, counts)
    last, _ = network.last(padded.detach(), None, counts)
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    loss = (output * weight).sum() + sum(part.square().sum() for part in tensors_of(state))
    loss.backward()
    assert padded.grad is not None
    single = copy.deepcopy(network)
    single.zero_grad()
    for i, length in enumerate(lengths):
        row = x[:length, i : i + 1].clone().requires_grad_(True)
        y, s = single(row)
        loss = (y * weight[:length, i : i + 1]).sum()
        (loss + sum(part.square().sum() for part in tensors_of(s))).backward()
        assert_same(output[:length, i : i + 1], y, "outputs with padding")
        assert not output[length:, i].any(), "outputs after the end of a sequence are not zero"
        parts = zip(tensors_of(state), tensors_of(s), strict=True)
        assert_same(
            tuple(_same_width(p[:, i : i + 1], q) for p, q in parts), s, "states with padding"
        )
        assert_same(last[i : i + 1], single.last(row.detach())[0], "the last outputs with padding")
        assert_same(padded.grad[:length, i : i + 1], row.grad, "input gradients", 1e-9)
        assert not padded.grad[length:, i].any(), "padding has a gradient"
    gradients = _gradients_of(network)
    for name, gradient in _gradients_of(single).items():
        assert_same(gradients[name], gradient, f"the gradient of {name} with padding", 1e-9)


def check_packing(build: Build) -> None:
    """Check that a `PackedSequence` gives the results of padded sequences with lengths."""
    network = build(bidirectional=True)
    x, lengths = sequences(), torch.tensor([2, 6, 4])
    output, state = network(x, None, lengths)
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    packed_output, packed_state = network(packed)
    order, expected_order = packed_output.sorted_indices, packed.sorted_indices
    assert_same(order, expected_order, "the order of packed sequences")
    unpacked, counts = pad_packed_sequence(packed_output)
    assert torch.equal(counts, lengths), f"packed lengths are {counts.tolist()}"
    assert_same(unpacked, output, "packed outputs")
    assert_same(packed_state, state, "states of packed sequences")
    for batch_first in (False, True):
        network = build(bidirectional=True, batch_first=batch_first)
        last, final = network.last(packed)
        padded = x.transpose(0, 1) if batch_first else x
        expected, expected_final = network.last(padded, None, lengths)
        assert_same(last, expected, "the last outputs of packed sequences")
        assert_same(final, expected_final, "states of packed sequences")


def check_streaming(build: Build) -> None:
    """Check that `step` and `stream` give the outputs of the whole sequence."""
    network = build()
    x = sequences(9)
    output, final = network(x)
    state, outputs = None, []
    for x_t in x:
        y, state = network.step(x_t, state)
        outputs.append(y)
    assert_same(torch.stack(outputs), output, "outputs of `step`")
    assert_same(state, final, "the state after `step`")
    stream = network.stream(batch=x.shape[1])
    streamed = torch.stack([stream.push(x_t) for x_t in x])
    assert_same(streamed, output.detach(), "outputs of `stream`")


def check_chunks(build: Build) -> None:
    """Check that a sequence may be split anywhere if the state is passed on."""
    network = build()
    x = sequences(10)
    output, final = network(x)
    for size in (1, 4, 7):
        state, outputs = None, []
        for chunk in x.split(size):
            y, state = network(chunk, state)
            outputs.append(y)
        assert_same(torch.cat(outputs), output, f"outputs in chunks of {size}")
        assert_same(state, final, f"the state after chunks of {size}")


def check_restart(build: Build) -> None:
    """Check that `restart` resets the state of some samples and of no others."""
    network = build(num_layers=1)
    with torch.no_grad():
        _, state = network(sequences())
        x = sequences(seed=1)
        output, _ = network(x, network.restart(state, torch.tensor([False, True, False])))
        assert_same(output[:, 1:2], network(x[:, 1:2])[0], "a sample that restarts")
        assert_same(output[:, 0], network(x, state)[0][:, 0], "a sample that does not restart")
        shapes = [part.shape for part in tensors_of(network.restart(state, torch.ones(3)))]
        expected = [part.shape for part in tensors_of(network.initial_state(3))]
        assert shapes == expected, f"the state has shapes {shapes} after a restart of all samples"


def check_last(build: Build) -> None:
    """Check that `last` gives the end of the outputs, with the same gradients."""
    network = build()
    x = sequences()
    output, state = network(x)
    last, last_state = network.last(x)
    assert_same(last, output[-1], "the last output")
    assert_same(last_state, state, "the state of `last`")
    gradients = [
        torch.autograd.grad(end.square().sum(), list(network.parameters()), allow_unused=True)
        for end in (last, output[-1])
    ]
    for actual, expected in zip(*gradients, strict=True):
        assert (actual is None) == (expected is None), "a parameter has no gradient by `last`"
        if actual is not None:
            assert_same(actual, expected, "gradients of `last`")


def check_layout(build: Build) -> None:
    """Check batch order, `batch_first`, inputs without a batch, strides and empty batches."""
    network, batch_first = build(), build(batch_first=True)
    batch_first.load_state_dict(network.state_dict())
    x = sequences()
    output, state = network(x)
    order = torch.tensor([2, 0, 1])
    assert_same(network(x[:, order])[0], output[:, order], "outputs in another batch order")
    transposed, transposed_state = batch_first(x.transpose(0, 1))
    assert_same(transposed.transpose(0, 1), output, "outputs with batch_first")
    assert_same(transposed_state, state, "the state with batch_first")
    single, single_state = network(x[:, 0])
    assert_same(single, output[:, 0], "outputs without a batch")
    expected = tuple(part[:, 0] for part in tensors_of(state))
    assert_same(single_state, expected, "the state without a batch")
    assert_same(network.step(x[0, 0])[0], output[0, 0], "a step without a batch")
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert_same(network(strided)[0], output, "outputs of a strided input")
    empty, empty_state = network(x[:, :0])
    assert empty.shape == (len(x), 0, network.output_size), "the outputs of an empty batch"
    assert all(part.shape[1] == 0 for part in tensors_of(empty_state)), "an empty batch has a state"


def check_aliasing(build: Build) -> None:
    """Check that writing to an output does not change the state."""
    network, x = build(), sequences()
    with torch.no_grad():
        for call in (network, network.last, lambda x: network.step(x[0])):
            output, state = call(x)
            before = [part.clone() for part in tensors_of(state)]
            output.fill_(7.0)
            assert_same(state, before, "the state after its output was overwritten", 0)


def check_input_gradients(build: Build) -> None:
    """Check the gradients of inputs and states by finite differences."""
    network = build(num_layers=1, hidden_size=3, input_size=2)
    x = sequences(4, 2, 2).requires_grad_(True)
    state = tuple(
        torch.rand_like(part).add_(0.1).requires_grad_(True)
        for part in tensors_of(network.initial_state(2))
    )

    def run(x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        output, final = network(x, state[0] if len(state) == 1 else state)
        return output, *tensors_of(final)

    _gradcheck(run, (x, *state), "gradients of inputs and states")


def check_parameter_gradients(build: Build) -> None:
    """Check the gradients of parameters by finite differences."""
    network = build(num_layers=2, hidden_size=3, input_size=2)
    x = sequences(4, 2, 2)
    names = [name for name, p in network.named_parameters() if p.requires_grad]
    # A little off the initial values, where networks with relu are exactly at the kink.
    values = tuple(
        (p.detach() + 0.1 * torch.randn_like(p)).requires_grad_(True)
        for p in (dict(network.named_parameters())[name] for name in names)
    )

    def run(*values: Tensor) -> Tensor:
        return torch.func.functional_call(network, dict(zip(names, values, strict=True)), (x,))[0]

    _gradcheck(run, values, f"gradients of {', '.join(names)}")


def _gradcheck(run: Callable[..., Any], values: tuple[Tensor, ...], what: str) -> None:
    try:
        torch.autograd.gradcheck(run, values)
    except RuntimeError as error:  # GradcheckError
        raise AssertionError(f"{what} differ from finite differences: {error}") from error


def check_state_dict(build: Build) -> None:
    """Check that seeds and a `state_dict` reproduce a network."""
    network, twin, x = build(), build(), sequences()
    output = network(x)[0]
    assert torch.equal(output, twin(x)[0]), "two networks of the same seed differ"
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    twin.load_state_dict(network.state_dict())
    assert torch.equal(output, twin(x)[0]), "a loaded state_dict gives different outputs"


def check_single_precision(build: Build, *, tolerance: float = 1e-4) -> None:
    """Check that float32 gives the outputs of float64 up to rounding.

    Args:
        build: Builds the network.
        tolerance: The absolute and relative tolerance.
    """
    network = build()
    output = copy.deepcopy(network).float()(sequences().float())[0]
    assert output.dtype == torch.float32, f"outputs of float32 are {output.dtype}"
    assert_same(output.double(), network(sequences())[0], "outputs in float32", tolerance)


def check_promises(build: Build) -> None:
    """Check every promise that the cell declares by measuring it."""
    assert_promises(build(num_layers=1, hidden_size=6).cell(0))


NETWORK_CHECKS: dict[str, Callable[..., None]] = {
    "padding": check_padding,
    "packing": check_packing,
    "streaming": check_streaming,
    "chunks": check_chunks,
    "restart": check_restart,
    "last": check_last,
    "layout": check_layout,
    "aliasing": check_aliasing,
    "input gradients": check_input_gradients,
    "parameter gradients": check_parameter_gradients,
    "state_dict": check_state_dict,
    "single precision": check_single_precision,
    "promises": check_promises,
}
"""Every check of a recurrent network; each takes a function that builds it."""
