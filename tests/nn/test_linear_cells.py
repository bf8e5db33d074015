"""Cells whose recurrence is linear: starts, gradients and eigenvalues, each against a formula."""

import numpy as np
import pytest
import torch
from family_oracles import array, linoss, lmu, s4d

import undamped
from oracles import sigmoid
from undamped._base.errors import OptionError
from undamped.analysis import measure
from undamped.nn.light import positive
from undamped.nn.lmu import legendre_memory

logistic = torch.nn.functional.logsigmoid


def inputs(time=12, batch=2, size=3):
    generator = torch.Generator().manual_seed(3)
    return torch.randn(time, batch, size, generator=generator, dtype=torch.float64)


def test_imex_is_the_papers_equation_and_its_eigenvalues_lie_on_the_circle():
    torch.manual_seed(0)
    net = undamped.nn.LinOSS(3, 5, oscillators=4, method="imex").double()
    x = inputs()
    np.testing.assert_allclose(net(x)[0].detach(), linoss(x.numpy(), net.cell(0)), atol=1e-12)
    torch.testing.assert_close(net.cell(0).spectrum(), torch.ones(16, dtype=torch.float64))
    with torch.no_grad():
        net.cell(0).frequency.add_(30.0)  # too fast for its step: one of a pair grows
    assert all(result.holds for result in measure(net.cell(0)))
    assert net.cell(0).spectrum().max() > 2


# Gradients by a step into the complex plane, which rounds nothing: the equations once more, in
# real numbers, as functions of every parameter.


def oscillators(p, x, coefficients):
    keep, pull, push, step = (np.tile(c, 2) for c in coefficients)
    position = velocity = np.zeros((x.shape[1], len(step)), complex)
    outputs = []
    for x_t in x:
        velocity = keep * velocity - pull * position + push * (x_t @ p["input_weight"].T)
        position = position + step * velocity
        outputs.append(position @ p["output_weight"].T + x_t @ p["pass_weight"].T)
    return np.stack(outputs)


def implicit(p, x):
    step = sigmoid(p["step_logit"])
    S = 1 / (1 + step**2 * p["frequency"])
    return oscillators(p, x, (S, S * step * p["frequency"], S * step, step))


def by_turns(p, x):
    step = sigmoid(p["step_logit"])
    return oscillators(p, x, (np.ones_like(step), step * p["frequency"], step, step))


def damped(p, x):
    step = sigmoid(p["step_logit"])
    over = 1 + step * p["damping"]
    return oscillators(p, x, (1 / over, step * p["frequency"] / over, step / over, step))


def turning(p, x):
    size, phase = np.exp(-np.exp(p["shrink_log"])), np.exp(p["phase_log"])
    a, b = size * np.cos(phase), size * np.sin(phase)
    V = np.exp(p["gain_log"])[:, None, None] * p["input_weight"]
    real = imaginary = np.zeros((x.shape[1], len(a)), complex)
    outputs = []
    for x_t in x:
        real, imaginary = (
            a * real - b * imaginary + x_t @ V[:, 0].T,
            b * real + a * imaginary + x_t @ V[:, 1].T,
        )
        C = p["output_weight"]
        outputs.append(real @ C[:, ::2].T + imaginary @ C[:, 1::2].T + x_t @ p["pass_weight"].T)
    return np.stack(outputs)


@pytest.mark.parametrize(
    ("name", "options", "equation"),
    [
        ("linoss", {"oscillators": 2}, implicit),
        ("linoss", {"oscillators": 2, "method": "imex"}, by_turns),
        ("d-linoss", {"oscillators": 2, "largest": 0.99}, damped),
        ("lru", {"modes": 2, "smallest": 0.5}, turning),
    ],
)
def test_gradients_are_those_of_the_equation(name, options, equation):
    torch.manual_seed(4)
    net = undamped.build(name, input_size=3, hidden_size=2, **options).double()
    x = inputs(9)
    weights = torch.randn(9, 2, 2, dtype=torch.float64)
    (net(x)[0] * weights).sum().backward()
    cell = net.cell(0)
    p = {key: array(value) + 0j for key, value in cell.named_parameters()}
    for key, parameter in cell.named_parameters():
        for at in np.ndindex(*parameter.shape):
            moved = p[key].copy()
            moved[at] += 1e-30j
            slope = (equation({**p, key: moved}, x.numpy()).imag / 1e-30 * weights.numpy()).sum()
            assert abs(parameter.grad[at].item() - slope) < 1e-10 * max(1, abs(slope)), (key, at)


def test_damped_oscillators_start_in_their_ring():
    torch.manual_seed(0)
    cell = undamped.nn.DLinOSS(3, 4, oscillators=400).double().cell(0)
    moduli = cell.spectrum().detach()
    assert 0.9 <= moduli.min() < 0.91 and 0.99 < moduli.max() <= 1 + 1e-6
    # Uniform over the area: half of them beyond the radius that halves it.
    assert abs((moduli**2).median() - (0.81 + 1) / 2) < 0.02
    keep, pull, _, step = cell.coefficients()
    cosine = (1 + keep - step * pull) / (2 * keep.sqrt())
    angles = torch.arccos(cosine.detach().clamp(-1, 1))
    assert abs(angles.mean() - torch.pi / 2) < 0.15 and angles.min() < 0.1
    with pytest.raises(OptionError, match=r"smallest must be > 0 and at most"):
        undamped.nn.DLinOSS(3, 4, smallest=0.99, largest=0.5)


def test_the_eigenvalues_of_lru_start_uniform_in_a_disc_or_as_those_of_s5():
    torch.manual_seed(0)
    ring = undamped.nn.LRU(3, 4, modes=500, smallest=0.4).cell(0)
    moduli = ring.spectrum().detach()
    assert moduli.min() >= 0.4 and moduli.max() < 1
    assert abs((moduli**2).mean() - (0.16 + 1) / 2) < 0.03
    torch.testing.assert_close(
        ring.gain_log.exp().detach() ** 2, 1 - moduli[:500] ** 2, atol=1e-4, rtol=1e-3
    )
    # The normal part of HiPPO-LegS written down, A + p pᵀ.
    n = np.arange(16)
    root = np.sqrt(2 * n + 1)
    A = -np.tril(np.outer(root, root), -1) - np.diag(n + 1)
    rates = np.linalg.eigvals(A + 0.5 * np.outer(root, root))
    np.testing.assert_allclose(rates.real, -0.5, atol=1e-9)
    expected = np.sort(rates.imag[rates.imag > 0])
    s5 = undamped.nn.LRU(3, 4, modes=8, start="hippo").cell(0)
    steps = 2 * s5.shrink_log.exp().detach().numpy()
    assert steps.min() >= 1e-3 and steps.max() <= 1e-1
    np.testing.assert_allclose(s5.phase_log.exp().detach().numpy() / steps, expected, rtol=1e-4)
    rates = -0.5 + 1j * expected
    gains = np.abs((np.exp(rates * steps) - 1) / rates)
    np.testing.assert_allclose(s5.gain_log.exp().detach(), gains, rtol=1e-4)
    with pytest.raises(OptionError, match="smallest must be"):
        undamped.nn.LRU(3, 4, smallest=0.9, largest=0.5)


@pytest.mark.parametrize("start", ["lin", "inv", "legs"])
@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
def test_s4d_is_the_papers_equation_from_every_start(start, discretisation):
    torch.manual_seed(0)
    options = {"modes": 6, "start": start, "discretisation": discretisation}
    net = undamped.nn.S4D(3, 5, **options)
    x, double = inputs(60), net.double()
    expected = s4d(x.numpy(), double.cell(0))
    np.testing.assert_allclose(double(x)[0].detach(), expected, atol=1e-12)
    cell = double.cell(0)
    n = np.arange(6)
    paper = {"lin": np.pi * n, "inv": 12 / np.pi * (12 / (2 * n + 1) - 1)}
    if start in paper:
        np.testing.assert_allclose(cell.frequency[0].detach(), paper[start], rtol=1e-6)
    assert torch.allclose(cell.rate_log.exp(), torch.tensor(0.5).double())
    assert all(result.holds for result in measure(cell))
    with pytest.raises(OptionError, match="smallest_step must be at most"):
        undamped.nn.S4D(3, 5, smallest_step=0.5)


def test_a_legendre_memory_holds_the_last_window_and_never_grows():
    """Its polynomials reproduce a slow signal from θ steps ago until now."""
    order, window = 12, 64
    step, drive = (torch.from_numpy(array) for array in legendre_memory(order, window))
    assert torch.linalg.matrix_norm(step, 2) <= 1 + 1e-12
    assert np.linalg.norm(legendre_memory(256, 784.0)[0], 2) <= 1 + 1e-12
    signal = np.sin(2 * np.pi * np.arange(300) / 100)
    m = np.zeros(order)
    for u in signal:
        m = step.numpy() @ m + drive[:, 0].numpy() * u
    for age in (8, 32, 56):
        value = m @ (np.sqrt(2 * np.arange(order) + 1) * legendre_values(order, 2 * age / window))
        assert abs(value - np.sin(2 * np.pi * (299.5 - age) / 100)) < 0.02


def legendre_values(order, x):
    """P_i(x − 1)."""
    return np.polynomial.legendre.legvander(np.array([x - 1]), order - 1)[0]


@pytest.mark.parametrize("feedback", [False, True])
def test_lmu_is_the_papers_equation_in_both_precisions(feedback):
    torch.manual_seed(1)
    options = {"order": 16, "window": 40.0, "channels": 2, "feedback": feedback}
    net = undamped.nn.LMU(3, 5, **options)
    if feedback:
        torch.nn.init.normal_(net.cell(0).memory_encoder, std=0.05)
    x = inputs(80)
    expected = lmu(x.numpy(), net.double().cell(0))
    np.testing.assert_allclose(net(x)[0].detach(), expected, atol=1e-12)
    np.testing.assert_allclose(net.float()(x.float())[0].detach(), expected, atol=2e-5)


def test_candidates_of_zero_have_the_papers_slope():
    """g(v) = v + ½ from v = 0 on: zero input and zero bias reach it exactly."""
    v = torch.tensor([-40.0, -1.0, -0.0, 0.0, 1.0, 1e30], requires_grad=True)
    (slope,) = torch.autograd.grad(positive(v).sum(), v)
    share = torch.sigmoid(torch.tensor([-40.0, -1.0]))
    torch.testing.assert_close(slope, torch.cat([share * (1 - share), torch.ones(4)]))


def test_mingru_is_the_papers_scan_over_logarithms():
    """All of h at once: log h = Σ log a + log Σ exp(log b − Σ log a), from the zero state."""
    torch.manual_seed(0)
    net = undamped.nn.MinGRU(3, 5, dtype=torch.float64)
    x = torch.randn(300, 2, 3, dtype=torch.float64)
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    output, _ = net(one)
    cell = net.cell(0)
    gate, candidate = torch.nn.functional.linear(two, cell.input_weight, cell.bias).chunk(2, -1)
    log_g = torch.where(candidate >= 0, candidate.relu().add(0.5).log(), logistic(candidate))
    kept = logistic(-gate).cumsum(0)
    paper = (kept + (logistic(gate) + log_g - kept).logcumsumexp(0)).exp()
    torch.testing.assert_close(output, paper, rtol=1e-12, atol=1e-12)
    weight = torch.randn_like(output)
    (output * weight).sum().backward()
    (paper * weight).sum().backward()
    torch.testing.assert_close(one.grad, two.grad, rtol=1e-10, atol=1e-11)


def test_closed_gates_divide():
    net = undamped.nn.MinLSTM(1, 2)
    with torch.no_grad():
        net.cell(0).bias[:4] = -200.0
        output = net(torch.zeros(3, 1, 1))[0]
    assert output.isfinite().all() and output.abs().sum() > 0
