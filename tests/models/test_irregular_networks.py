"""Networks that know when their samples came: against their equations, and against each other."""

import numpy as np
import pytest
import torch
from irregular_oracles import ORACLES, bayes
from member_groups import STAMPED

import undamped
from undamped._base.contract import Batch, Clock, TaskShape
from undamped._base.errors import OptionError, ShapeError, UnknownNameError
from undamped.models.for_task import model_for
from undamped.models.irregular.gap_flows import SolvedFlow
from undamped.models.irregular.gru_ode_bayes import BayesNetwork
from undamped.models.irregular.model import TimestampedModel

VARIANTS = {
    "ode-rnn": [{}, {"steps": 3, "field_layers": 2}],
    "modes-rnn": [{}, {"damped": True}],
    "neural-cde": [{}, {"control": "cubic", "steps": 2}],
}
EVERY = [(name, options) for name in STAMPED for options in VARIANTS.get(name, [{}])]


def build(name, **options):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=3, hidden_size=6, gap=0.4, **options).double()
    with torch.no_grad():  # biases that begin at zero would hide a mistake
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return net


def example(steps=7, batch=4, seed=0):
    """Sequences of unequal length; in some rows nothing was measured, in none before the first."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, batch, 3, generator=random, dtype=torch.float64)
    times = 0.9 * torch.rand(steps, batch, generator=random, dtype=torch.float64).cumsum(0)
    seen = torch.rand(steps, batch, 3, generator=random) > 0.4
    seen[2, 1] = False
    seen[0, 0] = True
    lengths = torch.tensor([steps, 4, 6, 1])[:batch]
    return x.masked_fill(~seen, torch.nan), times, seen, lengths


def states_and_gaps(network):
    random = torch.Generator().manual_seed(0)
    state = tuple(
        torch.randn(16, size, generator=random, dtype=torch.float64) for size in network.state_sizes
    )
    return state, 100 * torch.rand(16, generator=random, dtype=torch.float64)


@torch.no_grad()
def test_undamped_modes_preserve_norms_over_long_gaps():
    for damped in (False, True):
        network = build("modes-rnn", damped=damped)
        state, gaps = states_and_gaps(network)
        after = torch.cat(network.flow(state, gaps), dim=-1).norm(dim=-1)
        change = after / torch.cat(state, dim=-1).norm(dim=-1) - 1
        assert (change.abs().max() < 1e-11) != damped


@torch.no_grad()
def test_the_state_of_gru_ode_bayes_stays_between_its_bounds():
    torch.manual_seed(0)
    network = undamped.models.GRUODEBayes(TaskShape(3, 2), hidden_size=6).double().network
    (state, _), gaps = states_and_gaps(network)
    flow = SolvedFlow(network.gap_flow.field, method="dopri5", tolerance=1e-8)
    after = flow(state.clamp(-1, 1), gaps)  # corners included
    assert after.abs().max().item() <= 1 + 1e-6


@pytest.mark.parametrize(("name", "options"), EVERY)
@pytest.mark.parametrize("missing", [True, False])
def test_every_network_is_its_equation(name, options, missing):
    net = build(name, missing=missing, **options)
    x, times, seen, lengths = example()
    if not missing:
        x, seen = x.nan_to_num(0.5), torch.ones_like(seen)
    asked = torch.tensor([0.05, 0.9, 0.95, 1.5, 9.0], dtype=torch.float64)
    outputs, state = net(x, times, seen if missing else None, lengths)
    states, _ = net.states(x, times, seen if missing else None, lengths)
    start = net.initial_state(4)
    answers = net.at(states, times, lengths, asked.unsqueeze(1).expand(-1, 4), start)
    for b, n in enumerate(lengths.tolist()):
        parts = (part[:n, b].numpy() for part in (x.nan_to_num(99), times, seen))
        expected, ahead = ORACLES[name](*parts, net, asked.numpy())
        np.testing.assert_allclose(outputs[:n, b].detach(), expected, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(answers[:, b].detach(), ahead, rtol=1e-9, atol=1e-10)
        assert not outputs[n:, b].any()
        assert state[-1][b] == pytest.approx(times[n - 1, b])


def test_every_network_has_an_oracle():
    assert set(ORACLES) == set(STAMPED)


def test_the_network_of_gru_ode_bayes_is_its_equation():
    torch.manual_seed(0)
    sizes = {"forecast_size": 5, "jump_size": 4, "steps": 2}
    net = BayesNetwork(3, 6, **sizes, missing=True, gap=0.4).double()
    x, times, seen, lengths = example()
    asked = np.array([0.05, 0.9, 0.95, 9.0])
    outputs, _ = net(x, times, seen, lengths)
    states, _ = net.states(x, times, seen, lengths)
    moments = torch.from_numpy(asked).unsqueeze(1).expand(-1, 4)
    answers = net.at(states, times, lengths, moments, net.initial_state(4))
    for b, n in enumerate(lengths.tolist()):
        parts = (part[:n, b].numpy() for part in (x.nan_to_num(99), times, seen))
        expected, ahead = bayes(*parts, net, asked)
        np.testing.assert_allclose(outputs[:n, b].detach(), expected, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(answers[:, b].detach(), ahead, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_gradients_are_right(name, options):
    net = build(name, missing=True, **options)
    x, times, seen, lengths = example(steps=3, batch=2)
    lengths = torch.tensor([3, 2])
    asked = torch.tensor([[0.3, 0.3], [2.5, 2.5]], dtype=torch.float64)
    names = [n for n, _ in net.named_parameters()]

    def answer(values, *parameters):
        given = dict(zip(names, parameters, strict=True))

        def call(part):
            states, _ = part.states(values, times, seen, lengths)
            return part.at(states, times, lengths, asked, part.initial_state(2, values))

        return torch.func.functional_call(
            _Called(net, call), {f"net.{n}": v for n, v in given.items()}, ()
        )

    values = x.nan_to_num(0.3).requires_grad_()
    leaves = [p.detach().clone().requires_grad_() for p in net.parameters()]
    assert torch.autograd.gradcheck(answer, (values, *leaves), fast_mode=True)


class _Called(torch.nn.Module):
    def __init__(self, net, call):
        super().__init__()
        self.net, self.call = net, call

    def forward(self):
        return self.call(self.net)


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_companions_padding_and_what_was_not_seen_change_nothing(name, options):
    net = build(name, missing=True, **options).float()
    x, times, seen, lengths = example()
    x = x.float()
    full, state = net(x, times, seen, lengths)
    order = torch.tensor([2, 0, 3, 1])
    mixed, _ = net(x[:, order], times[:, order], seen[:, order], lengths[order])
    torch.testing.assert_close(mixed, full[:, order], rtol=1e-6, atol=1e-6)
    for b, n in enumerate(lengths.tolist()):
        separate, end = net(x[:n, b : b + 1], times[:n, b : b + 1], seen[:n, b : b + 1])
        torch.testing.assert_close(separate[:, 0], full[:n, b], rtol=1e-6, atol=1e-6)
        for part, other in zip(end, state, strict=True):
            torch.testing.assert_close(part[0], other[b], rtol=1e-6, atol=1e-6)
    junk = x.clone()
    junk[4:, 1] = 1e9
    late, mask = times.clone(), seen.clone()
    late[4:, 1], mask[4:, 1] = torch.nan, True
    torch.testing.assert_close(net(junk, late, mask, lengths)[0], full, rtol=0, atol=0)


@pytest.mark.parametrize(("name", "options"), EVERY)
def test_a_stream_answers_as_the_whole_sequence_does(name, options):
    net = build(name, missing=True, **options)
    x, times, seen, _ = example()
    full, final = net(x, times, seen)
    state, before = None, torch.zeros(4, dtype=torch.float64)
    for t in range(len(x)):
        output, state = net.step(x[t], state, times[t] - before, seen[t])
        before = times[t]
        torch.testing.assert_close(output, full[t])
    for part, other in zip(state, final, strict=True):
        torch.testing.assert_close(part, other)
    # In two parts, too.
    _, middle = net(x[:3], times[:3], seen[:3])
    rest, _ = net(x[3:], times[3:], seen[3:], state=middle)
    torch.testing.assert_close(rest, full[3:])


def test_steps_without_times_are_a_usual_gap_apart():
    net = build("ode-rnn")
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    even = 0.4 * torch.arange(5, dtype=torch.float64).unsqueeze(1).expand(5, 2)
    torch.testing.assert_close(net(x)[0], net(x, even)[0])
    state = None
    for t in range(5):
        output, state = net.step(x[t], state)
    torch.testing.assert_close(output, net(x)[0][-1])


def on_a_union_grid(net, x, times, lengths):
    """The way of the authors' program: all timestamps of all sequences, most of them masked."""
    steps = torch.arange(len(x)).unsqueeze(1)
    running = steps < lengths
    grid = torch.unique(times[running])
    place = torch.searchsorted(grid, times.clamp(max=grid[-1]).T.contiguous()).T
    rows = torch.zeros(len(grid), *x.shape[1:], dtype=x.dtype)
    there = torch.zeros(len(grid), x.shape[1], 3, dtype=torch.bool)
    for b in range(x.shape[1]):
        own = place[: lengths[b], b]
        rows[own, b], there[own, b] = x[: lengths[b], b], True
    states, _ = net.states(rows, grid.unsqueeze(1).expand(-1, x.shape[1]), there)
    return states, place


@pytest.mark.parametrize("cell", ["gru", "lstm", "unicornn"])
def test_own_stamps_are_a_union_grid_without_its_cost(cell):
    torch.manual_seed(0)
    net = undamped.models.ODERNN(
        3, 6, cell=cell, method="dopri5", tolerance=1e-8, missing=True
    ).double()
    x, times, _, lengths = example()
    x = x.nan_to_num(0.2)
    own, _ = net.states(x, times, torch.ones_like(x, dtype=torch.bool), lengths)
    union, place = on_a_union_grid(net, x, times, lengths)
    assert len(union[0]) == int(lengths.sum())
    for b, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(own[0][:n, b], union[0][place[:n, b], b], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "field", ["perceptron", "gru", "heavy-ball", "bottleneck", "concat-squash"]
)
def test_any_field_flows(field):
    torch.manual_seed(0)
    net = undamped.models.ODERNN(2, 6, cell="lstm", field=field).double()
    y = torch.randn(4, 6, dtype=torch.float64)
    gaps = torch.tensor([0.0, 0.01, 0.02, 0.04], dtype=torch.float64)
    moved = net.gap_flow(y, gaps)
    assert torch.equal(moved[0], y[0])
    slope = net.gap_flow.field(0.0, y)
    torch.testing.assert_close(moved, y + gaps.unsqueeze(1) * slope, rtol=0, atol=2e-2)
    outputs, state = net(torch.randn(5, 4, 2, dtype=torch.float64))
    assert outputs.shape == (5, 4, 6) and len(state) == 3


def test_a_field_of_ones_own_and_any_solver():
    class Turn(torch.nn.Module):
        def forward(self, t, y):
            return y.flip(-1) * y.new_tensor([-1.0, 1.0])

    y = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    gaps = torch.tensor([0.5, 2.0], dtype=torch.float64)
    expected = torch.stack([gaps.cos(), gaps.sin()], -1)
    for options, error in (
        ({"method": "dopri5", "tolerance": 1e-9}, 1e-7),
        ({"steps": 100}, 1e-8),
        ({"method": "midpoint", "steps": 100}, 1e-3),
        ({"method": "implicit-midpoint", "steps": 100}, 1e-3),
    ):
        net = undamped.models.ODERNN(1, 2, cell="rnn", field=Turn(), **options).double()
        torch.testing.assert_close(net.gap_flow(y, gaps), expected, rtol=0, atol=error)


@pytest.mark.slow
@torch.no_grad()
def test_neural_cde_agrees_with_torchcde():
    torchcde = pytest.importorskip("torchcde")
    x, times, _, _ = example(steps=4, batch=2)
    x = x.nan_to_num(0.7)
    for control in ("linear", "cubic"):
        net = build("neural-cde", control=control, steps=100)
        path = torch.cat([times.unsqueeze(-1) / net.gap, x], -1).transpose(0, 1)  # (batch, time, …)
        for b in range(x.shape[1]):  # one sequence at a time: it has one list of times
            own = path[b : b + 1]
            timestamps = own[0, :, 0].contiguous()
            if control == "linear":
                curve = torchcde.LinearInterpolation(
                    torchcde.linear_interpolation_coeffs(own, t=timestamps), t=timestamps
                )
            else:
                made = torchcde.hermite_cubic_coefficients_with_backward_differences(
                    own, t=timestamps
                )
                curve = torchcde.CubicSpline(made, t=timestamps)

            class Field(torch.nn.Module):
                def forward(self, t, z, net=net):
                    return net.matrix(z)

            result = torchcde.cdeint(
                curve,
                Field(),
                net.enter(own[:, 0]),
                timestamps,
                adjoint=False,
                rtol=1e-7,
                atol=1e-8,
                options={"jump_t": curve.grid_points},
            )
            outputs, _ = net(x[:, b : b + 1], times[:, b : b + 1])
            torch.testing.assert_close(outputs[:, 0], result[0], rtol=0, atol=1e-4)


def test_asking_changes_nothing_and_order_is_kept():
    net = build("ode-rnn")
    x, times, _, lengths = example()
    x = x.nan_to_num(0.1)
    states, _ = net.states(x, times, None, lengths)
    start = net.initial_state(4)
    few = torch.tensor([[1.0], [7.0]], dtype=torch.float64).expand(-1, 4)
    twice = few.repeat_interleave(2, 0)
    once = net.at(states, times, lengths, few, start)
    torch.testing.assert_close(net.at(states, times, lengths, twice, start)[::2], once)


@pytest.mark.parametrize("name", ["ode-rnn", "gru-d"])
@pytest.mark.parametrize("readout", ["last", "every", "mean"])
def test_the_model_around_a_network_reads_it_out(name, readout):
    torch.manual_seed(0)
    model = TimestampedModel(name, 3, 2, readout=readout, hidden_size=4, missing=True).double()
    x, times, seen, lengths = example()
    batch = Batch(x, lengths=lengths, times=times, observed=seen)
    outputs, _ = model.network(x, times, seen, lengths)
    answers, _ = model.run(batch)
    for b, n in enumerate(lengths.tolist()):
        own = outputs[:n, b]
        expected = {"last": own[-1], "mean": own.mean(0), "every": own}[readout]
        output = answers[:n, b] if readout == "every" else answers[b]
        torch.testing.assert_close(output, model.head(expected))
    state, before = None, torch.zeros(4, dtype=torch.float64)
    for t in range(len(x)):
        output, state = model.step(x[t], state, times[t] - before, observed=seen[t])
        before = times[t]
    full, _ = model.run(batch._replace(lengths=None))
    torch.testing.assert_close(output, full[-1] if readout == "every" else full)


@pytest.mark.parametrize("name", STAMPED)
def test_training_foresees_every_sample_as_a_stream_would(name):
    x, times, seen, lengths = example()
    asked = times.max(0, keepdim=True).values + 1
    shape = TaskShape(
        3, 3, answer="trajectory", needs=frozenset({"times", "observed"}), same_channels=True
    )
    torch.manual_seed(0)
    model = model_for(shape, name, {"hidden_size": 4, "foresight": 0.5}).double()
    batch = Batch(x, x.new_zeros(1, 4, 3), lengths, times=times, observed=seen, target_times=asked)
    aim = model.objective(batch, lambda answer, batch: answer.square().mean())
    errors = []
    for b, n in enumerate(lengths.tolist()):
        state, now = None, 0.0
        for t in range(n - 1):
            own = slice(b, b + 1)
            gap, now = times[t, own] - now, times[t, own]
            ahead = times[t + 1, own] - now
            output, state = model.step(x[t, own], state, gap, observed=seen[t, own], offsets=ahead)
            errors.append((output[0, 0] - x[t + 1, b])[seen[t + 1, b]])
    torch.testing.assert_close(aim.total - aim.loss, 0.5 * torch.cat(errors).square().mean())
    assert aim.loss == model.run(batch)[0].square().mean()
    separate = model.objective(
        Batch(*(p[:1] for p in (x, x)), times=times[:1], observed=seen[:1], target_times=asked),
        lambda answer, batch: answer.sum(),
    )
    assert separate.total == separate.loss


def test_values_to_come_at_even_steps_and_at_given_times_are_the_same():
    clock = Clock(gap=0.4, span=3.0)
    even = model_for(
        TaskShape(3, 6, answer="number", horizon=2, clock=clock), "ode-rnn", {"hidden_size": 4}
    )
    shape = TaskShape(
        3, 3, answer="trajectory", needs=frozenset({"times", "target_times"}), clock=clock
    )
    timed = model_for(shape, "ode-rnn", {"hidden_size": 4})
    timed.load_state_dict(even.state_dict())
    x, times, _, lengths = example()
    x, times = x.nan_to_num(0).float(), times
    last = times.gather(0, lengths.unsqueeze(0) - 1)
    asked = torch.cat([last + 0.4, last + 0.8])
    there = timed(Batch(x, lengths=lengths, times=times, target_times=asked))
    flat = even(Batch(x, lengths=lengths, times=times))
    torch.testing.assert_close(flat, there.transpose(0, 1).flatten(1))
    # A stream says the same.
    state, other, before = None, None, torch.zeros(4, dtype=torch.float64)
    for t in range(3):
        gap = times[t] - before
        output, state = even.step(x[t], state, gap)
        ahead, other = timed.step(x[t], other, gap, offsets=torch.tensor([0.4, 0.8]))
        before = times[t]
    torch.testing.assert_close(output, ahead.transpose(0, 1).flatten(1))


def test_what_does_not_fit_is_refused():
    net = build("ode-rnn")
    x, times, seen, _ = example()
    x = x.nan_to_num(0)
    with pytest.raises(ShapeError, match=r"ODERNN input must be \(time, batch, 3\)"):
        net(x[..., :2])
    with pytest.raises(ShapeError, match=r"must be \(time, batch\) = "):
        net(x, times[:-1])
    with pytest.raises(ShapeError, match="times must never decrease"):
        net(x, times.flip(0))
    with pytest.raises(ShapeError, match="times must never decrease"):
        net(x, torch.where(times == times[2, 1], torch.nan, times))
    with pytest.raises(ShapeError, match="built without missing features"):
        net(x, times, seen)
    masked = build("ode-rnn", missing=True)
    with pytest.raises(ShapeError, match=r"observed must be torch\.bool"):
        masked(x, times, seen.double().masked_fill(~seen, torch.nan))
    with pytest.raises(OptionError, match="a state of fixed size is needed"):
        undamped.models.ODERNN(3, 4, cell="memrnn")
    with pytest.raises(OptionError, match="'rk4' has fixed steps"):
        undamped.models.ODERNN(3, 4, tolerance=1e-3)
    with pytest.raises(OptionError, match="must be even"):
        undamped.models.ModesRNN(3, 5)
    with pytest.raises(OptionError, match="set by the task"):
        model_for(TaskShape(3, 2), "gru-d", {"hidden_size": 4, "gap": 2.0})
    with pytest.raises(OptionError, match=r"model\.foresight applies only"):
        model_for(TaskShape(3, 2), "ode-rnn", {"hidden_size": 4, "foresight": 1.0})
    with pytest.raises(UnknownNameError, match="Did you mean 'lstm'"):
        undamped.models.ODERNN(3, 4, cell="lstmm")
