"""Networks under torch.compile, torch.export and on the meta device: one operator a layer."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys

import pytest
import torch

import undamped
from undamped._base.errors import OptionError
from undamped._base.registry import models
from undamped.kernels.coupled import operator as coupled_operator
from undamped.kernels.memory import operator as memory_operator
from undamped.nn import Recurrent
from undamped.nn.bases.coupled import CoupledCell

NETWORKS = [
    name
    for name in models
    if isinstance(models[name], type)
    and issubclass(models[name], Recurrent)
    and name != "sab"  # whose memory grows when a clock says so
]
COUPLED = ["lstm", "sru", "cornn", "adam-lstm", "nesterov-rnn", "incremental", "urnn", "fastgrnn"]
"""One of each: with a memory, without a product, with constants, with filters, …"""
KINDS = [*COUPLED, "memlstm", "relrnn"]
LINEAR = ["linoss", "lru", "mingru"]
"""One of each scan that is linear in the state."""
WAYS = [(name, number % 2 == 1) for number, name in enumerate(KINDS)]
"""Every other one with lengths: each way is traced and compiled on its own, which takes seconds."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


def build(name, **options):
    torch.manual_seed(0)
    return undamped.build(name, input_size=3, hidden_size=4, **options)


def structured(name):
    """A network whose product is made by structure, not by its matrix."""
    net = build(name)
    for key in ("dense_up_to", "layer_cost"):
        if hasattr(net.cell(0), key):
            setattr(net.cell(0), key, 0)
    return net


def parts(state):
    return state if isinstance(state, tuple) else (state,)


def gradients(call, net, *arguments):
    net.zero_grad()
    output, _ = call(*arguments)
    output.square().sum().backward()
    return [output.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ragged"), [*WAYS, *((name, True) for name in LINEAR)])
def test_forward_and_backward_compile_without_a_break(name, ragged):
    net = structured(name)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True, dynamic=True)
    for steps, batch in ((7, 2), (11, 3)):
        x = torch.randn(steps, batch, 3)
        lengths = torch.arange(batch) + steps - batch + 1 if ragged else None
        result = gradients(compiled, net, x, None, lengths)
        expected = gradients(net, net, x, None, lengths)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.process
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor_takes_an_lstm():
    net, x = build("lstm"), torch.randn(7, 2, 3)
    torch._dynamo.reset()
    compiled = torch.compile(net, fullgraph=True)
    torch.testing.assert_close(gradients(compiled, net, x), gradients(net, net, x))


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_exports_as_one_operator_a_layer_for_any_length(name):
    net = build(name, num_layers=2).eval()
    time = torch.export.Dim("time", min=2)
    program = torch.export.export(net, (torch.randn(7, 2, 3),), dynamic_shapes=({0: time},))
    calls = [str(node.target) for node in program.graph.nodes if "undamped" in str(node.target)]
    assert len(calls) == net.num_layers
    x = torch.randn(19, 2, 3)
    torch.testing.assert_close(program.module()(x)[0], net(x)[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_shapes_without_numbers(name):
    real = build(name, num_layers=2)
    with torch.device("meta"):
        net = build(name, num_layers=2)
    assert all(part.is_meta for part in (*net.parameters(), *net.buffers()))
    shapes = [(key, part.shape) for key, part in real.state_dict().items()]
    assert [(key, part.shape) for key, part in net.state_dict().items()] == shapes
    x, lengths = torch.randn(7, 2, 3), torch.tensor([7, 3])
    for meta in (net, copy.deepcopy(real).to("meta")):
        output, state = meta(x.to("meta"), None, lengths.to("meta"))
        expected, wanted_state = real(x, None, lengths)
        assert output.is_meta and output.shape == expected.shape
        assert [part.shape for part in parts(state)] == [p.shape for p in parts(wanted_state)]
        output.sum().backward()
        assert meta.last(x.to("meta"))[0].shape == real.last(x)[0].shape


@pytest.mark.slow
@pytest.mark.parametrize(("name", "ragged"), WAYS)
def test_the_operator_is_registered_properly(name, ragged, monkeypatch):
    net = structured(name)
    coupled = isinstance(net.cell(0), CoupledCell)
    home, key = (coupled_operator, "coupled") if coupled else (memory_operator, "memory")
    calls = []
    run = getattr(home, f"_{key}_scan")
    monkeypatch.setattr(
        home, f"_{key}_scan", lambda *arguments: calls.append(arguments) or run(*arguments)
    )
    monkeypatch.setattr(f"undamped.kernels.{key}.scan.runs_as_operator", lambda _: True)
    x = torch.randn(5, 2, 3, requires_grad=True)
    net(x, None, torch.tensor([5, 2]) if ragged else None)
    ((_, *arguments),) = calls  # the first names the implementation
    plain = [
        [part.detach().requires_grad_(part.requires_grad) for part in group]
        if isinstance(group, list) and group and isinstance(group[0], torch.Tensor)
        else group
        for group in arguments
    ]
    torch.library.opcheck(getattr(torch.ops.undamped, f"{key}_scan").default, tuple(plain))


@pytest.mark.slow
def test_a_network_whose_memory_depends_on_numbers_says_so():
    net, x = build("sab", keep_every=3).eval(), torch.randn(7, 2, 3)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(net, backend="eager")(x)[0], net(x)[0])
    with pytest.raises(OptionError, match="SAB cannot run without values"):
        torch.export.export(net, (x,))
    with pytest.raises(OptionError, match="SAB cannot run without values"):
        copy.deepcopy(net).to("meta")(x.to("meta"))


@pytest.mark.process
def test_eager_calls_do_not_import_the_compiler():
    code = (
        "import sys, torch, undamped\n"
        "for name in ('indrnn', 'unicornn', 'lstm'):\n"
        "    net = undamped.build(name, input_size=3, hidden_size=4)\n"
        "    output, _ = net(torch.randn(5, 2, 3))\n"
        "    output.sum().backward()\n"
        "    cell = net.cell(0)\n"
        "    x = torch.randn(5, 2, 3)\n"
        "    cell.scan(x, cell.initial_state(2, x))[0].sum().backward()\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
