"""`accelerate`: the same object, parameters and answers as torch's, by other ways."""

import copy
import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, jvp, vmap
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import remove_parametrizations
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils.flop_counter import FlopCounterMode

import undamped
from undamped._base.errors import OptionError
from undamped.nn import acceleration
from undamped.nn.acceleration import Accelerated, Sizes, kernel_is_faster, length_groups

KINDS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")  # which torch's own modules warn of, too
    for text in (
        "LSTM with projections is not supported",
        ".*torch.jit.* is deprecated",
        "The tensor attributes self._flat_weights",
        "Converting a tensor to a Python boolean",
    )
]
SEEN = []


def note_call(*arguments):
    SEEN.append(1)


def pair(kind, *sizes, **options):
    """Return a module of torch and an accelerated copy of it."""
    module = KINDS[kind](*sizes, **options)
    fast = copy.deepcopy(module)
    undamped.accelerate(fast)
    return module, fast


def results(module, inputs, hx=None, seed=0):
    """Return outputs, final states and the gradients of all parameters, states and inputs."""
    torch.manual_seed(seed)
    module.zero_grad()
    packed = isinstance(inputs, PackedSequence)
    leaf = (inputs.data if packed else inputs).detach().requires_grad_()
    states = [] if hx is None else [part.detach().requires_grad_() for part in hx]
    initial = None if hx is None else tuple(states) if len(states) > 1 else states[0]
    output, final = module(inputs._replace(data=leaf) if packed else leaf, initial)
    assert isinstance(output, PackedSequence) == packed
    finals = final if isinstance(final, tuple) else (final,)
    values = [output.data if packed else output, *finals]
    sum((value.sin() * torch.arange(1, 1 + value.shape[-1])).sum() for value in values).backward()
    return values + [tensor.grad for tensor in (leaf, *states, *module.parameters())]


def assert_same(module, fast, inputs, hx=None):
    """Compare outputs and states to 1e-6, gradients to the rounding of long sums."""
    count = 3 if isinstance(module, nn.LSTM) else 2
    pairs = zip(results(module, inputs, hx), results(fast, inputs, hx), strict=True)
    for i, (expected, result) in enumerate(pairs):
        assert expected.shape == result.shape and expected.dtype == result.dtype
        tolerance = 1e-11 if expected.dtype == torch.float64 else 1e-6 if i < count else 3e-5
        assert (expected - result).abs().max() <= tolerance * (1 + expected.abs().max())


@st.composite
def cases(draw):
    kind = draw(st.sampled_from(sorted(KINDS)))
    layers = draw(st.integers(1, 3))
    options = {
        "num_layers": layers,
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
        "dropout": draw(st.sampled_from([0.0, 0.3])) if layers > 1 else 0.0,
        "dtype": draw(st.sampled_from([torch.float32, torch.float64])),
    }
    if kind == "LSTM" and draw(st.booleans()):
        options["proj_size"] = 2
    if kind == "RNN":
        options["nonlinearity"] = draw(st.sampled_from(["tanh", "relu"]))
    steps = draw(st.sampled_from([1, 2, 9, 66]))
    lengths = draw(st.lists(st.integers(1, steps), min_size=1, max_size=6))
    form = draw(st.sampled_from(["padded", "packed", "sorted", "unbatched"]))
    return kind, options, steps, lengths, form, draw(st.booleans()), draw(st.booleans())


@settings(deadline=None, max_examples=60)
@given(cases())
def test_answers_and_gradients_are_those_of_torch(case):
    kind, options, steps, lengths, form, with_state, training = case
    torch.manual_seed(len(lengths) + steps)
    module, fast = pair(kind, 3, 4, **options)
    module.train(training), fast.train(training)
    dtype, batch = options["dtype"], len(lengths)
    x = torch.randn(steps, batch, 3, dtype=dtype)
    inputs = x.transpose(0, 1) if options["batch_first"] else x
    if form in ("packed", "sorted"):
        lengths = torch.tensor(sorted(lengths, reverse=True) if form == "sorted" else lengths)
        inputs = pack_padded_sequence(
            inputs, lengths, options["batch_first"], enforce_sorted=form == "sorted"
        )
    elif form == "unbatched":
        inputs = x[:, 0]
    hx = None
    if with_state:
        cells = options["num_layers"] * (2 if options["bidirectional"] else 1)
        widths = [options.get("proj_size", 4)] + ([4] if kind == "LSTM" else [])
        shape = (cells,) if form == "unbatched" else (cells, batch)
        hx = [torch.randn(*shape, width, dtype=dtype) for width in widths]
    assert_same(module, fast, inputs, hx)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [Sizes(70, 3, 16, True), Sizes(70, 2, 8, False)])
def test_the_kernels_run_and_agree(kind, sizes, monkeypatch):
    module, fast = pair(kind, 5, sizes.hidden, num_layers=2, dropout=0.2)
    x, ways = torch.randn(sizes.steps, sizes.batch, 5), []
    way = Accelerated.way
    monkeypatch.setattr(Accelerated, "way", lambda *given: ways.append(way(*given)) or ways[-1])
    assert_same(module, fast, x)
    with torch.no_grad():
        module.eval(), fast.eval()
        assert torch.allclose(module(x)[0], fast(x)[0], atol=1e-6)
    assert ways == (["torch"] * 2 if kind == "LSTM" else ["scan"] * 2)


def test_the_rule_of_dispatch_is_a_function_of_sizes():
    assert kernel_is_faster("gru", torch.float32, Sizes(100, 8, 64, True))
    assert not kernel_is_faster("gru", torch.float32, Sizes(100, 128, 512, True))
    assert not kernel_is_faster("rnn", torch.float32, Sizes(16, 8, 64, True))
    assert not kernel_is_faster("gru", torch.float32, Sizes(16, 8, 64, False))
    assert not kernel_is_faster("lstm", torch.float64, Sizes(100, 128, 64, False))


@given(st.lists(st.integers(1, 400), min_size=1, max_size=80))
def test_groups_cover_all_sequences_and_limit_padding(lengths):
    lengths = sorted(lengths, reverse=True)
    groups = list(length_groups(lengths))
    assert [i for low, high in groups for i in range(low, high)] == list(range(len(lengths)))
    padded = sum(lengths[low] * (high - low) for low, high in groups)
    # Beyond twice the true lengths there is only padding that another pass would not spare.
    assert padded <= 2 * sum(lengths) + acceleration.GROUP_ROWS * max(lengths) * len(groups)


def test_a_batch_of_very_unequal_lengths_is_split(monkeypatch):
    module, fast = pair("GRU", 3, 4, bidirectional=True, num_layers=2, dropout=0.5)
    lengths = torch.tensor([64, *([3] * 30), 1])
    calls, run = [], Accelerated._run
    monkeypatch.setattr(Accelerated, "_run", lambda *given: calls.append(0) or run(*given))
    x = torch.randn(64, 32, 3)
    assert_same(module, fast, pack_padded_sequence(x, lengths, enforce_sorted=False))
    assert len(calls) == 2


def test_gates_with_large_weights_keep_the_memory_at_padding():
    module, fast = pair("LSTM", 3, 4)
    with torch.no_grad():
        for tensor in (*module.parameters(), *fast.parameters()):
            tensor.mul_(300)
    x = torch.randn(20, 3, 3)
    packed = pack_padded_sequence(x, torch.tensor([20, 5, 1]))
    for expected, result in zip(module(packed)[1], fast(packed)[1], strict=True):
        assert torch.allclose(expected, result, atol=1e-5)


def test_nan_in_the_padding_is_not_read():
    module, fast = pair("LSTM", 3, 4)
    x = torch.randn(9, 2, 3)
    x[5:, 1] = torch.nan
    packed = pack_padded_sequence(x, torch.tensor([9, 5]))
    assert torch.isfinite(pad_packed_sequence(fast(packed)[0])[0]).all()
    assert_same(module, fast, packed)


class Tagger(nn.Module):
    """Layers in lists, shared, and inside each other."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 3)
        self.layers = nn.ModuleList([nn.GRU(3, 3), nn.LSTM(3, 3, bidirectional=True)])
        self.again = self.layers[0]
        self.cell = nn.GRUCell(6, 6)

    def forward(self, x):
        h = self.again(self.layers[0](self.embedding(x))[0])[0]
        return self.cell(self.layers[1](h)[0][-1])


def test_accelerate_and_restore_change_classes_only():
    torch.manual_seed(0)
    model = Tagger()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    state, pointers = model.state_dict(), [p.data_ptr() for p in model.parameters()]
    x = torch.randint(7, (70, 4))
    expected = model(x)
    SEEN.clear()
    model.layers[1].register_forward_hook(note_call)
    report = undamped.accelerate(model)
    assert report.replaced == {"layers.0": "GRU", "layers.1": "LSTM"}
    assert report.left == {"cell": "torch computes a single step in one call already"}
    assert str(report).startswith("layers.0: accelerated GRU\n")
    assert undamped.accelerate(model).replaced == report.replaced
    assert isinstance(model.again, nn.GRU) and model.again is model.layers[0]
    assert "AcceleratedLSTM" in repr(model)
    assert torch.allclose(model(x), expected, atol=1e-6) and SEEN == [1]
    assert list(model.state_dict()) == list(state)
    assert [p.data_ptr() for p in model.parameters()] == pointers
    model(x).sum().backward()
    optimiser.step()
    clones = copy.deepcopy(model), pickle.loads(pickle.dumps(model.layers[1]))
    assert torch.equal(clones[0](x), model(x)) and isinstance(clones[1], Accelerated)
    changed = model(x)
    undamped.restore(model)
    assert type(model.again) is nn.GRU and type(model.layers[1]) is nn.LSTM
    assert torch.allclose(model(x), changed, atol=1e-6)


def test_modules_that_are_left_are_named():
    class Own(nn.LSTM):
        pass

    scripted = torch.jit.script(nn.GRU(2, 3))
    report = undamped.accelerate(nn.ModuleList([Own(2, 3), scripted, nn.Linear(2, 3)]))
    assert not report.replaced and list(report.left) == ["0", "1"]
    assert "subclass" in report.left["0"] and "jit" in report.left["1"]
    empty = undamped.accelerate(nn.Linear(2, 2))
    assert str(empty) == "The model contains no recurrent layer of torch."
    for function in (undamped.accelerate, undamped.restore):
        with pytest.raises(OptionError, match=r"nn\.Module, got Tensor"):
            function(torch.ones(2))


@pytest.mark.parametrize("kind", KINDS)
def test_parametrised_weights_are_computed_as_often_as_by_torch(kind):
    module, fast = pair(kind, 3, 4)
    for each in (module, fast):
        torch.manual_seed(0)
        parametrizations.weight_norm(each, "weight_ih_l0")
        parametrizations.spectral_norm(each, "weight_hh_l0")
    later = copy.deepcopy(module)
    assert undamped.accelerate(later).replaced == undamped.accelerate(fast).replaced == {"": kind}
    assert isinstance(later, Accelerated) and not isinstance(module, Accelerated)
    x = torch.randn(70, 3, 3)
    assert_same(module, fast, x)  # a pass in training changes the estimate of the norm
    later.load_state_dict(module.state_dict())
    assert_same(module, later, pack_padded_sequence(x, torch.tensor([70, 9, 2])))
    undamped.restore(later)
    later.load_state_dict(module.state_dict())
    assert_same(module.eval(), later.eval(), x)
    remove_parametrizations(remove_parametrizations(later, "weight_ih_l0"), "weight_hh_l0")
    assert type(later) is KINDS[kind] and torch.allclose(later(x)[0], module(x)[0], atol=1e-6)


def test_outputs_can_be_changed_in_place():
    module, fast = pair("GRU", 2, 3)
    x = torch.randn(70, 2, 2)
    for each in (module, fast):
        each(x)[0].mul_(2).sum().backward()
    assert torch.allclose(module.weight_hh_l0.grad, fast.weight_hh_l0.grad, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 66])
def test_transforms_and_second_derivatives(kind, steps):
    torch.manual_seed(1)
    module, fast = pair(kind, 2, 3, num_layers=2, dtype=torch.float64)
    parameters = dict(fast.named_parameters())
    x, v = torch.randn(2, 4, steps, 2, dtype=torch.float64)

    def loss(parameters, x):
        return functional_call(fast, parameters, (x,))[0].square().sum()

    gradients = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i, sample in enumerate(x):
        module.zero_grad()
        module(sample)[0].square().sum().backward()
        for name, parameter in module.named_parameters():
            assert torch.allclose(gradients[name][i], parameter.grad)
    _, tangent = jvp(lambda z: fast(z)[0], (x[0],), (v[0],))
    difference = (module(x[0] + 1e-6 * v[0])[0] - module(x[0] - 1e-6 * v[0])[0]) / 2e-6
    assert torch.allclose(tangent, difference, atol=1e-7)
    leaf = x.transpose(0, 1).requires_grad_()
    seconds = []
    for each in (module, fast):
        (first,) = torch.autograd.grad(each(leaf)[0].sin().sum(), leaf, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), [leaf, *each.parameters()]))
    for expected, result in zip(*seconds, strict=True):
        assert torch.allclose(expected, result)


def test_second_derivatives_of_packed_sequences():
    module, fast = pair("GRU", 2, 3, dtype=torch.float64)
    x = torch.randn(9, 3, 2, dtype=torch.float64, requires_grad=True)
    seconds = []
    for each in (module, fast):
        packed = pack_padded_sequence(x, torch.tensor([9, 4, 1]))
        (first,) = torch.autograd.grad(each(packed)[0].data.sin().sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), x)[0])
    assert torch.allclose(*seconds)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_compilers_autocast_and_tracing_see_torch(kind):
    module, fast = pair(kind, 2, 3)
    x = torch.randn(70, 2, 2)
    expected = module(x)[0]
    assert torch.allclose(torch.compile(fast, backend="eager")(x)[0], expected, atol=1e-6)
    exported = torch.export.export(fast, (x,)).module()
    assert torch.allclose(exported(x)[0], expected, atol=1e-6)
    assert torch.allclose(torch.jit.trace(fast, (x,))(x)[0], expected, atol=1e-6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fast(x)[0].dtype == module(x)[0].dtype
    half = copy.deepcopy(fast).bfloat16()
    assert half(x.bfloat16())[0].dtype == torch.bfloat16


class Outputs(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


def test_graphs_scripts_and_modes_see_the_layer_of_torch():
    module, fast = pair("GRU", 2, 3)
    x = torch.randn(70, 2, 2)
    graph = torch.fx.symbolic_trace(Outputs(fast))
    assert "layer" in [node.target for node in graph.graph.nodes if node.op == "call_module"]
    flops = []
    for each in (module, fast):
        with FlopCounterMode(display=False) as counter:
            each(x)
        flops.append(counter.get_total_flops())
    assert flops[0] == flops[1] > 0
    for model in (graph, torch.jit.script(Outputs(fast))):
        assert torch.allclose(model(x), module(x)[0], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_refusals_are_those_of_torch(kind):
    module, fast = pair(kind, 2, 3)
    x = torch.randn(70, 4, 2)
    packed = pack_padded_sequence(x, torch.tensor([70, 9, 2, 1]))
    wrong = [torch.zeros(1, 5, 3)] * (2 if kind == "LSTM" else 1)
    wrong = tuple(wrong) if kind == "LSTM" else wrong[0]
    for arguments in ((x[..., :1],), (x, wrong), (packed, wrong), (x[0, 0],), (x.double(),)):
        errors = []
        for each in (module, fast):
            with pytest.raises(Exception) as error:
                each(*arguments)
            errors.append((error.type, str(error.value)))
        assert errors[0] == errors[1]


def test_weight_norm_and_frozen_weights():
    torch.manual_seed(0)
    module, fast = pair("GRU", 2, 3)
    with pytest.warns(FutureWarning):
        for each in (module, fast):
            nn.utils.weight_norm(each, "weight_hh_l0")
            each.bias_ih_l0.requires_grad_(False)
    x = torch.randn(70, 3, 2)
    for each in (module, fast):
        each(x)[0].sum().backward()
    assert torch.allclose(module.weight_hh_l0_g.grad, fast.weight_hh_l0_g.grad, atol=1e-5)
    assert fast.bias_ih_l0.grad is None


def train_in_a_group(rank, folder):
    """Train one step in each of two processes, and write the weights."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2
    )
    torch.manual_seed(0)
    model = nn.GRU(3, 4)
    undamped.accelerate(model)
    parallel = nn.parallel.DistributedDataParallel(model)
    optimiser = torch.optim.SGD(parallel.parameters(), lr=0.1)
    x = torch.randn(70, 4, 3)[:, 2 * rank : 2 * rank + 2]
    packed = pack_padded_sequence(x, torch.tensor([70, 30]))
    (parallel(x)[0].square().mean() + parallel(packed)[0].data.square().mean()).backward()
    optimiser.step()
    torch.save(model.state_dict(), Path(folder) / f"weights{rank}")
    torch.distributed.barrier()  # a process that has ended would break the other's connection
    torch.distributed.destroy_process_group()


@pytest.mark.process
def test_processes_train_together(tmp_path):
    torch.multiprocessing.spawn(train_in_a_group, (str(tmp_path),), nprocs=2)
    weights = [torch.load(tmp_path / f"weights{rank}") for rank in range(2)]
    torch.manual_seed(0)
    model = nn.GRU(3, 4)
    x = torch.randn(70, 4, 3)
    losses = []
    for part in (x[:, :2], x[:, 2:]):
        packed = pack_padded_sequence(part, torch.tensor([70, 30]))
        losses.append(model(part)[0].square().mean() + model(packed)[0].data.square().mean())
    (sum(losses) / 2).backward()
    for name, parameter in model.named_parameters():
        expected = parameter - 0.1 * parameter.grad
        assert torch.equal(weights[0][name], weights[1][name])
        assert torch.allclose(weights[0][name], expected, atol=1e-6)
