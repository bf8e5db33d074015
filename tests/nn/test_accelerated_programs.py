"""Programs of users train in the same way before and after `accelerate`."""

import pytest
import torch
from programs import PROGRAMS

import undamped


def train(program, accelerated, updates=6):
    """Return the losses of some updates, and the weights after them."""
    torch.manual_seed(0)
    model = program()
    if accelerated:
        report = undamped.accelerate(model)
        assert report.replaced
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(updates):
        optimiser.zero_grad()
        loss = model.loss()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.detach())
    return torch.stack(losses), model


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_trains_as_before(program):
    before, model = train(program, False)
    after, fast = train(program, True)
    assert before[-1] < before[0] or before[1:].min() < before[0]
    assert torch.allclose(before, after, rtol=1e-4, atol=1e-5)
    fast.load_state_dict(model.state_dict())
    torch.manual_seed(1)
    expected = model.eval().loss()
    torch.manual_seed(1)
    assert torch.allclose(fast.eval().loss(), expected, atol=1e-6)
    undamped.restore(fast)
    assert [type(part) for part in fast.modules()] == [type(part) for part in model.modules()]
