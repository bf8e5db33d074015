"""The coupled scan: values and gradients of every kernel are those of the plain loop."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import undamped
from undamped._base.registry import models
from undamped.kernels import kernel_limits
from undamped.nn.bases.cell import reference_scan
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent

COUPLED = [
    name
    for name in models
    if isinstance(models[name], type)
    and issubclass(models[name], Recurrent)
    and issubclass(models[name].cell_class, CoupledCell)
]
OTHERS = [
    ("exprnn", {"nonlinearity": kind}) for kind in ("tanh", "relu", "leaky-relu", "identity")
] + [
    ("eurnn", {"capacity": 1, "layer_cost": 0}),
    ("eurnn", {"capacity": 1, "layer_cost": 0, "unitary": False}),
    ("eurnn", {"style": "fft", "capacity": 1, "layer_cost": 0}),
    ("urnn", {"dense_up_to": 0}),
    ("rnn-orth", {"nonlinearity": "modrelu"}),
    ("ornn", {"nonlinearity": "modrelu", "reflections": 2}),
]
KERNELS = [(name, {}) for name in COUPLED] + OTHERS

# Numbers are written here that no optimiser of torch would leave.
pytestmark = pytest.mark.filterwarnings("ignore:W of full-capacity-urnn is not unitary")


def cell_of(name, options, hidden, dtype=torch.float64):
    torch.manual_seed(5)
    # A threshold of the class is no option: 0 means by structure, not by the matrix.
    thresholds = {key: options[key] for key in options if key in ("dense_up_to", "layer_cost")}
    options = {key: options[key] for key in options if key not in thresholds}
    cell = undamped.build(name, input_size=3, hidden_size=hidden, **options).cell(0).to(dtype)
    for key, value in thresholds.items():
        setattr(cell, key, value)
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    if hasattr(cell, "make_unitary"):
        cell.make_unitary()  # as an optimiser's step would
    return cell


def state_of(cell, batch, dtype=torch.float64):
    # Between 0 and 1, since some parts are means of squares; a count is the same in a row.
    state = [torch.rand(batch, size, dtype=dtype) for size in cell.state_sizes]
    for i, name in enumerate(cell.state_names):
        if name.endswith("count"):
            state[i] = torch.full_like(state[i], 3.0)
    return tuple(part.requires_grad_(True) for part in state)


def everything(scan, cell, x, state, lengths):
    """Outputs, final states, and the gradients of all there is."""
    output, final = scan(x, state, lengths)
    generator = torch.Generator().manual_seed(9)
    loss = sum(
        (part * torch.randn(part.shape, generator=generator).to(part)).sum()
        for part in (output, *final)
    )
    inputs = [x, *state, *cell.parameters()]
    gradients = torch.autograd.grad(loss, inputs, allow_unused=True)
    zeros = [
        torch.zeros_like(p) if g is None else g for p, g in zip(inputs, gradients, strict=True)
    ]
    return output, *final, *zeros


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), KERNELS)
@settings(deadline=None, max_examples=4)
@given(
    data=st.data(),
    time=st.integers(1, 6),
    batch=st.integers(1, 4),
    hidden=st.sampled_from([4, 16]),
    ragged=st.booleans(),
)
def test_kernels_agree_with_the_loop(name, options, data, time, batch, hidden, ragged):
    cell = cell_of(name, options, hidden)
    x = torch.randn(time, batch, 3, dtype=torch.float64).requires_grad_(True)
    state = state_of(cell, batch)
    lengths = None
    if ragged:
        drawn = data.draw(st.lists(st.integers(1, time), min_size=batch, max_size=batch))
        lengths = torch.tensor(drawn)
    fast = everything(cell.scan, cell, x, state, lengths)
    plain = everything(lambda *a: reference_scan(cell, *a), cell, x, state, lengths)
    for one, two in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["exprnn", "cornn", "urnn", "goru", "lstm", "gru", "sru"])
def test_kernels_agree_in_single_precision(name):
    cell = cell_of(name, {}, 16, torch.float32)
    x = torch.randn(20, 4, 3, requires_grad=True)
    state = state_of(cell, 4, torch.float32)
    fast = everything(cell.scan, cell, x, state, None)
    plain = everything(lambda *a: reference_scan(cell, *a), cell, x, state, None)
    for one, two in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


def test_two_passes_do_not_disturb_each_other():
    cell = cell_of("cornn", {}, 4)
    x = torch.randn(2, 5, 3, 3, dtype=torch.float64)
    state = tuple(part.detach() for part in state_of(cell, 3))
    first, _ = cell.scan(x[0], state)
    second, _ = cell.scan(x[1], state)
    together = torch.autograd.grad(first.sum() + second.sum(), cell.weight_hh)[0]
    apart = [torch.autograd.grad(cell.scan(part, state)[0].sum(), cell.weight_hh)[0] for part in x]
    torch.testing.assert_close(together, apart[0] + apart[1])


def test_no_gradient_wanted_gives_the_same_values():
    cell = cell_of("goru", {}, 4)
    x, state = (
        torch.randn(5, 3, 3, dtype=torch.float64),
        cell.initial_state(3, torch.zeros(1).double()),
    )
    with torch.no_grad():
        quiet, _ = cell.scan(x, state)
    torch.testing.assert_close(quiet, cell.scan(x, state)[0])


def test_half_precision_takes_the_plain_loop():
    cell = cell_of("antisymmetric", {}, 4, torch.bfloat16)
    x = torch.randn(5, 3, 3, dtype=torch.bfloat16)
    output, _ = cell.scan(x, cell.initial_state(3, x))
    assert output.dtype == torch.bfloat16 and output.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exprnn", "momentum-lstm", "incremental", "sru"])
@pytest.mark.parametrize("ragged", [False, True])
def test_shares_of_the_batch_give_what_the_whole_gives(name, ragged):
    cell = cell_of(name, {}, 4)
    x = torch.randn(40, 17, 3, dtype=torch.float64).requires_grad_(True)
    state = state_of(cell, 17)
    lengths = torch.arange(17) * 2 + 5 if ragged else None
    full = everything(cell.scan, cell, x, state, lengths)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with kernel_limits(batch_grain=1):
            shares = everything(cell.scan, cell, x, state, lengths)
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(shares, full, strict=True):
        torch.testing.assert_close(one, two)
