"""Programs as people write them for torchdiffeq, with the import changed: short trainings."""

import math

import pytest
import torch
from torch import nn

from undamped.ode import odeint, odeint_adjoint, odeint_event

INTERFACES = [odeint, odeint_adjoint]


def descend(parameters, loss_of, steps, rate=1e-2):
    """Return the losses of a short training."""
    optimiser, losses = torch.optim.Adam(parameters, lr=rate), []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = loss_of()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_spiral_is_learnt(interface):
    """ode_demo: a field is fitted to pieces of a trajectory."""
    torch.manual_seed(0)
    matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])

    class Truth(nn.Module):
        def forward(self, t, y):
            return torch.mm(y**3, matrix)

    t = torch.linspace(0.0, 2.0, 60)
    with torch.no_grad():
        path = odeint(Truth(), torch.tensor([[2.0, 0.0]]), t, method="dopri5")
    net = nn.Sequential(nn.Linear(2, 30), nn.Tanh(), nn.Linear(30, 2))

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, t, y):
            return self.net(y**3)

    field, batch = Field(), 6

    def loss():
        begin = torch.randperm(len(t) - 8)[:20]
        target = torch.stack([path[begin + k] for k in range(batch)])
        result = interface(field, path[begin], t[:batch], rtol=1e-5, atol=1e-5)
        return (result - target).abs().mean()

    losses = descend(field.parameters(), loss, 20)
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_latent_solve_between_encoder_and_decoder(interface):
    """latent_ode: a recurrent network reads backwards, a solve goes forwards from what it says."""
    torch.manual_seed(0)
    t = torch.linspace(0, 2, 12)
    waves = torch.sin(t[None, :, None] * 2 + torch.rand(8, 1, 1) * 6)  # (batch, time, 1)
    encoder, read = nn.GRU(1, 12, batch_first=True), nn.Linear(12, 4)
    decoder, inner = nn.Linear(4, 1), nn.Sequential(nn.Linear(4, 20), nn.ELU(), nn.Linear(20, 4))

    class Latent(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner
            self.calls = 0

        def forward(self, t, y):
            self.calls += 1
            return self.inner(y)

    field = Latent()

    def loss():
        start = read(encoder(waves.flip(1))[0][:, -1])
        path = interface(field, start, t, rtol=1e-4, atol=1e-5).permute(1, 0, 2)
        return (decoder(path) - waves).pow(2).mean()

    everything = [p for m in (encoder, read, decoder, field) for p in m.parameters()]
    losses = descend(everything, loss, 25)
    assert losses[-1] < 0.8 * losses[0] and field.calls > 0


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_density_flows(interface):
    """cnf: state and log-density as a tuple, with a trace inside the field."""
    torch.manual_seed(0)

    class Flow(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 2))

        def forward(self, t, states):
            z = states[0]
            with torch.set_grad_enabled(True):
                z.requires_grad_(True)
                slope = self.net(torch.cat((z, t.expand(len(z), 1)), 1))
                trace = sum(
                    torch.autograd.grad(slope[:, k].sum(), z, create_graph=True)[0][:, k]
                    for k in range(2)
                )
            return slope, -trace.view(-1, 1)

    field = Flow()
    points = torch.randn(40, 2) * 0.3 + torch.tensor([1.0, -1.0])

    def loss():
        z, density = interface(
            field,
            (points.clone(), torch.zeros(len(points), 1)),
            torch.tensor([1.0, 0.0]),
            atol=1e-4,
            rtol=1e-4,
            method="dopri5",
        )
        base = -z[-1].pow(2).sum(1) / 2 - math.log(2 * math.pi)
        return -(base - density[-1].squeeze(1)).mean()

    losses = descend(field.parameters(), loss, 15, rate=3e-2)
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("interface", INTERFACES)
def test_physics_are_learnt_from_the_time_of_an_event(interface):
    """learn_physics: the strength of gravity, from when a ball lands."""
    gravity = nn.Parameter(torch.tensor([6.0], dtype=torch.float64))

    class Fall(nn.Module):
        def __init__(self):
            super().__init__()
            self.gravity = gravity

        def forward(self, t, state):
            return state[1], -self.gravity

    truth = math.sqrt(2 * 10 / 9.8)

    def loss():
        start = (torch.tensor([10.0], dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
        when, _ = odeint_event(
            Fall(),
            start,
            torch.tensor(0.0, dtype=torch.float64),
            event_fn=lambda t, state: state[0],
            odeint_interface=interface,
            rtol=1e-7,
            atol=1e-7,
        )
        return (when - truth).pow(2).sum()

    descend([gravity], loss, 60, rate=0.2)
    assert abs(float(gravity.detach()) - 9.8) < 0.3
