"""Private names of torch: each does what we take it to do, in the version that is installed."""

import copy
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.utils import parametrize

from undamped._base import torch_internals as internals

SOURCE = Path(__file__).parents[2] / "src" / "undamped"


def test_a_functional_transform_is_seen():
    seen = []

    def look(x):
        seen.append(internals.inside_functional_transform())
        return x.sum()

    torch.func.grad(look)(torch.ones(2))
    torch.func.vmap(look)(torch.ones(2, 2))
    look(torch.ones(2))
    assert seen == [True, True, False]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_open_level_of_forward_mode_is_seen():
    assert not internals.forward_mode_open()
    with forward_ad.dual_level():
        assert internals.forward_mode_open()
    assert not internals.forward_mode_open()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tangents_are_kept_inside_an_autograd_function():
    result = []

    class Inside(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with internals.with_forward_mode(), forward_ad.dual_level():
                dual = forward_ad.make_dual(x.detach(), torch.ones_like(x))
                result.append(forward_ad.unpack_dual(dual.square()).tangent)
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    Inside.apply(torch.tensor([3.0], requires_grad=True))
    assert torch.equal(result[0], torch.tensor([6.0]))


def test_a_mode_that_observes_operations_is_seen():
    class Mode(internals.TorchDispatchMode):
        pass

    assert not internals.is_observed()
    with Mode():
        assert internals.is_observed()


def test_the_version_of_a_tensor_counts_writing():
    x = torch.zeros(2)
    before = internals.version_of(x)
    x + 1
    assert internals.version_of(x) == before
    x.add_(1)
    assert internals.version_of(x) > before


def test_later_nodes_have_larger_numbers():
    x = torch.ones(1, requires_grad=True)
    first = x * 2
    second = first * 2
    assert internals.sequence_number(first.grad_fn) < internals.sequence_number(second.grad_fn)


def test_a_product_with_the_transposed_derivative():
    x, unused = torch.arange(3.0, requires_grad=True), torch.ones(2, requires_grad=True)
    (x * 2).sum().backward()
    result = internals.vector_jacobian_product(x**2, (x, unused), torch.tensor([1.0, 2.0, 3.0]))
    assert torch.equal(result[0], torch.tensor([0.0, 4.0, 12.0])) and result[1] is None
    assert torch.equal(x.grad, torch.full((3,), 2.0)) and unused.grad is None
    value, one = torch.sin(x), torch.ones(3)
    for keep_graph in (True, False):
        internals.vector_jacobian_product(value, (x,), one, keep_graph=keep_graph)
    with pytest.raises(RuntimeError, match="second time"):
        internals.vector_jacobian_product(value, (x,), one)


def test_flattened_tensors_lie_in_a_row():
    x = torch.arange(6.0).view(2, 3)
    assert internals.flatten_tensors([x.t(), x[0]]).tolist() == [0, 3, 1, 4, 2, 5, 0, 1, 2]


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x


def test_a_modules_own_parameters():
    net = nn.Sequential(nn.Linear(2, 2))
    assert internals.own_parameters(net) == {}
    assert list(internals.own_parameters(net[0])) == ["weight", "bias"]


def test_parametrizations_are_found_without_a_walk():
    layer = nn.Linear(2, 2)
    assert internals.parametrizations_of(layer) is None
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert internals.parametrizations_of(layer) is layer.parametrizations


def test_a_module_made_of_saved_contents_is_parametrized_again():
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Doubled())
    bare = nn.Linear.__new__(nn.Linear)
    vars(bare).update(copy.deepcopy(vars(layer)))
    internals.parametrize_again(bare)
    assert parametrize.is_parametrized(bare, "weight")
    assert torch.equal(bare.weight, layer.weight)
    assert isinstance(bare, nn.Linear)


def test_a_dispatch_mode_sees_every_operation():
    names = []

    class Watch(internals.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    with Watch():
        torch.ones(2).exp()
    assert names == ["aten.ones.default", "aten.exp.default"]


def test_torchs_own_scan_adds_up():
    x = torch.arange(5.0)
    (result,) = internals.associative_scan(lambda i, j: (i[0] + j[0],), (x,))
    assert torch.equal(result, x.cumsum(0))


def test_leaves_of_nested_things():
    assert internals.tree_leaves({"a": [1, (2, 3)], "b": 4}) == [1, 2, 3, 4]


def test_nobody_else_uses_private_names_of_torch():
    private = re.compile(
        r"torch\._(?!_)|torch\.\w+(\.\w+)*\._[a-z]|forward_ad\._|parametrize\._|\b(?!self)\w+\._version\b"
        r"|_sequence_nr|\._parameters\b|\._buffers\b|\._modules\b"
    )
    result = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        if path.name != "torch_internals.py"
        for line in path.read_text().splitlines()
        if private.search(line)
    ]
    assert not result


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated")
def test_tracing_is_seen():
    seen = []

    def look(x):
        seen.append(internals.is_tracing())
        return x + 1

    torch.jit.trace(look, torch.ones(2), check_trace=False)
    look(torch.ones(2))
    assert seen == [True, False]


def test_flat_weights_are_those_of_a_functional_call():
    module, seen = nn.GRU(2, 3), []
    module.register_forward_pre_hook(lambda m, _: seen.extend(internals.flat_weights(m)))
    others = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    torch.func.functional_call(module, others, (torch.ones(4, 1, 2),))
    assert [tensor.data_ptr() for tensor in seen] == [p.data_ptr() for p in others.values()]
    assert internals.flat_weights(module)[0] is module.weight_ih_l0
