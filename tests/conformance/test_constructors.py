"""Constructors called from Python refuse what they do not know, in one sentence."""

import inspect
from typing import Literal, get_args, get_origin

import pytest
import torch
from member_groups import WHOLE

import undamped
from undamped._base.errors import OptionError, UndampedError, UnknownNameError
from undamped._base.options import PositiveInt, options_of
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.ode import NeuralODE
from undamped.ode.fields import HeavyBallField, PerceptronField


def sizes(name):
    if name in WHOLE:
        return {"shape": models[name].example_shape()}
    expected = {"input_size": 16, "output_size": 2, "hidden_size": 8}
    known = options_of(models[name])
    return {size: value for size, value in expected.items() if size in known}


def literals(annotation):
    parts = [annotation, *get_args(annotation)]
    return any(get_origin(part) is Literal for part in parts)


@pytest.mark.parametrize("name", list(models))
def test_every_model_refuses_a_slip(name):
    wrong = {
        option.name: 0 if option.annotation == PositiveInt else "exakt"
        for option in options_of(models[name]).values()
        if option.annotation == PositiveInt or literals(option.annotation)
    }
    plain = ("combination", "dtw", "ensemble", "guess", "ridge-lags", "seasonal-naive")
    assert wrong or name in plain  # which have neither
    for option, value in wrong.items():
        with pytest.raises(OptionError) as caught:
            models[name](**{**sizes(name), option: value})
        output = str(caught.value)
        assert output.startswith(f"{models[name].__name__}.{option} must be "), output
        assert "\n" not in output


@pytest.mark.parametrize(
    "build",
    [
        lambda: undamped.models.FFJORD(2, trace="exakt"),
        lambda: undamped.models.FFJORD(2, noise="gausian"),
        lambda: undamped.models.FFJORD(2, end=-1.0),
        lambda: undamped.models.FFJORD(2, method="dopri"),
        lambda: undamped.models.DepthVariantNODE(2, 2, basis="furier"),
        lambda: undamped.models.DepthVariantNODE(2, 2, terms=0),
        lambda: undamped.models.HBNODE(2, 2, momentum="learnt"),
        lambda: undamped.models.NODE(2, 2, augmented_size=1, augmentation="inputs"),
        lambda: undamped.models.NODE(2, 2, hidden_size=0),
        lambda: undamped.models.NODE(2, 2, tolerance=-1.0),
        lambda: undamped.models.NODE(2, 2, activation="foo"),
        lambda: undamped.models.NODE(2, 2, method="dopri"),
        lambda: undamped.models.RKNet(2, 2, steps=0),
        lambda: undamped.ode.StableResidual(4, 0),
        lambda: undamped.ode.StableResidual(2, 3, step_size=-1.0),
        lambda: undamped.ode.StableResidual(4, 3, kind="foo"),
        lambda: PerceptronField(2, activation="foo"),
        lambda: NeuralODE(PerceptronField(2), gradient="adjoined"),
        lambda: HeavyBallField(PerceptronField(2), damping=-0.1),
    ],
)
def test_a_slip_never_chooses_another_variant(build):
    with pytest.raises(UndampedError, match=r"(must be|expected) .*, got |Unknown "):
        build()


def test_numbers_come_converted_and_signatures_stay():
    model = undamped.models.NODE(2.0, 2, hidden_size=8)
    assert model.head.in_features == 2
    assert options_of(undamped.models.NODE)["tolerance"].default == 1e-3
    with pytest.raises(TypeError, match=r"'hiden_size'.*Did you mean 'hidden_size'\?"):
        undamped.models.NODE(2, 2, hiden_size=8)


SOLVING = [
    name for name in models if {"method", "tolerance", "gradient"} <= set(options_of(models[name]))
]


@pytest.mark.parametrize("name", SOLVING)
def test_options_of_a_solve_are_declared_once_and_known_everywhere(name):
    """In the signature, with the words of the group, and refused with the nearest name."""
    declared = options_of(models[name])
    shared = ["method", "tolerance", "step_size", "gradient"]
    if issubclass(models[name], ContinuousModel):
        shared += ["keep_gradient", "keep_weight", "keep_points", "keep_cosine", "depth"]
    assert sorted(list(declared)[-len(shared) :]) == sorted(shared)
    assert declared["tolerance"].description == "Relative and absolute tolerance."
    assert set(inspect.signature(models[name]).parameters) - {"shape"} == set(declared)
    if name not in WHOLE:
        turns = name == "linear-antisymmetric-node"
        usual = ["magnus4", 0.1] if turns else ["dopri5", None]
        assert [declared[key].default for key in ("method", "step_size")] == usual
        with pytest.raises(UnknownNameError, match=r"'tolerence'.*Did you mean 'tolerance'\?"):
            undamped.build(name, **sizes(name), tolerence=1e-3)
    with pytest.raises(TypeError, match=r"'tolerence'.*Did you mean 'tolerance'\?"):
        models[name](**sizes(name), tolerence=1e-3)
    with pytest.raises(OptionError, match="has no effect with step_size"):
        models[name](**sizes(name), tolerance=0.5, step_size=0.1)


def test_the_general_heavy_ball_is_one_class_with_one_thing_decided():
    assert "general" not in options_of(undamped.models.GHBNODE)
    assert options_of(undamped.models.GHBNODE)["damping"].description.startswith("Initial γ")
    with pytest.raises(UnknownNameError, match="general"):
        undamped.models.GHBNODE(2, 2, general=False)
    torch.manual_seed(0)
    general = undamped.models.GHBNODE(2, 2)
    torch.manual_seed(0)
    same = undamped.models.HBNODE(2, 2, general=True)
    x = torch.randn(5, 2)
    assert torch.equal(general(x), same(x))
