"""Models with a latent start: their bounds and flows again, plainly, and what bands are worth."""

import numpy as np
import pytest
import torch
from irregular_oracles import (
    array,
    gru,
    linear,
    log_normal,
    modes_rnn,
    ode_rnn,
    perceptron,
    read_backwards,
    rotating,
)
from scipy.integrate import solve_ivp

import undamped
from undamped._base.contract import Batch, Clock, TaskShape
from undamped._base.errors import NonFiniteError, ShapeError
from undamped.lab import tasks
from undamped.lab.instruments.between_samples import predicted_curve
from undamped.lab.training import fit
from undamped.lab.training.update import check_loss
from undamped.models.irregular.model import TimestampedModel
from undamped.models.latent.points import Normal
from undamped.models.timestamped import observed_points, without

CLOCK = Clock(gap=0.4, span=3.0)
ASKED = TaskShape(
    2,
    2,
    answer="trajectory",
    needs=frozenset({"times", "observed"}),
    clock=CLOCK,
    same_channels=True,
)
CLASSES = TaskShape(2, 3, needs=frozenset({"times", "observed"}), clock=CLOCK)
UNIT = 5 / 3  # the flow's own time runs through five units in the span
SMALL = {"latent_size": 4, "hidden_size": 6}


def build(name, shape=ASKED, **options):
    torch.manual_seed(0)
    model = undamped.build(name, shape=shape, **SMALL, **options).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def example(batch=3):
    random = torch.Generator().manual_seed(1)
    x = torch.randn(5, batch, 2, generator=random, dtype=torch.float64)
    times = 0.8 * torch.rand(5, batch, generator=random, dtype=torch.float64).cumsum(0)
    seen = torch.rand(5, batch, 2, generator=random) > 0.3
    seen[:, :, 0] |= ~seen.any(-1)
    lengths = torch.tensor([5, 3, 1])[:batch]
    asked = torch.linspace(0.1, 2.9, 4, dtype=torch.float64).unsqueeze(1).repeat(1, batch)
    asked[2, 0] = times[3, 0]
    asked = asked.sort(0).values
    targets = torch.randn(4, batch, 2, generator=random, dtype=torch.float64)
    known = torch.rand(4, batch, 2, generator=random) > 0.2
    return Batch(
        x.masked_fill(~seen, torch.nan),
        targets.masked_fill(~known, torch.nan),
        lengths,
        times,
        seen,
        asked,
        known,
    )


def mean_square(prediction, batch):
    return torch.where(batch.target_mask, prediction - batch.targets, 0.0).square().mean()


def one(batch, b):
    """One sequence as arrays: values, times, what was seen."""
    n = int(batch.lengths[b])
    values = batch.inputs[:n, b].nan_to_num(99).numpy()
    return values, batch.times[:n, b].numpy(), batch.observed[:n, b].numpy()


@pytest.mark.parametrize(
    ("options", "oracle", "slope"),
    [
        ({"steps": 200}, modes_rnn, rotating),
        ({"steps": 200, "encoder": "ode-rnn", "field": "perceptron"}, ode_rnn, perceptron),
    ],
)
@pytest.mark.parametrize("bound", ["elbo", "iwae"])
def test_latent_ode_is_its_equations(options, oracle, slope, bound):
    model = build("latent-ode", draws=3, bound=bound, annealing=10, **options)
    model.updates.fill_(4)
    batch = example()
    torch.manual_seed(5)
    aim = model.objective(batch, mean_square)
    torch.manual_seed(5)
    noise = torch.randn(3, 3, 4, dtype=torch.float64).numpy()
    std = np.exp(array(model.emission.log_noise))
    total, points = 0.0, 0
    for b in range(3):
        x, times, seen = one(batch, b)
        mean, log_std = read_backwards(model.encoder, x, times, seen, oracle)
        known = batch.target_mask[:, b].numpy()
        asked = batch.target_times[:, b].numpy()
        targets = batch.targets[:, b].nan_to_num(0).numpy()
        bounds = []
        for k in range(3):
            z = mean + np.exp(log_std) * noise[k, b]
            path = solve_ivp(
                lambda _, y: UNIT * slope(model.flow.step.field, y),
                (0, 3.0),
                z,
                rtol=1e-9,
                atol=1e-10,
                dense_output=True,
            ).sol
            likelihood = 0.0
            for t, value, there in zip(asked, targets, known, strict=True):
                each = log_normal(value, linear(model.emission.decoder, path(t)), std)
                likelihood += each[there].sum()
            for t, value, there in zip(times, x, seen, strict=True):
                twice = (known & (asked == t)[:, None]).any(0)
                each = log_normal(value, linear(model.emission.decoder, path(t)), std)
                likelihood += each[there & ~twice].sum()
            ratio = log_normal(z, 0.0, 1.0).sum() - log_normal(z, mean, np.exp(log_std)).sum()
            bounds.append((likelihood, ratio))
        twice = sum(
            ((times == t)[:, None] & seen & k).sum() for t, k in zip(asked, known, strict=True)
        )
        points += seen.sum() + known.sum() - twice
        result = np.array(bounds)
        if bound == "elbo":
            divergence = 0.5 * (np.exp(2 * log_std) + mean**2 - 1 - 2 * log_std).sum()
            total += result[:, 0].mean() - 0.4 * divergence
        else:
            total += np.logaddexp.reduce(result[:, 0] + 0.4 * result[:, 1]) - np.log(3)
    assert aim.total.item() == pytest.approx(-total / points, rel=1e-5)
    assert aim.loss.isfinite()


def test_rnn_vae_is_its_equations():
    model = build("rnn-vae")
    batch = example()
    asked = batch.target_times
    answers = model(batch)
    net = model.encoder.network
    for b in range(3):
        x, times, seen = one(batch, b)
        h, now = np.zeros(6), times[-1]
        for value, t, m in zip(x[::-1], times[::-1], seen[::-1], strict=True):
            told = np.concatenate([np.where(m, value, 0), m, [np.log1p((now - t) / net.gap)]])
            h, now = gru(net.cell, told, h), t
        hidden = np.tanh(linear(model.encoder.readout[0], h))
        mean, _ = np.split(linear(model.encoder.readout[2], hidden), 2)
        h, now = linear(model.first, mean), 0.0
        cell = next(m for m in model.writer.modules() if hasattr(m, "weight_ih"))
        for i, t in enumerate(asked[:, b].numpy()):
            h, now = gru(cell, np.array([np.log1p((t - now) / 0.4)]), h), t
            output = linear(model.emission.decoder, h)
            np.testing.assert_allclose(answers[i, b].detach(), output, atol=1e-9)


def test_ode2vae_is_its_equations():
    model = build("ode2vae", path_weight=0.7, sequences=50, annealing=0, steps=120, field_size=5)
    with torch.no_grad():
        for deviation in model.field.log_deviations:
            deviation.fill_(-1.0)
    batch = example()
    torch.manual_seed(5)
    total = model.objective(batch, mean_square).total.item()
    assert model.field.weights[0] is model.field.means[0]
    torch.manual_seed(5)
    drawn = [
        array(m) + np.exp(array(d)) * torch.randn_like(m).numpy()
        for m, d in zip(model.field.means, model.field.log_deviations, strict=True)
    ]
    noise = torch.randn(1, 3, 8, dtype=torch.float64).numpy()[0]

    def slope(_, y):
        first, first_bias, second, second_bias = drawn
        inside = first @ y[:8] + first_bias
        accelerated = second @ np.tanh(inside) + second_bias
        jacobian = second @ np.diag(1 - np.tanh(inside) ** 2) @ first[:, 4:]
        return UNIT * np.concatenate([y[4:8], accelerated, [-np.trace(jacobian)]])

    weights = sum(
        (0.5 * (np.exp(2 * array(d)) + array(m) ** 2 - 1) - array(d)).sum()
        for m, d in zip(model.field.means, model.field.log_deviations, strict=True)
    )
    std = np.exp(array(model.emission.log_noise))
    expected, points = 0.0, 0
    for b in range(3):
        x, times, seen = one(batch, b)
        mean, log_std = read_backwards(model.encoder, x, times, seen, modes_rnn)
        z = mean + np.exp(log_std) * noise[b]
        begin = np.append(z, log_normal(z, mean, np.exp(log_std)).sum())
        path = solve_ivp(slope, (0, 3.0), begin, rtol=1e-9, atol=1e-10, dense_output=True).sol
        asked, known = batch.target_times[:, b].numpy(), batch.target_mask[:, b].numpy()
        targets = batch.targets[:, b].nan_to_num(0).numpy()
        first = [
            (t, v, there & ~(known & (asked == t)[:, None]).any(0))
            for t, v, there in zip(times, x, seen, strict=True)
        ]
        along = []
        for t, value, there in [*first, *zip(asked, targets, known, strict=True)]:
            state = path(t)
            each = log_normal(value, linear(model.emission.decoder, state[:4]), std)
            expected, points = expected + each[there].sum(), points + there.sum()
            if there.any():
                along.append(state[8] - log_normal(state[:8], 0.0, 1.0).sum())
        expected -= 0.7 * np.mean(along)
        expected -= 0.5 * (np.exp(2 * log_std) + mean**2 - 1 - 2 * log_std).sum() + weights / 50
    assert total == pytest.approx(-expected / points, rel=1e-5)


@pytest.mark.parametrize("name", ["latent-ode", "rnn-vae", "ode2vae"])
@pytest.mark.parametrize("shape", [ASKED, CLASSES])
def test_companions_and_padding_change_no_answer(name, shape):
    model = build(name, shape).float()
    batch = example().cast(torch.float32)
    full = model(batch)
    every = full if shape is ASKED else full.unsqueeze(0)
    order = torch.tensor([2, 0, 1])
    mixed = model(_pick(batch, order))
    mixed = mixed if shape is ASKED else mixed.unsqueeze(0)
    torch.testing.assert_close(mixed, every[:, order], rtol=1e-6, atol=1e-6)
    for b, n in enumerate(batch.lengths.tolist()):
        own = _pick(batch, torch.tensor([b]))
        own = own._replace(
            inputs=own.inputs[:n], times=own.times[:n], observed=own.observed[:n], lengths=None
        )
        separate = model(own)
        separate = separate if shape is ASKED else separate.unsqueeze(0)
        torch.testing.assert_close(separate[:, 0], every[:, b], rtol=1e-6, atol=1e-6)


def _pick(batch, order):
    return Batch(
        *(
            part if part is None else part[order] if part.dim() == 1 else part[:, order]
            for part in batch[:-1]
        )
    )


def test_gradients_of_a_bound_are_right():
    model = build("latent-ode", poisson=True, steps=3, field_size=3, draws=2, bound="iwae")
    batch = example()
    leaves = {n: p for n, p in model.named_parameters() if p.requires_grad}

    def objective(*values):
        torch.manual_seed(3)
        given = dict(zip(leaves, values, strict=True))
        return torch.func.functional_call(
            _Aiming(model), {f"model.{n}": v for n, v in given.items()}, (batch,)
        )

    values = [p.detach().clone().requires_grad_() for p in leaves.values()]
    assert torch.autograd.gradcheck(objective, values, fast_mode=True)


class _Aiming(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, batch):
        return self.model.objective(batch, mean_square).total


def test_intensities_are_integrated():
    model = build("latent-ode", poisson=True, poisson_weight=1.0, steps=60)
    batch = example()
    points = observed_points(batch, 0.4, torch.float64)
    starts = torch.randn(1, 3, 4, dtype=torch.float64)
    states = model.decode(starts, points.times)
    result = model.of_times(model.posterior(batch), starts, states, points)
    for b in range(3):
        _, times, seen = one(batch, b)
        grid = torch.linspace(0, float(times[-1]), 4001, dtype=torch.float64).unsqueeze(1)
        rates = model.intensity(model.decode(starts[:, b : b + 1], grid))[0, :, 0]
        happened = model.intensity(states)[0, : len(times), b][torch.from_numpy(seen)].sum()
        expected = torch.trapezoid(rates.exp(), grid / 0.4, dim=0).sum()
        torch.testing.assert_close(result[0, b], happened - expected, rtol=1e-5, atol=1e-5)


def test_a_band_holds_what_it_says():
    model = build("latent-ode", TaskShape(2, 2, clock=CLOCK), noise=0.5)
    with torch.no_grad():  # all that varies is the noise
        model.encoder.readout[2].weight.zero_()
        model.encoder.readout[2].bias[4:] = -100.0
    batch = Batch(torch.randn(5, 2, 2, dtype=torch.float64))
    times = torch.linspace(0, 4, 7, dtype=torch.float64).unsqueeze(1).expand(-1, 2)
    curve = predicted_curve(model, batch, times, draws=600)
    width = (curve.high - curve.low) / 2
    expected = (1.6449 * model.emission.log_noise.exp()).expand_as(width)
    torch.testing.assert_close(width, expected, rtol=0.2, atol=0)
    assert ((curve.low < curve.mean) & (curve.mean < curve.high)).all()
    repeated = predicted_curve(model, batch, times, draws=600)
    assert torch.equal(curve.low, repeated.low)


def test_points_that_are_asked_for_count_once():
    batch = example()
    seen = observed_points(batch, 0.4, torch.float64)
    assert seen.mask.sum() == sum(one(batch, b)[2].sum() for b in range(3))
    assert not without(seen, seen).mask.any()


def test_the_divergence_is_that_of_torch():
    q = Normal(torch.randn(3, 4), torch.randn(3, 4))
    torch_q = torch.distributions.Normal(q.mean, q.log_std.exp())
    expected = torch.distributions.kl_divergence(torch_q, torch.distributions.Normal(0.0, 1.0))
    torch.testing.assert_close(q.divergence(), expected.sum(-1))


def test_answers_at_times_need_times():
    with pytest.raises(ShapeError, match="target_times"):
        build("latent-ode")(example()._replace(target_times=None))
    with pytest.raises(ShapeError, match="target_times"):
        TimestampedModel("gru-d", 2, 2, at_times=True, hidden_size=3)(Batch(torch.zeros(3, 1, 2)))


@pytest.mark.parametrize("name", ["latent-ode", "rnn-vae", "ode2vae"])
def test_a_loss_that_is_not_finite_names_the_part_where_that_began(name):
    def first_bad(change):
        model, batch = build(name), example()
        with torch.no_grad():
            change(model)
        loss = model.objective(batch, mean_square).total
        with pytest.raises(NonFiniteError) as raised:
            check_loss(loss, 3, model, batch)
        return str(raised.value)

    def spoiled(part):
        def change(model):
            for parameter in part(model).parameters():
                parameter.fill_(1e308)

        return first_bad(change)

    assert "the output of encoder" in spoiled(lambda model: model.encoder.readout)
    if name != "rnn-vae":  # whose writer saturates
        assert "the output of flow" in spoiled(lambda model: model.flow)
    assert "of emission" in spoiled(lambda model: model.emission.decoder)


def test_the_weights_of_ode2vae_are_shared_by_the_training_sequences(tmp_path):
    task = tasks.build("periodic", series=30, points=10, observed=5)
    quick = {"steps": 1, "validate_every": 1}
    for options, expected in (({}, 30), ({"sequences": 7}, 7)):
        run = fit("ode2vae", task, model_options=options, train=quick, out=tmp_path, progress=False)
        assert run.model().sequences == expected
        assert run.settings["model"]["options"]["sequences"] == expected
