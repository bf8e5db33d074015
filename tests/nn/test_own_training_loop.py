"""Promises hold in a loop that knows nothing of this library, with any optimiser."""

import copy
import pickle
import re
import warnings
from pathlib import Path

import pytest
import torch

import undamped
from undamped._base.registry import models
from undamped.analysis import measure
from undamped.nn import Cell, Recurrent

PAGE = Path(__file__).parents[2] / "docs" / "own-training-loop.md"
PROMISING = [
    name
    for name in models
    if isinstance(models[name], type)
    and issubclass(models[name], Recurrent)
    and models[name].cell_class.promises
]
OPTIMISERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.02),
    "fused": lambda p: torch.optim.Adam(p, lr=0.02, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.02, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.005),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "lbfgs": lambda p: torch.optim.LBFGS(p, line_search_fn="strong_wolfe", max_iter=2),
}


def train(net, optimiser, steps=60):
    x = torch.randn(8, 4, 3, generator=torch.Generator().manual_seed(0))

    def closure():
        optimiser.zero_grad()
        loss = (net(x)[0][-1] - 0.5).square().mean() + undamped.nn.penalty(net)
        loss.backward()
        return loss

    for _ in range(steps):
        optimiser.step(closure)


def all_kept(cell):
    """Whether every promise holds but those about the first moment."""
    actual = [one for one in measure(cell) if one.promise.kind.value != "starts-isometric"]
    return all(result.holds for result in actual)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROMISING)
def test_promises_survive_a_plain_loop(name):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=3, hidden_size=8)
    train(net, OPTIMISERS["adam"](net.parameters()))
    assert all_kept(net.cell(0))


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_a_unitary_matrix_stays_one_with_any_optimiser(optimiser):
    torch.manual_seed(0)
    net = undamped.nn.FullCapacityURNN(3, 8, num_layers=2)
    start = net.cell(0).recurrent_matrix().detach().clone()
    steps = 5 if optimiser == "lbfgs" else 100
    train(net, OPTIMISERS[optimiser](net.parameters()), steps)
    for cell in net.cells:
        values = torch.linalg.svdvals(cell.recurrent_matrix().detach())
        assert (values - 1).abs().max() < 1e-4
    assert (net.cell(0).recurrent_matrix() - start).abs().max() > 1e-3
    assert int(net.cell(0).updates) == steps


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("name", ["indrnn", "residual-indrnn", "dense-indrnn"])
def test_independent_weights_stay_below_their_limit(name, optimiser):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=3, hidden_size=8, num_layers=3, steps=20, gain=1.5)
    train(net, OPTIMISERS[optimiser](net.parameters()), 30)
    for cell in net.cells:
        assert cell.weight.abs().max() <= cell.limit


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full-capacity-urnn", "indrnn", "exprnn", "nnrnn"])
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "to", "load", "replace"])
def test_copies_and_moved_networks_keep_their_promise(name, way):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=3, hidden_size=8)
    if way == "deepcopy":
        net = copy.deepcopy(net)
    elif way == "pickle":
        net = pickle.loads(pickle.dumps(net))
    elif way == "to":
        net = net.double().float()
    elif way == "load":
        net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True)
    else:
        net.cells[0] = copy.deepcopy(net.cells[0])
    train(net, torch.optim.Adam(net.parameters(), lr=0.05))
    assert all_kept(net.cell(0))


def test_a_matrix_that_was_set_is_where_the_next_step_starts():
    """What was written between two updates is no step of the optimiser."""
    torch.manual_seed(0)
    net, other = undamped.nn.FullCapacityURNN(3, 8), undamped.nn.FullCapacityURNN(3, 8)
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-6)
    train(net, optimiser, 1)
    net.cell(0).unitary.data.copy_(other.cell(0).unitary)
    train(net, optimiser, 1)
    reached = net.cell(0).recurrent_matrix()
    torch.testing.assert_close(reached, other.cell(0).recurrent_matrix(), atol=1e-4, rtol=0)


def test_two_optimisers_count_their_own_updates():
    net = undamped.nn.expRNN(3, 8, rebase_every=2)
    cell = net.cell(0)
    free = torch.optim.SGD(cell.free_parameters(), lr=0.1)
    rest = torch.optim.SGD([cell.input_weight, cell.bias], lr=0.1)
    stranger = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    for optimiser in (free, rest, stranger, rest):
        optimiser.step()
    assert int(cell.updates) == 1


def test_rebasing_goes_on_where_a_file_left_it():
    torch.manual_seed(0)
    full = undamped.nn.expRNN(3, 8, rebase_every=4)
    torch.manual_seed(0)
    first = undamped.nn.expRNN(3, 8, rebase_every=4)
    train(full, torch.optim.SGD(full.parameters(), lr=0.1), 9)
    train(first, torch.optim.SGD(first.parameters(), lr=0.1), 3)
    second = undamped.nn.expRNN(3, 8, rebase_every=4)
    second.load_state_dict(first.state_dict())
    train(second, torch.optim.SGD(second.parameters(), lr=0.1), 6)
    for one, two in zip(full.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(one, two)
    old = {name: t for name, t in first.state_dict().items() if "updates" not in name}
    second.load_state_dict(old)
    assert int(second.cell(0).updates) == 0


class LookAhead(torch.optim.Optimizer):
    """An optimiser around another: every second step ends halfway to where the last one did."""

    def __init__(self, parameters, inner):
        super().__init__(parameters, {})
        self.inner, self.count = inner(self.param_groups), 0
        self.slow = [p.detach().clone() for p in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure):
        loss = self.inner.step(closure)
        self.count += 1
        if self.count % 2 == 0:
            for slow, fast in zip(self.slow, self.param_groups[0]["params"], strict=True):
                slow.lerp_(fast, 0.5)
                fast.copy_(slow)
        return loss


def test_an_optimiser_around_another_counts_once_and_keeps_the_promise():
    torch.manual_seed(0)
    for net in (undamped.nn.FullCapacityURNN(3, 8), undamped.nn.expRNN(3, 8, rebase_every=100)):
        optimiser = LookAhead(list(net.parameters()), lambda p: torch.optim.Adam(p, lr=0.05))
        train(net, optimiser, 21)
        assert int(net.cell(0).updates) == 21 and not net.cell(0).updating
        assert all_kept(net.cell(0))
    net = undamped.nn.nnRNN(3, 8, scale_penalty=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the penalty was taken, if before the inner step
        train(net, LookAhead(list(net.parameters()), lambda p: torch.optim.SGD(p, lr=0.1)), 3)


def test_a_step_that_failed_does_not_count():
    net = undamped.nn.FullCapacityURNN(3, 8)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(ZeroDivisionError):
        optimiser.step(lambda: 1 / 0)
    train(net, optimiser, 2)
    assert int(net.cell(0).updates) == 2 and not net.cell(0).updating
    assert all_kept(net.cell(0))


def test_an_average_of_unitary_matrices_is_noticed():
    """Nothing trains it, so no pass with gradients would tell."""
    torch.manual_seed(0)
    net = undamped.nn.FullCapacityURNN(3, 8)
    averaged = torch.optim.swa_utils.AveragedModel(net)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.2)
    for _ in range(10):
        train(net, optimiser, 1)
        averaged.update_parameters(net)
    averaged.eval()
    with torch.no_grad(), pytest.warns(UserWarning, match="weight averaging"):
        averaged(torch.randn(5, 2, 3))
    averaged.module.cell(0).make_unitary()
    assert all_kept(averaged.module.cell(0))


@pytest.mark.parametrize("name", ["full-capacity-urnn", "indrnn"])
def test_updates_by_other_means_are_noticed(name):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=3, hidden_size=8)
    net(torch.randn(5, 2, 3))
    cell = net.cell(0)
    for parameter in net.parameters():
        parameter.data += 0.5
    with pytest.warns(UserWarning, match="other than an optimiser") as seen:
        net(torch.randn(5, 2, 3))
        net(torch.randn(5, 2, 3))
    assert len(seen) == 1
    remedy = re.search(r"`cell\.(\w+)\(\)`", str(seen[0].message))
    getattr(cell, remedy[1])()
    assert all(result.holds for result in measure(cell))


@pytest.mark.parametrize("name, option", [("nnrnn", "scale_penalty"), ("lstm", None)])
def test_a_forgotten_penalty_is_noticed_once(name, option):
    choice = {option: 0.1} if option else {"orthogonality_penalty": 0.1}
    net = undamped.build(name, input_size=3, hidden_size=8, **choice)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.01)
    train(net, optimiser, 2)
    with pytest.warns(UserWarning, match="penalty") as seen:
        for _ in range(3):
            net(torch.randn(5, 2, 3))[0].sum().backward()
            optimiser.step()
    assert len(seen) == 1
    other = undamped.build(name, input_size=3, hidden_size=8, **dict.fromkeys(choice, 0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.optim.SGD(other.parameters(), lr=0.01).step()


def test_the_penalty_of_a_model_is_that_of_its_parts():
    net = undamped.nn.LSTM(3, 8, orthogonality_penalty=0.3)
    model = torch.nn.ModuleList([net, undamped.nn.nnRNN(3, 8), torch.nn.Linear(3, 3)])
    with torch.no_grad():
        model[1].cell(0).free_parameters()[1].mul_(1.5)
    expected = net.penalty() + model[1].cell(0).penalty()
    assert expected > 0
    torch.testing.assert_close(undamped.nn.penalty(model), expected)
    assert undamped.nn.penalty(torch.nn.Linear(2, 2)) == 0
    assert undamped.nn.penalty(torch.nn.Identity()) == 0


def test_an_update_to_infinity_is_left_to_be_seen():
    net = undamped.nn.FullCapacityURNN(3, 8, project_every=1)
    net(torch.randn(5, 2, 3))[0].sum().backward()
    net.cell(0).unitary.grad.fill_(float("nan"))
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    assert net.cell(0).unitary.isnan().all()


@pytest.mark.slow
def test_dead_networks_are_not_kept():
    import gc
    import weakref

    net = undamped.nn.IndRNN(3, 8)
    gone = weakref.ref(net.cell(0))
    del net
    gc.collect()
    assert gone() is None
    torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1).step()


def test_every_cell_with_something_to_do_after_an_update_is_told():
    for name in models:
        member = models[name]
        if isinstance(member, type) and issubclass(member, Recurrent):
            assert issubclass(member.cell_class, Cell)
            assert not hasattr(member.cell_class, "after_optimizer_step"), name


def test_the_page_runs():
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(code) == 4
    torch.manual_seed(0)
    names = {}
    for block in code:
        exec(compile(block, str(PAGE), "exec"), names)
    W = names["undamped"].nn.FullCapacityURNN
    assert W is undamped.nn.FullCapacityURNN and len(names["outputs"]) == 50
