"""Explanations: exact sums, an oracle of the impulse response, and causes that were planted."""

import json

import numpy as np
import pytest
import torch

from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError
from undamped.lab.baselines.bank.location_bank import LocationBank
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
from undamped.lab.baselines.closed_form import NaiveBaseline
from undamped.lab.benchmarks import explanations
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.prepared import batch_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.training.explanations import explain
from undamped.lab.training.explanations.bank_contributions import bank_contributions
from undamped.lab.training.explanations.deletion import delete
from undamped.lab.training.explanations.gradients import integrated_gradients
from undamped.models.for_task import model_for


def fitted_bank(kind, targets, count=12, steps=30, channels=2, seed=0):
    random = np.random.default_rng(seed)
    data = SeriesSet.of(random.normal(size=(count, steps, channels)), targets)
    preparation = Preparation.fit(data, kind=kind)
    batch = batch_of([preparation.prepare(series) for series in data.series])
    shape = TaskShape(
        channels, preparation.output_size, answer="class" if kind == "classification" else "number"
    )
    torch.manual_seed(seed)
    model = (LocationBank if kind == "classification" else OscillatorBank)(shape, oscillators=20)
    model.fit_closed_form([batch._replace(targets=torch.from_numpy(preparation.encode(targets)))])
    model.refit(())
    return model.eval(), preparation, data


def impulse_sums(model, x):
    """Return ∂(Σ slope · feature)/∂x · x of the linear features, from the definition in NumPy."""
    bank = model.double()
    gamma, omega, phase = (part.numpy() for part in bank.dynamics.rates())
    drivers, centre, scale = (
        part.numpy() for part in (bank.dynamics.drivers, bank.dynamics.centre, bank.dynamics.scale)
    )
    steps, channels = x.shape
    signals = np.concatenate([x, np.diff(x, axis=0, prepend=x[:1])], axis=1)
    standard = (signals - centre) / scale
    standard[0, channels:] = 0
    drive = standard @ drivers.T
    lags = np.arange(steps)[:, None]
    response = np.exp(-gamma * lags) * np.cos(omega * lags + phase)  # (lag, oscillator)
    y = np.stack([(response[t::-1] * drive[: t + 1]).sum(0) for t in range(steps)])
    slope = (bank.readout.weight[0] / bank.scale).detach().numpy().reshape(-1, len(gamma))
    parts = np.zeros_like(x)
    for k in range(len(gamma)):
        at = dict.fromkeys(range(steps), slope[0, k] / steps)  # the mean
        for t, row in ((steps - 1, 1), (int(y[:, k].argmax()), 2), (int(y[:, k].argmin()), 3)):
            at[t] += slope[row, k]
        for t, weight in at.items():
            for s in range(t + 1):
                value = drivers[k, :channels] / scale[:channels]
                change = drivers[k, channels:] / scale[channels:]
                parts[s] += weight * response[t - s, k] * value * x[s]
                if s > 0:
                    parts[s] += weight * response[t - s, k] * change * x[s]
                    parts[s - 1] -= weight * response[t - s, k] * change * x[s - 1]
    return parts


def test_contributions_of_a_bank_are_those_of_its_impulse_responses():
    targets = np.random.default_rng(1).normal(size=12)
    model, preparation, data = fitted_bank("regression", targets)
    batch = batch_of([preparation.prepare(data.series[0])])
    parts = bank_contributions(model, batch, torch.ones(1))
    expected = impulse_sums(model, batch.inputs[:, 0].double().numpy())
    np.testing.assert_allclose(parts.samples.numpy(), expected, atol=1e-9)
    total = float(parts.samples.sum() + parts.times.sum()) + parts.offset
    assert total == pytest.approx(parts.output, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_contributions_sum_to_the_margin(dtype):
    labels = np.array(["a", "b", "c"] * 4)
    model, preparation, data = fitted_bank("classification", labels)
    result = explain(model.to(dtype), preparation, data, 1)
    assert result.method == "exact" and "margin" in result.quantity
    assert abs(result.completeness_error) < (1e-9 if dtype == torch.float64 else 1e-4)
    assert sum(abs(entry["contribution"]) for entry in result.oscillators) > 0


def test_integrated_gradients_of_a_linear_model_are_exact():
    class Linear(torch.nn.Module):
        weight = torch.randn(7, 2, generator=torch.Generator().manual_seed(0)).double()

        def forward(self, batch):
            return (batch.inputs[:, 0] * self.weight).sum().reshape(1, 1) + 3

    x = torch.randn(7, 1, 2, dtype=torch.float64)
    parts = integrated_gradients(Linear(), Batch(x), torch.ones(1))
    torch.testing.assert_close(parts.samples, x[:, 0] * Linear.weight)
    assert parts.offset == pytest.approx(3)


def test_a_change_of_the_output_near_the_mean_is_integrated():
    class Steep(torch.nn.Module):
        def forward(self, batch):
            return torch.tanh(1e3 * batch.inputs[:, 0]).sum().reshape(1, 1)

    parts = integrated_gradients(Steep(), Batch(torch.ones(3, 1, 1).double()), torch.ones(1))
    torch.testing.assert_close(parts.samples, torch.ones(3, 1).double(), rtol=1e-6, atol=0)


def test_a_network_and_a_model_of_whole_series_are_explained():
    random = np.random.default_rng(0)
    labels = np.array(["a", "b"] * 6)
    data = SeriesSet.of(random.normal(size=(12, 40, 2)), labels)
    preparation = Preparation.fit(data, kind="classification")
    shape = TaskShape(2, 2, answer="class")
    torch.manual_seed(0)
    network = explain(model_for(shape, "gru", {"hidden_size": 8}).eval(), preparation, data, 0)
    assert network.method == "integrated gradients" and network.contributions.shape == (40, 2)
    assert abs(network.completeness_error) < 1e-4
    # Small differences grow in this network, so that its gradients sum to something else.
    torch.manual_seed(0)
    rough = model_for(shape, "layer-norm-lstm", {"hidden_size": 8}).eval()
    assert explain(rough, preparation, data, 0).method == "deletion"
    tree = explain(model_for(shape, "boosting", {}).eval(), preparation, data, 0)
    assert tree.method == "deletion" and tree.completeness_error is None
    json.dumps([network.to_dict(), tree.to_dict()])


def test_what_has_no_explanation_is_refused():
    labels = np.array(["a", "b"] * 6)
    _, preparation, data = fitted_bank("classification", labels)
    with pytest.raises(OptionError, match="same answer"):
        explain(NaiveBaseline(TaskShape(2, 2, answer="class")), preparation, data, 0)


def test_deletion_replaces_a_segment_by_the_mean_of_what_was_measured():
    series = np.array([[1.0], [np.nan], [3.0], [8.0]])
    np.testing.assert_allclose(delete(series, 1, 3)[:, 0], [1, 4, 4, 8])


@pytest.mark.parametrize("event", ["frequency", "bump"])
def test_the_marked_segment_covers_the_planted_cause(event):
    result = explanations.measure(event, rows=10, steps=128, seed=0, oscillators=100, training=80)
    assert result.accuracy >= 0.9
    assert result.covered >= 0.9 and result.marked < 0.35
    assert result.largest_error < 1e-3


def test_the_benchmark_reports_every_event():
    result = explanations.run(quick=True)
    assert [record["event"] for record in result.to_dict()["records"]] == list(explanations.EVENTS)
