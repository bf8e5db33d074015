"""An ONNX graph that is built node by node; a value is a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    import onnx

OPSET = 17
"""The set of operators: old enough for runtimes of the last years, new enough for Scan."""
FORMAT = 8
"""The file format that goes with it."""

Shape = Sequence[int | str]


class Graph:
    """Nodes, constants, inputs and outputs, in the order in which they were made.

    Args:
        parent: The graph around this one, if this is the body of a loop; constants and fresh
            names are the parent's, since the body sees everything outside it.
    """

    def __init__(self, parent: Graph | None = None) -> None:
        self._parent = parent
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._made = 0

    @property
    def _root(self) -> Graph:
        return self if self._parent is None else self._parent._root

    def fresh(self, word: str) -> str:
        """Return a name that nothing has yet."""
        self._root._made += 1
        return f"{word.lower()}_{self._root._made}"

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operator with one output; return the output's name."""
        return self.nodes(kind, *inputs, outputs=1, **attributes)[0]

    def nodes(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add an operator with several outputs; return their names."""
        from onnx import helper

        names = [self.fresh(kind) for _ in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def constant(self, value: Tensor | np.ndarray) -> str:
        """Return the name of a constant; equal ones are kept once."""
        from onnx import numpy_helper

        root = self._root
        array = np.ascontiguousarray(value.detach().cpu() if isinstance(value, Tensor) else value)
        array = array.reshape(value.shape)  # a single number stays one
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in root._known:
            root._known[key] = root.fresh("constant")
            root._constants.append(numpy_helper.from_array(array, root._known[key]))
        return root._known[key]

    def whole(self, *numbers: int) -> str:
        """Return the name of a list of whole numbers."""
        return self.constant(np.array(numbers, dtype=np.int64))

    def input(self, name: str, dtype: torch.dtype, shape: Shape) -> str:
        """Declare an input that has to be given."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def optional_input(self, name: str, default: Tensor, shape: Shape) -> str:
        """Declare an input that may be left out; then it is `default`."""
        from onnx import numpy_helper

        self._inputs.append(_value_info(name, default.dtype, shape))
        array = default.detach().cpu().contiguous().numpy()
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def output(self, name: str, value: str, dtype: torch.dtype, shape: Shape | None) -> None:
        """Declare an output and say which value it is."""
        from onnx import helper

        # A value that an enclosing graph made, or an input, cannot be an output by itself.
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
            states: What is carried: name, first value, type.
            sequences: What is read: name, value (time, …), type.
            body: Given the body's graph and the values of this step by name, returns the new
                states by name and what to write down at this step.
            outputs: The types of what is written down.
            backwards: Whether to start at the end.

        Returns:
            The last states by name, and what was written down, (time, …) each.
        """
        from onnx import helper

        inner, values = Graph(self), {}
        for name, (_, dtype) in (*states.items(), *sequences.items()):
            values[name] = inner.input(inner.fresh(name), dtype, None)  # type: ignore[arg-type]
        carried, written = body(inner, values)
        for name, (_, dtype) in states.items():
            inner.output(inner.fresh(f"next_{name}"), carried[name], dtype, None)
        for value, dtype in zip(written, outputs, strict=True):
            inner.output(inner.fresh("written"), value, dtype, None)
        names = [self.fresh(f"last_{name}") for name in states]
        names += [self.fresh("sequence") for _ in outputs]
        given = [value for value, _ in (*states.values(), *sequences.values())]
        loop = {"body": inner._proto("step"), "num_scan_inputs": len(sequences)}
        if backwards:
            loop["scan_input_directions"] = [1] * len(sequences)
            loop["scan_output_directions"] = [1] * len(outputs)
        self._nodes.append(helper.make_node("Scan", given, names, **loop))
        return dict(zip(states, names, strict=False)), names[len(states) :]

    def _proto(self, name: str) -> onnx.GraphProto:
        from onnx import helper

        return helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, initializer=self._constants
        )

    def model(self, metadata: Mapping[str, str]) -> onnx.ModelProto:
        """Return the whole as a checked ONNX model."""
        import onnx
        from onnx import helper

        from undamped.version import __version__

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
    """Return ONNX's number of a type."""
    from onnx import helper

    return helper.np_dtype_to_tensor_dtype(torch.empty(0, dtype=dtype).numpy().dtype)


def _value_info(name: str, dtype: torch.dtype, shape: Shape | None) -> onnx.ValueInfoProto:
    from onnx import helper

    return helper.make_tensor_value_info(name, element_kind(dtype), shape)
