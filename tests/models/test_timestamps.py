"""Large timestamps, long gaps, and times in another order: right in float32, or refused."""

import copy

import pytest
import torch
from member_groups import MOVING, STAMPED, WHOLE

import undamped
from undamped._base.contract import Batch, Clock, TaskShape
from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import models
from undamped.models.for_task import model_for
from undamped.models.irregular.gru_ode_bayes import BayesNetwork

UNIX = 1.7e9
READING = [n for n in WHOLE if "times" in models[n].uses and n not in ("guess", "ensemble")]
TIMED = [*STAMPED, *READING, "gru"]
"""Every kind of model that reads timestamps; of recurrent networks around a cell, one."""
ANSWERING = [n for n in TIMED if not n.endswith("bank")]
"""Those that answer at given times."""
CLOCK = Clock(gap=1.0, span=20.0)


def network(name):
    torch.manual_seed(0)
    if name == "gru-ode-bayes":
        sizes = {"forecast_size": 5, "jump_size": 4, "steps": 1}
        return BayesNetwork(2, 6, **sizes, missing=True, gap=1.0)
    return undamped.build(name, input_size=2, hidden_size=6, missing=True)


def model(name, answer="trajectory"):
    torch.manual_seed(0)
    needs = {"times", "observed", *(["target_times"] if answer == "trajectory" else [])}
    same = answer == "trajectory"
    shape = TaskShape(2, 2, answer=answer, needs=frozenset(needs), clock=CLOCK, same_channels=same)
    options = {} if name in WHOLE else {"hidden_size": 6}
    return model_for(shape, name, options).eval()


def series(gap=None, steps=20, batch=3):
    random = torch.Generator().manual_seed(1)
    x = torch.randn(steps, batch, 2, generator=random)
    times = (0.1 + torch.rand(steps, batch, generator=random).double()).cumsum(0)
    if gap is not None:
        times[steps // 2 :, 1] += gap
    seen = torch.rand(steps, batch, 2, generator=random) > 0.3
    return x, times, seen


def started(net, time):
    *parts, now = net.initial_state(3)
    return (*parts, now + time)


def difference(one, other):
    """The largest difference, as a share of the larger of 1 and what is compared."""
    other = other.double()
    return float((one.double() - other).abs().max() / other.abs().max().clamp(min=1))


@pytest.mark.parametrize("name", [*STAMPED, "gru-ode-bayes"])
@torch.no_grad()
def test_unix_timestamps_do_what_timestamps_from_zero_do(name):
    net = network(name)
    double = copy.deepcopy(net).double()
    x, times, seen = series()
    expected, _ = double(x.double(), times, seen)
    output, final = net(x, times + UNIX, seen, state=started(net, UNIX))
    assert difference(output, expected) < 2e-6
    torch.testing.assert_close(final[-1], times[-1] + UNIX)
    state, before = started(net, UNIX), torch.full((3,), UNIX, dtype=torch.float64)
    for t in range(len(x)):
        streamed, state = net.step(x[t], state, times[t] + UNIX - before, seen[t])
        before = times[t] + UNIX
        assert difference(streamed, expected[t]) < 2e-6
    with pytest.raises(ShapeError, match=r"times must be torch\.float64"):
        net(x, (times + UNIX).float(), seen, state=started(net, UNIX))


@pytest.mark.parametrize("gap", [1e3, 1e4, 1e6, 1e8, UNIX])
@pytest.mark.parametrize("name", [*STAMPED, "gru-ode-bayes"])
@torch.no_grad()
def test_after_a_long_gap_single_precision_answers_as_double_does(name, gap):
    net = network(name)
    double = copy.deepcopy(net).double()
    x, times, seen = series(gap)
    if net.longest_gap is not None and gap >= net.longest_gap:
        with pytest.raises(ShapeError, match=r"can solve at most 100?,000"):
            net(x, times, seen)
        with pytest.raises(ShapeError, match="target_times has a gap of"):
            states, _ = net.states(x[:3], times[:3], seen[:3])
            net.at(states, times[:3], None, times[-1:], net.initial_state(3))
        return
    expected, _ = double(x.double(), times, seen)
    output, _ = net(x, times, seen)
    # A perceptron field that is followed over 10,000 gaps in one step magnifies every rounding.
    assert difference(output, expected) < (1e-3 if name == "ode-rnn" else 1e-5)
    state, before = None, torch.zeros(3, dtype=torch.float64)
    for t in range(len(x)):
        streamed, state = net.step(x[t], state, times[t] - before, seen[t])
        before = times[t]
        assert difference(streamed, output[t]) < 1e-5


@torch.no_grad()
def test_a_gru_field_stays_between_its_bounds_over_a_gap_of_any_length():
    torch.manual_seed(0)
    flow = undamped.models.ODERNN(2, 6, field="gru").gap_flow
    y = 2 * torch.rand(4, 6) - 1
    gaps = torch.tensor([0.5, 3.0, 40.0, 500.0])
    moved = flow(y, gaps)
    assert moved.abs().max() < 1
    for row in range(4):  # as many steps as its own gap needs, whatever the others have
        separate = flow(y[row : row + 1], gaps[row : row + 1])[0]
        torch.testing.assert_close(separate, moved[row], rtol=0, atol=1e-6)


def test_a_gap_that_a_tolerance_follows_is_not_refused():
    class Slow(torch.nn.Module):
        def forward(self, t, y):
            return -1e-6 * y

    net = undamped.models.ODERNN(2, 6, field=Slow(), method="dopri5", tolerance=1e-3)
    x, times, _ = series(2e5, steps=2, batch=2)
    assert torch.isfinite(net(x, times)[0]).all()


@pytest.mark.parametrize("name", ["latent-ode", "rnn-vae", "ode2vae"])
@torch.no_grad()
def test_latent_models_read_long_times_in_double_precision_or_refuse_them(name):
    net = model(name)
    double = copy.deepcopy(net).double()
    x, times, seen = series()
    for gap in (0.0, 1e4):
        asked = times[:3] + gap
        batch = Batch(x, times=times + gap, observed=seen, target_times=asked)
        if gap and name != "rnn-vae":
            with pytest.raises(ShapeError, match=r"spans of the task|gaps of up to"):
                net(batch._replace(times=batch.times + UNIX))
            continue
        expected = double(batch._replace(inputs=x.double()))
        assert difference(net(batch), expected) < 1e-5


@pytest.mark.parametrize("name", ANSWERING)
@torch.no_grad()
def test_answers_do_not_depend_on_the_order_in_which_times_are_asked_for(name):
    net = model(name)
    x, times, seen = series()
    random = torch.Generator().manual_seed(2)
    asked = 14 * torch.rand(9, 3, generator=random).double()
    sorted_times, order = asked.sort(0)
    batch = Batch(x, times=times, observed=seen, target_times=sorted_times)
    expected = net(batch)
    at = order.argsort(0).unsqueeze(-1).expand_as(expected)
    torch.testing.assert_close(net(batch._replace(target_times=asked)), expected.gather(0, at))
    flipped = net(batch._replace(target_times=sorted_times.flip(0)))
    torch.testing.assert_close(flipped, expected.flip(0))
    with pytest.raises(ShapeError, match="must not precede the initial state"):
        net(batch._replace(target_times=asked - 20))


@pytest.mark.parametrize("name", TIMED)
@torch.no_grad()
def test_timestamps_that_decrease_are_refused(name):
    net = model(name, "class")
    x, times, seen = series()
    lengths = torch.tensor([20, 15, 20])
    batch = Batch(x, lengths=lengths, times=times, observed=seen)
    net(batch)
    padded = times.clone()
    padded[15:, 1] = torch.nan
    assert torch.isfinite(net(batch._replace(times=padded))).all()
    for row in (5, 19, 0):
        wrong = times.clone()
        wrong[row, 2] = times[row - 2, 2] if row else times[3, 2]
        with pytest.raises(ShapeError, match="times must never decrease"):
            net(batch._replace(times=wrong))
    if name != "gru":
        with pytest.raises(ShapeError, match="times must never decrease, nor precede time 0"):
            net(batch._replace(times=times - 5))


@pytest.mark.parametrize("name", MOVING)
@torch.no_grad()
def test_trajectories_in_another_order_are_right_or_refused(name):
    torch.manual_seed(0)
    net = undamped.build(name, shape=models[name].example_shape()).eval()
    random = torch.Generator().manual_seed(0)
    states, inputs = net.example_states(2, random)
    x = torch.cat([states, inputs], -1).float()
    times = torch.tensor([[0.1], [0.2], [0.3], [0.4]]).expand(-1, 2)
    expected = net(Batch(x, target_times=times))
    for order in ([3, 2, 1, 0], [0, 2, 1, 3]):
        try:
            answers = net(Batch(x, target_times=times[order]))
        except (OptionError, ShapeError):
            continue
        torch.testing.assert_close(answers, expected[order])
