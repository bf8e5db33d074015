"""An ONNX graph that is built node by node; values are referred to by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor

from undamped.version import __version__

OPSET = 17
"""The version of the operators: old enough for common runtimes, new enough for Scan."""
FORMAT = 8
"""The file format that goes with it."""

Shape = Sequence[int | str]


class Graph:
    """Nodes, constants, inputs and outputs, in the order of their creation.

    Args:
        parent: The enclosing graph, if this is the body of a loop; constants and unique names
            belong to the parent, whose values the body can access.
    """

    def __init__(self, parent: Graph | None = None) -> None:
        self._parent = parent
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._constant_names: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._count = 0

    @property
    def _root(self) -> Graph:
        return self if self._parent is None else self._parent._root

    def fresh(self, word: str) -> str:
        """Return a unique name."""
        self._root._count += 1
        return f"{word.lower()}_{self._root._count}"

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator with one output; return the output's name."""
        return self.nodes(kind, *inputs, outputs=1, **attributes)[0]

    def nodes(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add an operator with several outputs; return their names."""
        names = [self.fresh(kind) for _ in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def constant(self, value: Tensor | np.ndarray) -> str:
        """Return the name of a constant; equal constants are stored once."""
        root = self._root
        array = np.ascontiguousarray(value.detach().cpu() if isinstance(value, Tensor) else value)
        array = array.reshape(value.shape)  # ascontiguousarray turns scalars into vectors
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in root._constant_names:
            root._constant_names[key] = root.fresh("constant")
            root._constants.append(numpy_helper.from_array(array, root._constant_names[key]))
        return root._constant_names[key]

    def integers(self, *numbers: int) -> str:
        """Return the name of a list of integers."""
        return self.constant(np.array(numbers, dtype=np.int64))

    def input(self, name: str, dtype: torch.dtype, shape: Shape) -> str:
        """Declare a required input."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def optional_input(self, name: str, default: Tensor, shape: Shape) -> str:
        """Declare an optional input with a default value."""
        self._inputs.append(_value_info(name, default.dtype, shape))
        array = default.detach().cpu().contiguous().numpy()
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def output(self, name: str, value: str, dtype: torch.dtype, shape: Shape | None) -> None:
        """Declare a value as an output."""
        # Inputs and values of an enclosing graph cannot be outputs without a node.
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(_value_info(name, dtype, shape))

    def scan(
        self,
        states: Mapping[str, tuple[str, torch.dtype]],
        sequences: Mapping[str, tuple[str, torch.dtype]],
        body: Callable[[Graph, dict[str, str]], tuple[dict[str, str], list[str]]],
        outputs: Sequence[torch.dtype],
        *,
        backwards: bool = False,
    ) -> tuple[dict[str, str], list[str]]:
        """Scan along the first dimension of sequences.

        Args:
            states: Initial value and type of each state, by name.
            sequences: Value (time, …) and type of each sequence, by name.
            body: Takes the body's graph and the values of this step by name, and returns the new
                states by name and the outputs of this step.
            outputs: The types of the outputs.
            backwards: Whether to start at the end.

        Returns:
            The last states by name, and the outputs, (time, …) each.
        """
        inner, values = Graph(self), {}
        for name, (_, dtype) in (*states.items(), *sequences.items()):
            values[name] = inner.input(inner.fresh(name), dtype, None)  # type: ignore[arg-type]
        next_states, step_outputs = body(inner, values)
        for name, (_, dtype) in states.items():
            inner.output(inner.fresh(f"next_{name}"), next_states[name], dtype, None)
        for value, dtype in zip(step_outputs, outputs, strict=True):
            inner.output(inner.fresh("written"), value, dtype, None)
        names = [self.fresh(f"last_{name}") for name in states]
        names += [self.fresh("sequence") for _ in outputs]
        inputs = [value for value, _ in (*states.values(), *sequences.values())]
        loop = {"body": inner._proto("step"), "num_scan_inputs": len(sequences)}
        if backwards:
            loop["scan_input_directions"] = [1] * len(sequences)
            loop["scan_output_directions"] = [1] * len(outputs)
        self._nodes.append(helper.make_node("Scan", inputs, names, **loop))
        return dict(zip(states, names, strict=False)), names[len(states) :]

    def _proto(self, name: str) -> onnx.GraphProto:
        return helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, initializer=self._constants
        )

    def model(self, metadata: Mapping[str, str]) -> onnx.ModelProto:
        """Return the graph as a checked ONNX model."""
        model = helper.make_model(
            self._proto("undamped"),
            producer_name="undamped",
            producer_version=__version__,
            ir_version=FORMAT,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model, full_check=True)
        return model


def element_kind(dtype: torch.dtype) -> int:
    """Return the ONNX code of a type."""
    return helper.np_dtype_to_tensor_dtype(torch.empty(0, dtype=dtype).numpy().dtype)


def _value_info(name: str, dtype: torch.dtype, shape: Shape | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_kind(dtype), shape)
