"""Checks of models that are not recurrent networks: predictions, gradients, options, promises."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch, TaskShape
from undamped._base.options import options_of, signature_options
from undamped.models.task_model import TaskModel
from undamped.nn.recurrent import Recurrent
from undamped.testing.comparison import assert_promises, assert_same, run_checks
from undamped.testing.networks import check_network

Build = Callable[..., nn.Module]
"""Returns a model, given options of its constructor."""
POINTS = TaskShape(4, 2, sequential=False)
"""The task of models that take `input_size` and `output_size`."""


def check_model(model_class: type[nn.Module], **options: Any) -> None:
    """Check a model: all of `MODEL_CHECKS`, or those of a recurrent network.

    A `TaskModel` is built for its `example_shape()`. Any other model takes `input_size` and,
    unless it models a density, `output_size`, and is called with (batch, input_size).

    Args:
        model_class: The class of the model.
        options: Options of its constructor, beside sizes and shape.
    """
    if issubclass(model_class, Recurrent):
        check_network(model_class, **options)
        return
    build = partial(small_model, model_class, **options)
    run_checks(model_class.__name__, MODEL_CHECKS, build, example_inputs(model_class))


def small_model(model_class: Callable[..., nn.Module], **options: Any) -> nn.Module:
    """Return a model for a small task, in float64 and with fixed weights.

    Args:
        model_class: The class of the model.
        options: Options of the constructor, which override the sizes or the shape.
    """
    torch.manual_seed(7)
    sizes = {"shape": None, "input_size": POINTS.input_size, "output_size": POINTS.output_size}
    if isinstance(model_class, type) and issubclass(model_class, TaskModel):
        sizes["shape"] = model_class.example_shape()
    declared = {name: sizes[name] for name in sizes if name in signature_options(model_class)}
    return model_class(**{**declared, **options}).double().eval()


def example_inputs(model_class: Any) -> Tensor | Batch:
    """Return inputs for `small_model`: a batch for a `TaskModel`, vectors for any other."""
    if issubclass(model_class, TaskModel):
        return example_batch(model_class.example_shape())
    return example_batch(POINTS).inputs


def example_batch(shape: TaskShape, *, size: int = 3, steps: int = 5, seed: int = 0) -> Batch:
    """Return a random batch of a task, in float64 and without targets.

    Args:
        shape: The shape of the task.
        size: Number of sequences or points.
        steps: Number of steps, unless the shape determines it, and of target times.
        seed: Seed of the random numbers.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    length = shape.length or steps
    outer = (length, size) if shape.sequential else (size,)
    if shape.input_kind == "symbols":
        inputs = torch.randint(shape.input_size, outer, generator=generator)
    else:
        inputs = normal(*outer, *(shape.picture_shape or (shape.input_size,)))
    regular = 0.5 * torch.arange(1, steps + 1, dtype=torch.float64)
    queries = "target_times" in shape.needs or shape.answer == "trajectory"
    return Batch(
        inputs,
        times=normal(*outer).abs().cumsum(0) if "times" in shape.needs else None,
        observed=normal(*inputs.shape) < 1 if "observed" in shape.needs else None,
        target_times=regular.unsqueeze(1).expand(steps, size) if queries else None,
    )


def check_prediction(build: Build, inputs: Tensor | Batch) -> None:
    """Check that predictions are finite, reproducible and independent of the batch order."""
    model = build()
    with torch.no_grad():
        prediction = _predict(model, inputs)
        assert prediction.isfinite().all(), "a prediction is not finite"
        assert_same(_predict(model, inputs), prediction, "a second prediction", 0)
        order = torch.tensor([2, 0, 1])
        permuted = _predict(model, _permuted(inputs, order))
    axis = prediction.shape.index(len(order))
    assert_same(permuted, prediction.index_select(axis, order), "another batch order", 1e-6)


def check_gradients(build: Build, inputs: Tensor | Batch) -> None:
    """Check that gradients are finite, and that training can reach some parameter."""
    model = build()
    _predict(model, inputs).square().sum().backward()
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for name, gradient in gradients.items():
        assert gradient.isfinite().all(), f"the gradient of {name} is not finite"
    trainable = any(p.requires_grad for p in model.parameters())
    assert any(bool(g.any()) for g in gradients.values()) or not trainable, "no gradients"


def check_reproduction(build: Build, inputs: Tensor | Batch) -> None:
    """Check that seeds and a `state_dict` reproduce a model."""
    model, twin = build(), build()
    with torch.no_grad():
        prediction = _predict(model, inputs)
        assert_same(_predict(twin, inputs), prediction, "two models of the same seed", 0)
        for parameter in twin.parameters():
            parameter.add_(0.1)
        twin.load_state_dict(model.state_dict())
        assert_same(_predict(twin, inputs), prediction, "a loaded state_dict", 0)


def check_model_single_precision(
    build: Build, inputs: Tensor | Batch, *, tolerance: float = 1e-2
) -> None:
    """Check that float32 gives the predictions of float64, up to rounding and solver tolerances.

    Args:
        build: Builds the model.
        inputs: Its inputs.
        tolerance: The absolute and relative tolerance.
    """
    model = build()
    with torch.no_grad():
        prediction = _predict(copy.deepcopy(model).float(), inputs)
        assert prediction.dtype == torch.float32, f"predictions of float32 are {prediction.dtype}"
        assert_same(prediction.double(), _predict(model, inputs), "float32", tolerance)


def check_options(build: Build, inputs: Tensor | Batch) -> None:
    """Check that every option is documented, and that unknown ones raise a `TypeError`."""
    for option in options_of(type(build())).values():
        assert option.description, f"the option '{option.name}' is not documented"
    try:
        build(no_such_option=1)
    except TypeError:
        return
    raise AssertionError("an unknown option is accepted")


def check_model_promises(build: Build, inputs: Tensor | Batch) -> None:
    """Check every promise that the model declares by measuring it."""
    model: Any = build()
    if getattr(model, "promises", ()):
        assert_promises(model)


def _predict(model: nn.Module, inputs: Tensor | Batch) -> Tensor:
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float64)
    prediction = model(inputs.cast(dtype) if isinstance(inputs, Batch) else inputs.to(dtype))
    # A normalising flow returns a record with the log-density of every sample.
    return prediction if isinstance(prediction, Tensor) else prediction.log_prob


def _permuted(inputs: Tensor | Batch, order: Tensor) -> Tensor | Batch:
    if isinstance(inputs, Tensor):
        return inputs[order]
    axis = 1 if inputs.inputs.dim() > 2 or not inputs.inputs.is_floating_point() else 0
    return inputs.part(order, inputs_axis=axis, targets_axis=0)


MODEL_CHECKS: dict[str, Callable[..., None]] = {
    "prediction": check_prediction,
    "gradients": check_gradients,
    "state_dict": check_reproduction,
    "single precision": check_model_single_precision,
    "options": check_options,
    "promises": check_model_promises,
}
"""Every check of a model; each takes a function that builds it, and inputs."""
