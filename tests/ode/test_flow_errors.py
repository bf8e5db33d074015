"""What a neural ODE says of fields and states that do not fit; and the compiler leaves it alone."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped.ode.fields import PerceptronField


class Foreign(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, t, y):
        return self.layer(y)


class Failing(nn.Module):
    def forward(self, t, y):
        if t > 0:
            raise RuntimeError("the weather")
        return -y


@pytest.mark.parametrize(
    "field", [nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Tanh())], ids=["one", "many"]
)
def test_a_field_without_a_time_is_refused_when_it_is_given(field):
    with pytest.raises(OptionError, match=r"NeuralODE\.field must be a module called with"):
        undamped.NeuralODE(field)


@pytest.mark.parametrize("field", [PerceptronField(2, 4), Foreign()], ids=["ours", "foreign"])
@pytest.mark.parametrize(
    ("state", "said"),
    [
        (
            torch.randn(3, 5),
            r"must be what its field \w+ takes.*got \(3, 5\)\. The field raised: mat1",
        ),
        (
            torch.randn(3, 2).double(),
            r"must be float32, the type of its field \w+, got float64\. Convert",
        ),
    ],
    ids=["width", "type"],
)
def test_a_state_that_does_not_fit_is_named(field, state, said):
    with pytest.raises(ShapeError, match=rf"NeuralODE state .*{said}"):
        undamped.NeuralODE(field)(state)


@pytest.mark.parametrize("where", ["state", "field"])
def test_tensors_without_numbers_are_named(where):
    model, state = undamped.NeuralODE(PerceptronField(2, 8)), torch.randn(3, 2)
    if where == "state":
        state = state.to("meta")
    else:
        model = model.to("meta")
    with pytest.raises(ShapeError, match=r"is on 'meta'.*values"):
        model(state)


def test_what_a_field_itself_raises_later_stays():
    with pytest.raises(RuntimeError, match="the weather"):
        undamped.NeuralODE(Failing())(torch.randn(3, 2))


@pytest.mark.process
def test_a_solve_does_not_load_the_compiler():
    code = """
import sys, torch, undamped
from undamped.ode.fields import PerceptronField
undamped.NeuralODE(PerceptronField(2, 4))(torch.ones(1, 2))
print("torch._dynamo" in sys.modules)
"""
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "False"


class Between(nn.Module):
    """A solve among other layers, as people write it."""

    def __init__(self):
        super().__init__()
        self.layer, self.field = nn.Linear(2, 2), PerceptronField(2, 8)

    def forward(self, x):
        return undamped.odeint(self.field, self.layer(x), torch.tensor([0.0, 1.0]))[-1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda: undamped.NeuralODE(PerceptronField(2, 8)),
        Between,
        lambda: undamped.models.DataControlledNODE(2, 2, hidden_size=8, adaptive_depth=True),
    ],
    ids=["neural-ode", "odeint", "adaptive-depth"],
)
def test_compiled_is_the_same_values_and_gradients(make):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = make(), torch.randn(5, 2)
    expected = model(x)
    expected.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    # Without a code generator: what is looked at is what the compiler takes for itself.
    result = torch.compile(model, backend="aot_eager")(x)
    result.sum().backward()
    assert torch.allclose(result, expected, atol=1e-6)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.allclose(parameter.grad, gradient, atol=1e-5)
