"""`ScanOperator`: a scan declared once, as an operator of `torch.library` and as an eager function.

`torch.compile` and `torch.export` see an operator as a single node with known shapes and a
gradient. Calling one from eager Python imports torch's compiler, which takes seconds, and costs
more than a short scan at every call; so eager calls use an ordinary autograd function, made from
the same forward and backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError

Shape = str | Callable[[Any], Any] | None


class ScanOperator:
    """A scan and its gradient, with their registration in torch.

    The names of the parameters of the backward pass define what is saved. The leading ones, which
    begin with `grad_`, are the gradients of as many outputs; later outputs are not differentiable.
    Each of the others is an input or an output by the same name, saved by the forward pass, or
    `needs_x`: whether the gradient of the input `x` is required.

    Example:
        >>> scan = ScanOperator(
        ...     "linear_scan",
        ...     forward,  # (inputs, coefficients, state, lengths) -> (outputs, final)
        ...     backward,  # (grad_outputs, grad_final, outputs, coefficients, state, lengths)
        ...     outputs={"outputs": "inputs", "final": "state"},
        ...     gradients=("inputs", "coefficients", "state"),
        ...     devices=("cpu", "cuda"),
        ... )
        >>> outputs, final = scan("numba", inputs, coefficients, state, lengths)
    """

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        backward: Callable[..., Any],
        *,
        outputs: Mapping[str, Shape] | Callable[[Any], list[Tensor]],
        gradients: Sequence[str],
        devices: tuple[str, ...] = ("cpu",),
    ) -> None:
        """Register the operators `undamped::name` and `undamped::name_backward`.

        Args:
            name: The name of the operator.
            forward: The forward pass; its annotations are the operator's schema. It returns a
                tuple of tensors, or a list where their number varies.
            backward: The backward pass; it returns the gradients named by `gradients`.
            outputs: For each output by name, the input that has its shape, a function of the named
                inputs that returns an empty tensor, or None for an output of eager calls only,
                which is None in the operator's backward pass. Where `forward` returns a list, a
                function that returns all of them.
            gradients: The inputs whose gradients the backward pass returns, in order.
            devices: The types of devices for which there are kernels.
        """
        self.inputs = tuple(signature(forward).parameters)
        parameters = tuple(signature(backward).parameters)
        self.saved = tuple(name for name in parameters if not name.startswith("grad_"))
        self.differentiable = len(parameters) - len(self.saved)
        self.outputs, self.gradients = outputs, tuple(gradients)
        schema = torch.library.infer_schema(forward, mutates_args=())
        count = None
        if not callable(outputs):
            count = sum(shape is not None for shape in outputs.values())
            schema = f"{schema.split(' -> ')[0]} -> ({', '.join(['Tensor'] * count)})"
        options: dict[str, Any] = {"mutates_args": (), "device_types": devices}
        results = partial(_first, forward, count)
        self._operator = torch.library.custom_op(
            f"undamped::{name}", results, schema=schema, **options
        )
        self._backward = torch.library.custom_op(f"undamped::{name}_backward", backward, **options)
        self._operator.register_fake(self._output_shapes)
        self._backward.register_fake(partial(self._gradient_shapes, parameters))
        self._operator.register_autograd(
            partial(self._differentiate, self._backward), setup_context=self._save
        )
        self._eager = eager_function(forward, self._save, partial(self._differentiate, backward))

    def __call__(self, implementation: str, *inputs: Any) -> Any:
        """Run the scan in the implementation from `dispatch.implementation`."""
        return (self._operator if implementation == "operator" else self._eager)(*inputs)

    def _output_shapes(self, *inputs: Any) -> Any:
        arguments = SimpleNamespace(**dict(zip(self.inputs, inputs, strict=True)))
        if callable(self.outputs):
            return self.outputs(arguments)
        shapes = [shape for shape in self.outputs.values() if shape is not None]
        return tuple(
            _empty_like(getattr(arguments, shape)) if isinstance(shape, str) else shape(arguments)
            for shape in shapes
        )

    def _gradient_shapes(self, parameters: tuple[str, ...], *arguments: Any) -> Any:
        named = dict(zip(parameters, arguments, strict=True))
        shapes: list[Tensor] = []
        for name in self.gradients:
            # The shape of an input that was not saved is that of its output.
            like = named[name] if name in named else named[self._output_like(name)]
            if not named.get(f"needs_{name}", True):
                shapes.append(like.new_empty(0))
            else:
                shapes += map(_empty_like, like if isinstance(like, Sequence) else [like])
        return shapes if callable(self.outputs) else tuple(shapes)

    def _output_like(self, name: str) -> str:
        if callable(self.outputs):
            raise KeyError(name)
        return next(output for output, shape in self.outputs.items() if shape == name)

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save the arguments of the backward pass, tensors and lists of tensors by torch."""
        values = dict(zip(self.inputs, inputs, strict=True))
        if callable(self.outputs):
            values["results"] = output
        else:
            values |= dict.fromkeys(self.outputs) | dict(zip(self.outputs, output, strict=False))
            if len(output) > self.differentiable:
                ctx.mark_non_differentiable(*output[self.differentiable :])
        # Inputs without a gradient: None, or a list of None for a list of tensors.
        ctx.lists = {name: len(values[name]) for name in self.inputs if _is_tensors(values[name])}
        save(ctx, **{name: values.get(name) for name in self.saved})

    def _differentiate(self, run: Callable[..., Any], ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """Call the backward pass; return the gradients in the order of the inputs."""
        arguments = saved(ctx)
        for name in self.saved:
            if name.startswith("needs_"):
                position = self.inputs.index(name.removeprefix("needs_"))
                arguments[name] = bool(ctx.needs_input_grad[position])
        gradients = iter(run(*grads[: self.differentiable], *arguments.values()))
        result: dict[str, Any] = {name: [None] * count for name, count in ctx.lists.items()}
        for name in self.gradients:
            if name in ctx.lists:
                result[name] = [next(gradients) for _ in range(ctx.lists[name])]
            else:
                result[name] = next(gradients)
        return tuple(
            result.get(name) if arguments.get(f"needs_{name}", True) else None
            for name in self.inputs
        )


def eager_function(
    run: Callable[..., Any], save: Callable[..., None], differentiate: Callable[..., Any]
) -> Callable[..., Any]:
    """Return `run` as a differentiable function of eager torch.

    Args:
        run: The forward pass.
        save: Called with the context, the inputs and the outputs of `run`.
        differentiate: Called with the context and the gradients of the outputs.
    """

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            outputs = run(*inputs)
            save(ctx, inputs, outputs)
            return outputs

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            refuse_second_derivatives()
            return differentiate(ctx, *gradients)

    return Eager.apply


def save(ctx: Any, **values: Any) -> None:
    """Save values by name: tensors and lists of tensors by torch, others as attributes."""
    tensors: list[Tensor | None] = []
    ctx.names, ctx.counts, ctx.values = tuple(values), {}, {}
    for name, value in values.items():
        if value is None or isinstance(value, Tensor):
            tensors.append(value)
        elif _is_tensors(value):
            ctx.counts[name] = len(value)
            tensors += value
        else:
            ctx.values[name] = value
    ctx.save_for_backward(*tensors)


def saved(ctx: Any) -> dict[str, Any]:
    """Return the values of `save`, in order."""
    tensors = iter(ctx.saved_tensors)
    values: dict[str, Any] = {}
    for name in ctx.names:
        if name in ctx.values:
            values[name] = ctx.values[name]
        elif name in ctx.counts:
            values[name] = [next(tensors) for _ in range(ctx.counts[name])]
        else:
            values[name] = next(tensors)
    return values


def _first(run: Callable[..., Any], count: int | None, *arguments: Any) -> Any:
    """Return the first outputs of a function; all of them where `count` is None."""
    results = run(*arguments)
    return results if count is None else results[:count]


def _empty_like(tensor: Tensor) -> Tensor:
    return tensor.new_empty(tensor.shape)


def _is_tensors(value: Any) -> bool:
    """Return whether a value is a list of tensors; for torch, every empty list is one."""
    return isinstance(value, (list, tuple)) and all(isinstance(item, Tensor) for item in value)


def refuse_second_derivatives() -> None:
    """Raise an error for second derivatives."""
    if torch.is_grad_enabled():
        raise OptionError(
            "The compiled kernels have first derivatives only. For second derivatives, run the "
            "forward pass inside `with undamped.plain_loops():`, or leave create_graph=True out."
        )
