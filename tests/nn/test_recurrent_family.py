"""The recurrent family against the papers' equations, and what is particular to single cells."""

import contextlib
import copy
import pickle
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from family_oracles import ORACLES
from member_groups import CELLS
from tiers import few_fast

import undamped
from undamped._base.errors import OptionError
from undamped._base.options import REQUIRED, convert, options_of
from undamped._base.registry import models
from undamped.nn import Cell, Recurrent

# Numbers are written here that no optimiser of torch would leave.
pytestmark = pytest.mark.filterwarnings("ignore:W of full-capacity-urnn is not unitary")


def perturbed(name, hidden=5, **options):
    """A network moved off its start, so that nothing is zero or one by accident."""
    torch.manual_seed(1)
    net = undamped.build(name, input_size=3, hidden_size=hidden, **options).double().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return net


def inputs(time=12, batch=2, size=3):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(time, batch, size, generator=generator, dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("hidden", [3, 5, 8])  # 3 is also the size of the input
def test_cells_are_the_papers_equations(name, hidden):
    net = perturbed(name, hidden)
    x = inputs()
    expected = ORACLES[name](x.numpy(), net.cell(0))
    np.testing.assert_allclose(net(x)[0].detach().numpy(), expected, rtol=1e-9, atol=1e-10)


# Networks whose equation stands against another program or in another file of tests.
ELSEWHERE = {
    "rnn": "test_basic_cells.py",
    "irnn": "test_basic_cells.py",
    "rnn-orth": "test_basic_cells.py",
    "lstm": "test_basic_cells.py",
    "gru": "test_basic_cells.py",
    "unicornn": "test_oscillator_network.py",
    "residual-unicornn": "test_oscillator_network.py",
    **dict.fromkeys(("memrnn", "memlstm", "relrnn", "rellstm", "sab"), "test_memory_networks.py"),
}


def test_every_cell_of_the_family_has_an_oracle():
    """A cell without an oracle fails here: write its equation into family_oracles.py."""
    family = {
        name
        for name in models
        if isinstance(models[name], type)
        and issubclass(models[name], Recurrent)
        and models[name].cell_class.__module__.startswith("undamped.nn")
    }
    assert family - set(ELSEWHERE) == set(ORACLES)
    for name, file in ELSEWHERE.items():
        text = (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert f'"{name}"' in text or f"undamped.{models[name].__name__}(" in text, (name, file)


# Where the nearest other value would show nothing in two updates of a small network.
TELLING = {
    "initialisation": "random",
    "reflections": 2,
    "negative": 1,
    "restart": 2,
    "skip": 1,
    "capacity": 3,
    "project_every": 1,
    "steps": 3,
    "largest": 0.95,
}


def another_value(option):
    """Return a value other than the default that the option takes."""
    default = option.default
    choices = [choice for choice in get_args(option.annotation) if isinstance(choice, str)]
    near = [2 * default, default / 2] if type(default) in (int, float) and default else [1, 0.5]
    for value in (TELLING.get(option.name), not default, *choices, *near):
        if (
            value is None
            or value == default
            or isinstance(value, bool) != isinstance(default, bool)
        ):
            continue
        with contextlib.suppress(OptionError):
            return convert(option.annotation, value, option.name)
    raise AssertionError(f"{option.name}: give TELLING a value other than {default!r}")


PAIRS = [
    (name, option)
    for name in sorted(ORACLES)
    for option in options_of(models[name])
    if option
    not in ("input_size", "hidden_size", "num_layers", "batch_first", "dropout", "bidirectional")
]


def behaviour(net, x):
    """All that a network shows: outputs, penalties, decays, and the same after some updates."""
    seen = []
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in (1, 2):
        output = net(x)[0]
        penalty = undamped.nn.penalty(net)
        seen += [output.detach().flatten(), penalty.detach().reshape(1)]
        decays = [m.decayed_parameters() for m in net.modules() if hasattr(m, "decayed_parameters")]
        seen += [torch.tensor(list(d.values()), dtype=torch.float64) for d in decays]
        optimiser.zero_grad()
        (output.square().mean() + penalty).backward()
        optimiser.step()
    seen += [p.detach().flatten() for p in net.parameters()]
    seen += [b.detach().double().flatten() for b in net.buffers()]
    everything = torch.cat(seen)
    assert everything.isfinite().all()
    return everything


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option"), PAIRS)
def test_every_option_changes_something(name, option):
    declared = options_of(models[name])[option]
    assert declared.default is not REQUIRED
    value = another_value(declared)
    assert value != declared.default
    seen = []
    for options in ({}, {option: value}):
        torch.manual_seed(2)
        choice = {"project_every": {"rebase_every": 1}}.get(option, {}) if name == "exprnn" else {}
        net = undamped.build(
            name, input_size=3, hidden_size=8, num_layers=5, **{**choice, **options}
        )
        seen.append(behaviour(net.double(), inputs(4)))
    assert seen[0].shape != seen[1].shape or not torch.equal(seen[0], seen[1])


def test_h_detach_changes_gradients_and_never_values():
    torch.manual_seed(0)
    net = undamped.nn.LSTM(3, 4, h_detach=1.0).double()
    plain = undamped.nn.LSTM(3, 4).double()
    plain.load_state_dict(net.state_dict())
    x = inputs()
    outputs = [n(x)[0] for n in (net, plain)]
    torch.testing.assert_close(outputs[0], outputs[1])
    gradients = []
    for n, output in zip((net, plain), outputs, strict=True):
        output[-1].sum().backward()
        gradients.append(n.cell(0).weight_hh.grad)
    assert not torch.allclose(gradients[0], gradients[1])
    # With h detached at every step only c carries gradients: c' = f c + …, so ∂c'/∂h is cut.
    assert gradients[0].abs().sum() > 0
    net.eval().zero_grad()
    net(x)[0][-1].sum().backward()
    torch.testing.assert_close(net.cell(0).weight_hh.grad, gradients[1])


def test_h_detach_draws_once_for_the_whole_batch_and_repeats_with_a_seed():
    net = undamped.nn.LSTM(3, 4, h_detach=0.5).double()
    x, seen = inputs(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        net.zero_grad()
        net(x)[0].sum().backward()
        seen.append(net.cell(0).weight_hh.grad.clone())
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])


def test_the_penalty_pulls_any_dense_cell_towards_orthogonal():
    torch.manual_seed(0)
    for name in ("rnn", "lstm", "cornn", "momentum-rnn"):
        net = undamped.build(name, input_size=2, hidden_size=6, orthogonality_penalty=1.0)
        optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
        for _ in range(300):
            optimiser.zero_grad()
            net.penalty().backward()
            optimiser.step()
        for matrix in net.cell(0).recurrent_matrices():
            assert torch.linalg.matrix_norm(matrix.T @ matrix - torch.eye(6)) < 0.01
    with pytest.raises(LookupError, match="orthogonality_penalty"):
        undamped.build("exprnn", input_size=2, hidden_size=6, orthogonality_penalty=1.0)


def test_constants_are_computed_once_for_a_stream(monkeypatch):
    net = perturbed("exprnn")
    calls = []
    constants = type(net.cell(0)).constants

    def counted(self):
        calls.append(1)
        return constants(self)

    # The class of a parametrised module is its own.
    monkeypatch.setattr(type(net.cell(0)), "constants", counted)
    x = inputs()
    with torch.no_grad():
        state = None
        for x_t in x:
            _, state = net.step(x_t, state)
        assert len(calls) == 1
        net(x)
        assert len(calls) == 1
        # In place, by loading, and by an optimiser: each is noticed. Equal values are no change.
        next(iter(net.cell(0).constrained_parameters())).add_(0.1)
        net.step(x[0])
        assert len(calls) == 2
        net.load_state_dict(copy.deepcopy(net.state_dict()))
        net.step(x[0])
        assert len(calls) == 2
        net.load_state_dict({name: 1.1 * value for name, value in net.state_dict().items()})
        net.step(x[0])
        assert len(calls) == 3
    net(x)[0].sum().backward()
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    seen = len(calls)
    with torch.no_grad():
        streamed = net.step(x[0])[0]
        assert len(calls) == seen + 1
        torch.testing.assert_close(streamed, net.train()(x[:1])[0][0])
        net.eval().float().step(x[0].float())
    assert calls


def test_remembered_constants_never_leak_into_training():
    net = perturbed("scornn")
    with torch.no_grad():
        net.step(inputs()[0])
    net(inputs())[0].sum().backward()
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize("name", ["exprnn", "nnrnn", "goru", "antisymmetric", "eurnn"])
def test_networks_survive_pickling_and_copying(name):
    net, x = perturbed(name), inputs()
    for other in (pickle.loads(pickle.dumps(net)), copy.deepcopy(net)):
        assert torch.equal(other(x)[0], net(x)[0])
        assert type(other.cell(0)).__name__ == type(net.cell(0)).__name__
        optimiser = torch.optim.SGD(other.parameters(), lr=0.1)
        (other(x)[0].square().sum() + undamped.nn.penalty(other)).backward()
        optimiser.step()
        assert not torch.equal(other(x)[0], net(x)[0])


def test_full_capacity_stays_unitary_and_moves_with_the_optimiser():
    torch.manual_seed(0)
    net = undamped.nn.FullCapacityURNN(2, 6, project_every=50)
    cell = net.cell(0)
    optimiser = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    x, start = torch.randn(10, 4, 2), cell.recurrent_matrix().detach().clone()
    losses = []
    for _ in range(120):
        optimiser.zero_grad()
        loss = (net(x)[0][-1] - 1).square().mean()
        losses.append(loss.item())
        loss.backward()
        optimiser.step()
    W = cell.recurrent_matrix().detach()
    assert torch.linalg.matrix_norm(W.mH @ W - torch.eye(6)) < 1e-5
    assert (W - start).abs().max() > 0.01
    assert losses[-1] < losses[0]
    other = undamped.nn.FullCapacityURNN(2, 6)
    other.load_state_dict(net.state_dict())
    assert int(other.cell(0).updates) == 120
    torch.optim.SGD(other.parameters(), lr=0.1).step()  # without gradients nothing moves
    assert torch.equal(other.cell(0).recurrent_matrix(), W)


def test_rebasing_keeps_the_matrix_and_clears_the_exponent():
    net = perturbed("exprnn", rebase_every=3, project_every=2)
    cell = net.cell(0)
    before = cell.recurrent_matrix().detach().clone()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(1, 7):
        optimiser.step()  # without gradients: W rests, and the updates are counted all the same
        assert bool(cell.free_parameters()[0].any()) == (step < 3)
        torch.testing.assert_close(cell.recurrent_matrix(), before)


def test_indrnn_reads_the_layers_it_says():
    dense = undamped.nn.DenseIndRNN(3, 4, num_layers=3)
    assert [c.input_size for c in dense.cells] == [3, 7, 11]
    residual = perturbed("residual-indrnn", hidden=4, num_layers=4)
    x = inputs()
    outputs, layers = [], []
    for layer in range(4):
        source = x if layer == 0 else sum(layers[i] for i in range(layer - 1, -1, -2))
        cell = copy.deepcopy(residual.cell(layer))
        cell.terms = 1
        layers.append(cell.scan(source, cell.initial_state(2, x))[0])
        outputs.append(layers[-1])
    torch.testing.assert_close(residual(x)[0], outputs[-1])


@pytest.mark.parametrize("normalise", [False, True])
def test_residual_blocks_are_those_of_the_paper(normalise):
    """A first layer, blocks r + F₂(F₁(r)), a last layer; each F reads r normalised, or as it is."""
    net = perturbed("residual-indrnn", num_layers=6, form="blocks", normalise=normalise)
    x = inputs()

    def layer(at, u):
        if normalise and at:
            u = u - u.mean(-1, keepdims=True)
            u = u / np.sqrt((u**2).mean(-1, keepdims=True) + 1e-5)
        return ORACLES["indrnn"](u, net.cell(at))

    r = layer(0, x.numpy())
    for block in (1, 3):
        r = r + layer(block + 1, layer(block, r))
    np.testing.assert_allclose(net(x)[0].detach(), layer(5, r), atol=1e-12)


@pytest.mark.parametrize("name", ["indrnn", "residual-indrnn", "dense-indrnn"])
def test_normalised_networks_see_neither_padding_nor_future(name):
    net, x = perturbed(name, num_layers=3, normalise=True), inputs()
    output = net(x)[0]
    ragged = x.clone()
    ragged[3:, 0] = torch.nan
    short = net(ragged, None, torch.tensor([3, len(x)]))[0]
    torch.testing.assert_close(short[:3, 0], output[:3, 0])
    torch.testing.assert_close(short[:, 1], output[:, 1])
    with torch.no_grad():
        stream = net.stream(batch=2)
        torch.testing.assert_close(torch.stack([stream.push(x_t) for x_t in x]), output.detach())
    assert not net.cell(0).normalise and net.cell(1).normalise


@pytest.mark.parametrize("size", [64, 128])
@torch.no_grad()
def test_signals_keep_their_size_through_the_layers_of_an_sru(size):
    """The authors' program has 0.98 to 0.92 here, and 0.63 to 0.03 without the scale."""
    deviations = []
    for rescale in (True, False):
        torch.manual_seed(0)
        net = undamped.nn.SRU(size, 128, num_layers=8, rescale=rescale)
        x, seen = torch.randn(150, 16, size), []
        for cell in net.cells:
            x, _ = cell.scan(x, cell.initial_state(16, x))
            seen.append(x[50:].std().item())
        deviations.append(seen)
    assert all(0.88 < deviation < 1.02 for deviation in deviations[0])
    assert deviations[1][0] < 0.7 and deviations[1][-1] < 0.05


def test_networks_start_as_their_authors_have_them():
    torch.manual_seed(0)
    eurnn, goru = undamped.nn.EURNN(3, 64).cell(0), undamped.nn.GORU(3, 64).cell(0)
    for matrix in (eurnn.input_weight, goru.input_weight, goru.gate_weight):
        assert 0.0095 < matrix.abs().max() <= 0.01
    assert goru.bias.eq(0.011).all() and goru.gate_bias[:64].eq(2).all()
    assert (undamped.nn.EURNN(3, 64, unitary=False).cell(0).bias - 0.01).abs().max() <= 0.01
    assert not undamped.nn.scoRNN(3, 64).cell(0).bias.any()
    glorot = (2 / (48 + 64)) ** 0.5
    assert abs(undamped.nn.nnRNN(48, 64).cell(0).input_weight.std() / glorot - 1) < 0.1
    assert undamped.nn.expRNN.declared_options()["project_every"].default == 100


def test_srus_saved_before_there_was_a_scale_answer_as_they_did():
    net = perturbed("sru", hidden=3)
    saved = {name: t for name, t in net.state_dict().items() if "passing_scale" not in name}
    old = perturbed("sru", hidden=3)
    old.load_state_dict(saved)
    assert [cell.passing_scale.item() for cell in old.cells] == [1.0]
    plain = perturbed("sru", hidden=3, rescale=False)
    plain.load_state_dict(net.state_dict() | {"cells.0.passing_scale": torch.tensor(1.0)})
    x = inputs()
    assert torch.equal(old(x)[0], plain(x)[0]) and not torch.equal(old(x)[0], net(x)[0])


@pytest.mark.parametrize("name", few_fast(sorted(ORACLES)))
def test_one_unit_is_enough(name):
    net = undamped.build(name, input_size=1, hidden_size=1)
    output, _ = net(torch.randn(4, 2, 1))
    output.sum().backward()
    assert output.isfinite().all()


def test_complex_cells_show_both_parts():
    for name in ("urnn", "full-capacity-urnn", "eurnn"):
        net = undamped.build(name, input_size=3, hidden_size=4)
        assert net.output_size == 8
        assert net(torch.randn(5, 2, 3))[0].shape == (5, 2, 8)
        assert all(not p.is_complex() for p in net.parameters())
    assert undamped.nn.EURNN(3, 4, unitary=False).output_size == 4


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"capacity": 1}, {"style": "fft"}, {"unitary": False}])
def test_eurnn_by_layers_equals_eurnn_by_its_matrix(options):
    net = perturbed("eurnn", hidden=32, **options)
    cell = net.cell(0)
    assert cell._forms_matrix
    cell.layer_cost = 0
    assert not cell._forms_matrix
    W, x = cell.recurrent_matrix(), inputs(6)
    output = net(x)[0]
    if options.get("unitary", True):
        W = torch.cat([torch.cat([W.real, -W.imag], 1), torch.cat([W.imag, W.real], 1)])
    state = cell.initial_state(2, x)[0]
    for x_t, expected in zip(x, output, strict=True):
        total = cell.project(x_t) + state @ W.T
        if options.get("unitary", True):
            z = torch.complex(*total.chunk(2, dim=-1))
            z = z * torch.relu(z.abs() + 0.01 + cell.bias) / (z.abs() + 0.01)
            state = torch.cat([z.real, z.imag], dim=-1)
        else:
            state = total.sign() * torch.relu(total.abs() + cell.bias)
        torch.testing.assert_close(state, expected)


@pytest.mark.slow
def test_urnn_by_transforms_equals_urnn_by_its_matrix():
    net, x = perturbed("urnn", hidden=8), inputs(6).requires_grad_(True)
    results = []
    for limit in (256, 4):
        net.cell(0).dense_up_to = limit
        output = net(x)[0]
        gradients = torch.autograd.grad(output.sin().sum(), [x, *net.parameters()])
        results.append((output, *gradients))
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two)


def operations(net, steps):
    """Return how many operations of torch a pass over some steps takes."""
    with torch.no_grad(), torch.autograd.profiler.profile() as profile:
        net(torch.randn(steps, 2, 2))
    return len(profile.function_events)


STRUCTURED = {"ornn"}
"""Reflections are applied by torch at every step; what is elementwise is compiled."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_every_cell_has_a_kernel(name):
    """The number of operations grows with time in plain loops alone."""
    net = undamped.build(name, input_size=2, hidden_size=4)
    operations(net, 4)  # compiles
    compiled = operations(net, 40) - operations(net, 4)
    with undamped.plain_loops():
        plain = operations(net, 40) - operations(net, 4)
    assert plain >= 36
    assert compiled < 36 or name in STRUCTURED


def test_the_contract_of_a_cell_is_small():
    names = {*vars(Cell), *Cell.__annotations__, "input_size", "hidden_size"}
    assert len([name for name in names if not name.startswith("_")]) <= 20


def test_structured_operators_have_no_free_matrices():
    assert Cell.recurrent_matrices(undamped.nn.expRNN(2, 3).cell(0)) == ()


def test_wrong_sizes_are_refused():
    with pytest.raises(OptionError, match="negative must be at most hidden_size=4"):
        undamped.nn.scoRNN(2, 4, negative=5)
    with pytest.raises(OptionError, match="reflections must be at most 4"):
        undamped.nn.oRNN(2, 4, reflections=5)
    with pytest.raises(OptionError, match="power of two"):
        undamped.nn.EURNN(2, 6, style="fft")
    with pytest.raises(OptionError, match="size 4 have at most 2"):
        undamped.nn.EURNN(2, 4, style="fft", capacity=3)
