"""Wrong inputs of vector, picture and flow models: what is expected, what came, what to do."""

import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped.ode import ContinuousFlow
from undamped.ode.fields import BottleneckField, ConcatSquashField

VECTORS = [
    "node", "hbnode", "ghbnode", "sonode", "depth-variant-node", "data-controlled-node",
    "rk-net", "resnet", "stable-residual",
]  # fmt: skip
PICTURES = ["conv-node", "conv-sonode", "conv-hbnode"]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("name", VECTORS)
def test_models_of_vectors_say_what_they_expect(name):
    model = undamped.build(name, input_size=3, output_size=2)
    for x, words in (
        (torch.randn(4, 5), r"shape \(batch, 3\), got \(4, 5\)\. Give 3 features"),
        (torch.randn(4, 1, 3, 1), r"x\.flatten\(1\)"),
        (torch.tensor(1.0), r"got \(\)"),
        (torch.randn(4, 3).double(), r"float32, the model's type, got float64\..*x\.float\(\)"),
        (torch.ones(4, 3, dtype=torch.long), r"float32, the model's type, got int64"),
        ([[1.0, 2.0, 3.0]], "a tensor, got list"),
    ):
        with pytest.raises(ShapeError, match=words):
            model(x)
    with pytest.raises(ShapeError, match=r"float64, .* got float32\..*x\.to\(torch\.float64\)"):
        model.double()(torch.randn(4, 3))


@pytest.mark.parametrize("name", ["node", "hbnode"])
def test_augmented_models_expect_what_comes_before_augmentation(name):
    model = undamped.build(name, input_size=3, output_size=2, augmented_size=2)
    assert model(torch.randn(4, 3)).shape == (4, 2)
    with pytest.raises(ShapeError, match=r"\(batch, 3\)"):
        model(torch.randn(4, 5))


@pytest.mark.parametrize("name", PICTURES)
def test_models_of_pictures_say_what_they_expect(name):
    model = undamped.build(name, input_size=48, output_size=2, colours=3, hidden_size=4)
    for x, words in (
        (torch.randn(2, 3, 4, 4), r"3 × 4 × 4.*got \(2, 3, 4, 4\)\..*x\.flatten\(1\)"),
        (torch.randn(2, 4, 4, 3), r"x\.permute\(0, 3, 1, 2\)\.flatten\(1\)"),
        (torch.randn(48), r"x\.reshape\(1, -1\)"),
        (torch.randn(2, 47), "input_size"),
        (torch.zeros(2, 48, dtype=torch.uint8), "got uint8"),
    ):
        with pytest.raises(ShapeError, match=words):
            model(x)


@pytest.mark.parametrize("name", [*VECTORS, *PICTURES])
def test_mixed_precision_still_works(name):
    sizes = {"input_size": 16, "output_size": 2}
    model = undamped.build(name, **sizes)
    for kind in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", torch.bfloat16):
            out = model(torch.randn(4, 16).to(kind))
        out.float().sum().backward()
        assert out.shape == (4, 2)


def test_a_stable_residual_network_says_what_it_expects():
    net = undamped.ode.StableResidual(4, 3)
    with pytest.raises(ShapeError, match=r"\(batch, 4\)"):
        net(torch.randn(2, 3))
    with pytest.raises(ShapeError, match="float64"):
        net(torch.randn(2, 4).double())


def test_flows_say_what_data_they_expect():
    flow = undamped.models.FFJORD(2, hidden_size=8)
    for x, words in (
        (torch.randn(4, 3), r"\(batch, 2\), got \(4, 3\)"),
        (torch.randn(2), r"\(batch, 2\), got \(2,\)"),
        (torch.randn(4, 2, 2), r"got \(4, 2, 2\)"),
        (torch.randn(4, 2).double(), "got float64"),
        (torch.ones(4, 2).long(), "got int64"),
    ):
        with pytest.raises(ShapeError, match=words):
            flow.log_prob(x)
    for count in (-1, 1.5):
        with pytest.raises(OptionError, match="count"):
            flow.sample(count)
    with torch.autocast("cpu", torch.bfloat16):
        loss = -flow.log_prob(torch.randn(4, 2).bfloat16()).mean()
    loss.backward()


def test_flows_say_what_condition_they_expect():
    flow = undamped.models.FFJORD(2, hidden_size=8, context_size=3)
    x = torch.randn(4, 2)
    for context, words in (
        (None, r"must be \(4, 3\), got none"),
        (torch.randn(4, 2), r"must be \(4, 3\), got \(4, 2\)"),
        (torch.randn(3, 3), r"must be \(4, 3\), got \(3, 3\)"),
        (torch.randn(1, 3), r"context\.expand\(4, -1\)"),
        (torch.randn(3), r"got \(3,\)"),
        (torch.randn(4, 3).double(), r"context\.to\(torch\.float32\)"),
    ):
        with pytest.raises(ShapeError, match=words):
            flow(x, context)
        with pytest.raises(ShapeError, match=words):
            flow.sample(4, context=context)
    full = torch.randint(0, 2, (4, 3))
    torch.testing.assert_close(flow.eval()(x, full).log_prob, flow(x, full.float()).log_prob)
    for field in (ConcatSquashField(2, 8), BottleneckField(2, 1, 8)):
        with pytest.raises(ShapeError, match="context_size"):
            ContinuousFlow(field, 2)(x, torch.randn(4, 3))


def test_a_flow_leaves_types_to_fields_from_elsewhere():
    class Short(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, t, z):
            return self.layer(z.float()).to(z.dtype)

    assert ContinuousFlow(Short(), 2).log_prob(torch.randn(4, 2).double()).dtype == torch.float64
    with pytest.raises(ShapeError, match="floating-point"):
        ContinuousFlow(Short(), 2).log_prob(torch.ones(4, 2).long())


def test_a_flow_draws_samples_in_its_fields_type():
    flow = ContinuousFlow(ConcatSquashField(2, 8).double(), 2)
    assert flow.sample(3)[0].dtype == torch.float64
