"""The oscillator bank against its equation, ridge against the regressions it stands for."""

import numpy as np
import pytest
import torch

import undamped
from undamped._base.contract import Batch, Clock, TaskShape
from undamped._base.errors import OptionError
from undamped.lab.baselines.bank.dynamics import DAMPING_RATIOS
from undamped.lab.baselines.ridge import PENALTIES, fit_ridge
from undamped.lab.benchmarks import two_events
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training import Run, fit


def make(channels=2, outputs=3, oscillators=12, thresholds=2, name="OscillatorBank", **shape):
    torch.manual_seed(0)
    model = getattr(undamped.lab.baselines, name)(
        TaskShape(channels, outputs, **shape), oscillators=oscillators, thresholds=thresholds
    ).double()
    model.dynamics.thresholds.normal_()
    model.dynamics.centre.normal_()
    model.dynamics.scale.uniform_(0.5, 2.0)
    torch.nn.init.normal_(model.readout.weight)
    return model


def longest_stretch(over):
    """The most samples in a row that were, of each column."""
    found = []
    for column in over.T:
        runs = "".join("x" if one else " " for one in column).split()
        found.append(max((len(run) for run in runs), default=0))
    return np.array(found)


def oracle(model, x, gaps, seen):
    """The equation, sample by sample, for one sequence; what is not seen drives nothing."""
    bank = model.dynamics
    drivers, centre = bank.drivers.numpy(), bank.centre.numpy()
    scale, levels = bank.scale.numpy(), bank.thresholds.numpy()
    gamma, omega, phase = (rate.numpy() for rate in bank.rates())
    channels = x.shape[1]
    z = np.zeros(len(gamma), dtype=complex)
    held = np.full(channels, np.nan)
    heard = []
    for sample, gap, known in zip(x, gaps, seen, strict=True):
        signals = np.zeros(2 * channels)
        for c in range(channels):
            if known[c]:
                signals[c] = (sample[c] - centre[c]) / scale[c]
                if not np.isnan(held[c]):
                    change = sample[c] - held[c]
                    signals[channels + c] = (change - centre[channels + c]) / scale[channels + c]
                held[c] = sample[c]
        z = np.exp((-gamma + 1j * omega) * gap) * z + drivers @ signals
        heard.append((np.exp(1j * phase) * z).real)
    y = np.array(heard)
    shares = [(y > level).mean(0) for level in levels]
    stretches = [longest_stretch(y > level) / len(y) for level in levels]
    first = [y.mean(0), y[-1]] if model.shape.answer == "number" else []
    last = [(y.argmax(0) + 1) / len(y), (y.argmin(0) + 1) / len(y)] if model.locations else []
    features = np.concatenate([*first, y.max(0), y.min(0), *shares, *stretches, *last])
    weight = model.readout.weight.detach().numpy()
    features = np.clip(features, -10, 10)  # standard deviations; centre and scale are 0 and 1 here
    return weight @ features + model.readout.bias.detach().numpy()


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(
    ("timed", "kind", "name"),
    [
        (False, "class", "OscillatorBank"),
        (True, "class", "LocationBank"),
        (True, "number", "LocationBank"),
        (True, "number", "OscillatorBank"),
    ],
)
def test_the_answer_is_that_of_the_equation(timed, kind, name, plain):
    model = make(clock=Clock(0.5, 40.0), answer=kind, name=name)
    x = torch.randn(70, 4, 2).double()
    lengths = torch.tensor([70, 65, 64, 1])
    observed = torch.rand(70, 4, 2) > 0.2
    times = torch.rand(70, 4).double().cumsum(0) if timed else None
    batch = Batch(x, lengths=lengths, observed=observed, times=times)
    if plain:
        with undamped.plain_loops():
            found = model(batch)
    else:
        found = model(batch)
    for b, length in enumerate(lengths.tolist()):
        own = times[:length, b].numpy() if times is not None else 0.5 * np.arange(1, length + 1)
        gaps = np.diff(own, prepend=0.0) / 0.5
        wanted = oracle(model, x[:length, b].numpy(), gaps, observed[:length, b].numpy())
        np.testing.assert_allclose(found[b].detach().numpy(), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["OscillatorBank", "LocationBank"])
def test_a_stream_answers_as_a_pass_does(name):
    model = make(clock=Clock(0.5, 40.0), name=name)
    x, times = torch.randn(9, 3, 2).double(), torch.rand(9, 3).double().cumsum(0)
    state = None
    for t in range(9):
        before = times[t - 1] if t else torch.zeros(3).double()
        answer, state = model.step(x[t], state, times[t] - before)
        whole = model(Batch(x[: t + 1], times=times[: t + 1]))
        torch.testing.assert_close(answer, whole)
    stream = model.stream()
    stream.push(x[:5, 0], times[:5, 0].diff(prepend=torch.zeros(1)))
    again = model.stream()
    again.restore(stream.leaves(), {})
    again.push(x[5:, 0], times[4:, 0].diff())
    torch.testing.assert_close(again.outputs(), whole[:1].detach())


def test_locations_tell_which_of_two_events_came_first():
    bank, locations = two_events.run(quick=True).records
    assert bank.accuracy < 0.91 and locations.accuracy > 0.97


def test_what_shares_a_batch_and_what_pads_it_changes_nothing():
    model = make()
    x = torch.randn(30, 3, 2).double()
    x[20:, 1] = torch.nan
    together = model(Batch(x, lengths=torch.tensor([30, 20, 30])))
    alone = model(Batch(x[:20, 1:2]))
    torch.testing.assert_close(together[1:2], alone, rtol=1e-12, atol=1e-12)


def test_gradients_reach_the_inputs():
    model = make(oscillators=5)
    x = torch.randn(6, 2, 2).double().requires_grad_()
    model.dynamics.thresholds.fill_(1e9)  # a share has no slope and no jump there
    assert torch.autograd.gradcheck(lambda x: model(Batch(x)), x)


@pytest.mark.parametrize(("samples", "features"), [(9, 14), (30, 6)])
def test_samples_left_out_are_answered_by_a_regression_that_never_saw_them(samples, features):
    torch.manual_seed(0)
    x, y = torch.randn(samples, features).double(), torch.randn(samples, 2).double()

    def plain(x, y, penalty):
        centre, middle = x.mean(0), y.mean(0)
        moment = (x - centre).T @ (x - centre) + penalty * torch.eye(features).double()
        weight = torch.linalg.solve(moment, (x - centre).T @ (y - middle))
        return lambda new: (new - centre) @ weight + middle

    solved = fit_ridge(x, y, 0.7)
    torch.testing.assert_close(x @ solved.weight.T + solved.bias, plain(x, y, 0.7)(x))
    for i in range(samples):
        others = torch.arange(samples) != i
        torch.testing.assert_close(
            solved.loo_predictions[i], plain(x[others], y[others], 0.7)(x[i])
        )
    chosen = fit_ridge(x, y)
    errors = [(fit_ridge(x, y, float(p)).loo_predictions - y).square().mean() for p in PENALTIES]
    assert chosen.penalty == float(PENALTIES[int(torch.stack(errors).argmin())])


@pytest.mark.parametrize(("samples", "features"), [(9, 14), (30, 6)])
def test_samples_that_count_twice_are_as_good_as_two(samples, features):
    torch.manual_seed(0)
    x, y = torch.randn(samples, features).double(), torch.randn(samples, 2).double()
    weights = 1.0 + torch.arange(samples) % 3
    often = torch.repeat_interleave(torch.arange(samples), weights.long())
    solved, plain = fit_ridge(x, y, 0.7, weights=weights), fit_ridge(x[often], y[often], 0.7)
    torch.testing.assert_close(solved.weight, plain.weight)
    torch.testing.assert_close(solved.bias, plain.bias)
    for i in range(samples):
        others = torch.arange(samples) != i
        without = fit_ridge(x[others], y[others], 0.7, weights=weights[others])
        torch.testing.assert_close(
            solved.loo_predictions[i], x[i] @ without.weight.T + without.bias
        )


def test_what_was_not_measured_is_not_learnt_from():
    torch.manual_seed(0)
    x, targets = torch.randn(20, 6, 2).double(), torch.arange(6) % 3
    times = torch.rand(20, 6).double().cumsum(0)
    observed = torch.rand(20, 6, 2) > 0.3
    lengths = torch.tensor([20, 15, 20, 8, 20, 11])
    learnt = []
    for rubbish in (0.0, 1e6, torch.nan):
        model = make(oscillators=30)
        seen = observed & (torch.arange(20).view(-1, 1, 1) < lengths.view(1, -1, 1))
        batch = Batch(torch.where(seen, x, rubbish), targets, lengths, times, observed)
        torch.manual_seed(1)
        model.fit_closed_form([batch])
        model.refit([])
        learnt.append(model.state_dict())
    for name, tensor in learnt[0].items():
        assert torch.equal(tensor, learnt[1][name]) and torch.equal(tensor, learnt[2][name]), name
    known = x[:, :, 0][seen[:, :, 0]]
    torch.testing.assert_close(learnt[0]["dynamics.centre"][0], known.mean())
    torch.testing.assert_close(learnt[0]["dynamics.scale"][0], known.std(correction=0))


def waves(count, steps=60):
    random = np.random.default_rng(0)
    turns = random.uniform(0, 6, (count, 1))
    rates = np.where(np.arange(count) % 2, 0.5, 0.8)[:, None]
    noise = 0.3 * random.normal(size=(count, steps))
    return np.sin(rates * np.arange(steps) + turns) + noise


def test_a_run_of_a_bank_is_a_run_like_any_other(tmp_path):
    series = SeriesSet.of(list(waves(60)[:, :, None]), targets=[i % 2 for i in range(60)])
    runs = [
        fit(
            "bank",
            SeriesTask(series),
            model_options={"oscillators": 60},
            train={"batch_size": 16, "epochs": 1},
            out=tmp_path,
            progress=False,
        )
        for _ in range(2)
    ]
    first, second = (run.settings["result"] for run in runs)
    assert first["test"] == second["test"] and first["test"]["accuracy"] >= 0.9
    assert first["test"]["loss"] < 0.5  # logits, and not answers of ±1
    again = Run.open(runs[0].path)
    assert "penalty" in again.settings["found"][0]
    weights = [Run.open(run.path).settings["model"]["parameters"] for run in runs]
    assert weights[0] == weights[1] == 2 * (10 * 60 + 1)


@pytest.mark.slow
def test_numbers_and_values_to_come():
    series = waves(40)
    strength = np.linspace(0.5, 2.0, 40)
    model = undamped.SequenceRegressor(model="bank", random_state=0)
    model.fit(strength[:, None] * series, strength)
    assert np.corrcoef(model.predict(strength[:, None] * series), strength)[0, 1] > 0.95
    long = undamped.SequenceForecaster(model="bank", horizon=3, random_state=0)
    wave = np.sin(0.4 * np.arange(400))
    ahead = long.fit(wave).predict()
    np.testing.assert_allclose(np.ravel(ahead), np.sin(0.4 * np.arange(400, 403)), atol=0.1)


def test_dampings_and_drivers_are_drawn_as_said():
    torch.manual_seed(0)
    model = undamped.lab.baselines.OscillatorBank(TaskShape(4, 2), oscillators=400)
    shares = set(model.dynamics.damping_ratio.tolist())
    assert shares == set(DAMPING_RATIOS)
    used = (model.dynamics.drivers != 0).sum(1)
    assert used.min() == 1 and 1 < used.max() <= 3


def test_answers_at_every_step_are_refused():
    with pytest.raises(OptionError, match="one prediction per sequence"):
        undamped.lab.baselines.OscillatorBank(TaskShape(2, 2, readout="every"))


@pytest.mark.parametrize("dynamics", ["linoss", "unicornn", "lstm"])
def test_any_recurrent_network_can_be_the_bank(dynamics):
    torch.manual_seed(0)
    model = undamped.lab.baselines.OscillatorBank(
        TaskShape(2, 2), oscillators=7, thresholds=2, dynamics=dynamics
    ).double()
    x = torch.randn(140, 4, 2).double()
    x[30, 0, 1] = torch.nan
    lengths = torch.tensor([140, 64, 65, 3])
    model.fit_closed_form([Batch(x, torch.arange(4) % 2, lengths)])
    together = model(Batch(x, lengths=lengths))
    for number, length in enumerate(lengths.tolist()):
        one = x[:length, number : number + 1]
        torch.testing.assert_close(together[number : number + 1], model(Batch(one)))
    # Where a batch ended it goes on, each sequence from its own end; and sample by sample.
    ends = model.run(Batch(x, lengths=lengths))[1]
    more = torch.randn(5, 4, 2).double()
    answer, _ = model.run(Batch(more), ends)
    whole = torch.cat([x[:3, 3:], more[:, 3:]])
    torch.testing.assert_close(answer[3:], model(Batch(whole)))
    streamed = None
    for sample in whole:
        said, streamed = model.step(sample, streamed)
    torch.testing.assert_close(said, answer[3:])
    assert not any(p.requires_grad for p in model.dynamics.parameters())


def test_what_cannot_be_the_bank_is_refused():
    with pytest.raises(OptionError, match="recurrent network"):
        undamped.lab.baselines.OscillatorBank(TaskShape(2, 2), dynamics="boosting")
    timed = TaskShape(2, 2, needs=frozenset({"times"}), clock=Clock(0.5, 40.0))
    with pytest.raises(OptionError, match="irregularly sampled"):
        undamped.lab.baselines.OscillatorBank(timed, dynamics="lstm")


def test_a_feature_that_never_varied_is_not_believed_when_it_does():
    torch.manual_seed(0)
    quiet = torch.rand(50, 40, 1).double()
    quiet[10] = 3.0  # the same peak in all sequences learnt from
    model = undamped.lab.baselines.OscillatorBank(
        TaskShape(1, 1, answer="number"), oscillators=30
    ).double()
    model.fit_closed_form([Batch(quiet, quiet.mean(0))])
    model.refit([])
    loud = quiet.clone()
    loud[10] = 3.3
    assert (model(Batch(loud)) - loud.mean(0)).abs().max() < 1.0


@pytest.mark.parametrize(
    ("name", "former"),
    [
        ("bank", {"dynamics.damping_ratio": "listeners.damping_share", "dynamics.": "listeners."}),
        ("combination", {"arrays.": "learnt.", "forecasters.": "members."}),
    ],
)
def test_weights_of_earlier_versions_are_loaded(name, former):
    model_class = undamped._base.registry.models[name]
    shape = TaskShape(2, 3) if name == "bank" else model_class.example_shape()
    torch.manual_seed(0)
    model = model_class(shape)
    state = model.state_dict()
    if name == "combination":
        state["forecasters.1.arrays.weight"] = torch.ones(2, 3)
    renamed = {}
    for key, tensor in state.items():
        for new, old in former.items():
            key = key.replace(new, old)
        renamed[key] = tensor
    assert set(renamed) != set(state)
    torch.manual_seed(1)
    loaded = model_class(shape)
    loaded.load_state_dict(renamed)
    for key, tensor in loaded.state_dict().items():
        torch.testing.assert_close(tensor, state[key], rtol=0, atol=0, equal_nan=True)
