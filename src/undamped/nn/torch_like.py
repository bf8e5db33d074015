"""Networks that torch has too: torch's parameter names, initialisation and kernels.

Internally, a parameter of a layer is called `cells.0.weight_ih`; torch.nn.LSTM calls it
`weight_ih_l0` or `weight_ih_l0_reverse`. Files with either kind of names can be loaded,
`net.weight_ih_l0` is the parameter, and `to_torch` returns torch's module with the same weights.

`torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu` are the kernels of `torch.nn.LSTM`
and its relatives. Sequences of unequal lengths are packed, which is the only form in which these
kernels do not change the state of a finished sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from undamped._base.errors import OptionError
from undamped.kernels.coupled.scan import Reference
from undamped.kernels.reference import step_by_step
from undamped.nn.bases.cell import ScanResult, State
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent


class TorchCell(CoupledCell):
    """A cell with the parameters of one of torch's networks, initialised as torch does.

    Args:
        bias: Whether there are biases.
        proj_size: Number of features of a projected hidden state; 0 for no projection.
    """

    torch_class: ClassVar[type[Any]]
    torch_kernel: str
    """Name of torch's kernel, such as "lstm"."""
    gates: ClassVar[int]
    """Number of blocks, one for each gate and the candidate, of the stacked matrices."""
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None

    def __init__(
        self, input_size: int, hidden_size: int, *, bias: bool = True, proj_size: int = 0
    ) -> None:
        super().__init__(input_size, hidden_size)
        rows, bound = self.gates * hidden_size, hidden_size**-0.5
        shapes: dict[str, tuple[int, ...]] = {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, proj_size or hidden_size),
            "bias_ih": (rows,),
            "bias_hh": (rows,),
        }
        if proj_size:
            shapes["weight_hr"] = (proj_size, hidden_size)
        for name, shape in shapes.items():
            parameter = None
            if bias or not name.startswith("bias"):
                parameter = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
            self.register_parameter(name, parameter)

    @torch.no_grad()
    def initialise(self, input_std: float | None, gate_bias: float | None, option: str) -> None:
        """Draw the input matrix from a Gaussian, and set the biases, as options of cells say.

        Args:
            input_std: Standard deviation of the input matrix; None leaves it as it is.
            gate_bias: Bias of the second gate, all others being zero; None leaves them as they are.
            option: Name of the option that sets `gate_bias`, for the error message.
        """
        if input_std is not None:
            nn.init.normal_(self.weight_ih, std=input_std)
        if gate_bias is None:
            return
        if self.bias_ih is None or self.bias_hh is None:
            raise OptionError(f"{option} needs a network with biases. Set bias=True.")
        self.bias_ih.zero_()
        self.bias_hh.zero_()
        self.bias_ih[self.hidden_size : 2 * self.hidden_size] = gate_bias

    def summed_bias(self) -> State:
        """Return the sum of both biases, or nothing where there are none."""
        if self.bias_ih is None or self.bias_hh is None:
            return ()
        return (self.bias_ih + self.bias_hh,)

    def input_tensors(self) -> State:
        return self.weight_ih, *self.summed_bias()

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        return self.weight_hh.chunk(self.gates)

    def _step(self, x: Tensor, state: State) -> State:
        step = self._step_function()
        return super()._step(x, state) if step is None else step(x, state)

    def _stepper(self) -> Callable[[Tensor, State], State]:
        return self._step_function() or super()._stepper()

    def _step_function(self) -> Callable[[Tensor, State], State] | None:
        """Return torch's function of one step with these weights; None if the step differs."""
        function = getattr(torch, f"{self.torch_kernel}_cell")
        weights = self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        if len(self.state_names) > 1:
            return lambda x, state: function(x, state, *weights)
        return lambda x, state: (function(x, state[0], *weights),)

    def reference(self, lengths: Tensor | None) -> Reference:
        """Return the recurrence as a function of the tensors that the kernel reads."""

        def run(
            x: Tensor, state: State, _: State, inputs: State, linear: State, weights: State
        ) -> ScanResult:
            constants = (*linear, *weights)
            projected = F.linear(x, *inputs)
            advance = partial(self._advance_with, constants)
            return step_by_step(advance, projected, tuple(state), lengths)

        return run

    def _advance_with(self, constants: State, projected: Tensor, state: State) -> State:
        return self.advance(projected, state, constants)

    def plain_scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        weights = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        projection = [self.get_parameter("weight_hr")] if hasattr(self, "weight_hr") else []
        return kernel_scan(
            getattr(torch, self.torch_kernel), x, state, weights + projection, lengths
        )


def kernel_scan(
    kernel: Callable[..., Any],
    x: Tensor,
    state: State,
    weights: Sequence[Tensor | None],
    lengths: Tensor | None,
) -> ScanResult:
    """Run one layer in one direction.

    Args:
        kernel: The kernel, such as `torch.lstm`.
        x: The input, (time, batch, input).
        state: The state before the first step.
        weights: Input and recurrent matrix, both biases or None, and the projection if there is
            one.
        lengths: (batch,) the true length of each sequence; None if all are full.
    """
    biased = weights[2] is not None
    tensors = [weight for weight in weights if weight is not None]
    hx = [part.unsqueeze(0) for part in state]
    if lengths is None:
        first = hx if len(hx) > 1 else hx[0]
        output, *final = kernel(x, first, tensors, biased, 1, 0.0, False, False, False)
        return output, tuple(part.squeeze(0) for part in final)
    packed = pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False)
    order, back = packed.sorted_indices, packed.unsorted_indices
    assert order is not None and back is not None  # enforce_sorted=False always sorts
    hx = [part.index_select(1, order) for part in hx]
    first = hx if len(hx) > 1 else hx[0]
    data, *final = kernel(
        packed.data, packed.batch_sizes, first, tensors, biased, 1, 0.0, False, False
    )
    output, _ = pad_packed_sequence(
        PackedSequence(data, packed.batch_sizes, order, back), total_length=x.shape[0]
    )
    return output, tuple(part.squeeze(0).index_select(0, back) for part in final)


class TorchLike(Recurrent):
    """A network that is one of torch's: Elman RNNs, LSTMs and GRUs.

    Args:
        options: The other options of a recurrent network and of the cell.
    """

    def __init__(self, input_size: int, hidden_size: int, *sizes: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, *sizes, **options)
        self.register_load_state_dict_pre_hook(_from_torch_names)

    def torch_names(self) -> dict[str, str]:
        """Return torch's name of every parameter, and the name here."""
        names = {}
        for index in range(len(self.cells)):
            layer, direction = divmod(index, self.directions)
            suffix = f"_l{layer}" + ("_reverse" if direction else "")
            for name, _ in self.cells[index].named_parameters():
                names[name + suffix] = f"cells.{index}.{name}"
        return names

    def torch_state_dict(self) -> dict[str, Tensor]:
        """Return the `state_dict` under the names of `torch.nn.LSTM` and its relatives."""
        weights = self.state_dict()
        return {name: weights[local] for name, local in self.torch_names().items()}

    def to_torch(self) -> nn.RNNBase:
        """Return torch's module with a copy of these weights, which has the same outputs."""
        cell = self.cell(0)
        assert isinstance(cell, TorchCell)
        if getattr(cell, "thresholds", False):
            raise OptionError(
                "torch.nn.RNN has no modrelu. Use nonlinearity='tanh' or 'relu' to convert a "
                "network to torch."
            )
        options: dict[str, Any] = {
            "num_layers": self.num_layers,
            "bias": self.bias,
            "batch_first": self.batch_first,
            "dropout": self.dropout if self.num_layers > 1 else 0.0,
            "bidirectional": self.bidirectional,
            "device": cell.weight_hh.device,
            "dtype": cell.weight_hh.dtype,
        }
        if self.proj_size:
            options["proj_size"] = self.proj_size
        if cell.torch_class is nn.RNN:
            options["nonlinearity"] = cell.nonlinearity
        module = cell.torch_class(self.input_size, self.hidden_size, **options)
        module.load_state_dict(self.torch_state_dict())
        return module.train(self.training)

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction, in torch's order."""
        return [list(cell.parameters()) for cell in self.cells]

    @property
    def bias(self) -> bool:
        """Whether there are biases."""
        return self.cell(0).bias_ih is not None

    @property
    def proj_size(self) -> int:
        """Number of features of a projected hidden state; 0 if it is not projected."""
        return getattr(self.cell(0), "proj_size", 0)

    def __getattr__(self, name: str) -> Any:
        local = self._local_name(name)
        return super().__getattr__(name) if local is None else self.get_parameter(local)

    def __setattr__(self, name: str, value: Any) -> None:
        local = self._local_name(name)
        if local is None:
            super().__setattr__(name, value)
        else:
            owner, _, parameter = local.rpartition(".")
            setattr(self.get_submodule(owner), parameter, value)

    def _local_name(self, name: str) -> str | None:
        """Return the local name of a parameter from torch's name; None for any other name."""
        if "_l" not in name or not name.startswith(("weight_", "bias_")):
            return None
        return self.torch_names().get(name)


def _from_torch_names(
    network: nn.Module, weights: dict[str, Any], prefix: str, *unused: object
) -> None:
    assert isinstance(network, TorchLike)
    for name, local in network.torch_names().items():
        if prefix + name in weights:
            weights[prefix + local] = weights.pop(prefix + name)
