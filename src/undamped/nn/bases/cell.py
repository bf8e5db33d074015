"""The Cell contract: one step in time, split so that most of the work is outside the loop.

`project` turns the whole input at once; nothing recurrent is in it, so it is one large product.
`constants` computes what is the same at every step (an orthogonal matrix, an effective time
step). `advance` makes one step. `scan` goes through time with these three; a cell that has a
faster way to do that overrides `scan`, says `fused = True`, and must agree with this one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.utils import parametrize

from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.promises import Promise
from undamped._base.torch_internals import parametrize_again
from undamped.kernels.dispatch import wants_plain_loops
from undamped.kernels.recorded.loop import Recurrence
from undamped.kernels.recorded.recorder import recorder_for
from undamped.kernels.recorded.scan import Recordings, recorded_scan
from undamped.kernels.shared.threads import PRODUCT_GRAIN, alone_if_small
from undamped.nn.bases.apart import made_apart
from undamped.nn.bases.remembered import Remembered, contents, may_remember
from undamped.nn.bases.updates import Watched

State = tuple[Tensor, ...]


class Cell(nn.Module, ABC):
    """One recurrent layer in one direction.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
    """

    promises: ClassVar[tuple[Promise, ...]] = ()
    state_names: tuple[str, ...] = ("hidden",)
    recipe: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings that the network wants on any task, as in `Task.recipes`."""
    largest_rate: ClassVar[float] = math.inf
    """The largest learning rate that a task's settings for all models may give to this one."""
    usual_choice: ClassVar[bool] = False
    """Whether others are usually compared with it; `undamped train` suggests it beside them."""
    remembers: ClassVar[str] = ""
    """Advice to those whose network forgets: why to take this cell. Reports give it to networks
    of the family the cell was made from; most cells give none."""
    invertible: ClassVar[bool] = False
    fused: ClassVar[bool] = False
    state_grows: ClassVar[bool] = False
    """Whether a state is larger after more steps; such a network is not written as ONNX nodes."""
    independent_units: ClassVar[bool] = False
    """Whether units do not see each other within a layer: networks of such cells take `block`."""
    in_chunks: ClassVar[bool] = False
    """Whether a network goes over long sequences in chunks, since `scan` leaves much to autograd.
    With a block all do."""
    kept_sequences: ClassVar[int] = 7
    """About how many sequences as wide as a layer a pass keeps for its gradients, block and all."""
    dense: ClassVar[bool] = False
    """Whether free square matrices read the state: `recurrent_matrices` returns them."""
    costly_constants: ClassVar[bool] = False
    """Whether computing the constants costs more than comparing all parameters with a copy."""
    needs_full_precision: ClassVar[bool] = False
    """Whether parameters in sixteen bits are refused: they cannot hold a matrix in its set, what is
    remembered, or a state to which every step adds little.
    """
    structured: bool = True
    """Whether a product may use a matrix's structure; if not, the matrix is always formed."""

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self._memory: Remembered[State] = Remembered()
        self._recordings = Recordings()

    @classmethod
    def sources(cls, layer: PositiveInt, options: Mapping[str, Any]) -> tuple[NonNegativeInt, ...]:
        """Say which layers feed layer `layer` (1, 2, …); 0 is the input of the network."""
        return (layer - 1,)

    @classmethod
    def layer_options(cls, options: Mapping[str, Any], layer: int, layers: int) -> dict[str, Any]:
        """Return the options of layer `layer` (1, 2, …) out of those given to the network."""
        return dict(options)

    @property
    def state_size(self) -> int:
        """Number of features of each tensor of the state, where all have the same."""
        return self.hidden_size

    @property
    def state_sizes(self) -> tuple[int | None, ...]:
        """Number of features of every tensor of the state; None where it grows with time."""
        return (self.state_size,) * len(self.state_names)

    @property
    def output_size(self) -> int:
        """Number of features of the output."""
        return self.hidden_size

    def draw_sources(self, sizes: tuple[int, ...]) -> None:
        """Draw input weights anew, knowing that the input is several sources side by side."""

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """Turn inputs (…, input) into what `advance` takes, (…, projected), all at once."""

    def projector(self) -> Callable[[Tensor], Tensor]:
        """Return `project` for parameters that are known to stay as they are."""
        return self.project

    @abstractmethod
    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make one step: (batch, projected) and the state to the next state."""

    def constants(self) -> State:
        """Compute what is the same at every step of a pass."""
        return ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a cell with parametrised matrices too, as spawned processes need it.

        torch gives such a module a class of its own, which no other process can import, and
        refuses to pickle it; here the original class goes, and the other side makes the new one.
        """
        if not parametrize.is_parametrized(self):
            return super().__reduce_ex__(protocol)
        return _unpickle_parametrized, (type(self).__bases__[0], self.__dict__.copy())

    def steady_constants(self) -> State:
        """Return `constants`, remembered while no gradient is wanted and nothing changes.

        A matrix that is costly to compute is so computed once for a whole stream, not once a
        sample. Every byte of its source is compared with what the matrix was made from, so that
        nothing that writes to a parameter, in whatever way, goes unnoticed.
        """
        # The replicas of a network on several devices share one memory, and hold no parameters.
        if not self.costly_constants or "_is_replica" in vars(self):
            return self.constants()
        if may_remember():
            return self._memory.get(self.constants_source(), self._own_constants)
        if self._constants_are_small and not wants_plain_loops() and not is_compiling():
            return made_apart(self.constants, tuple(contents(self.constants_source())[0]))
        return self.constants()

    @property
    def _constants_are_small(self) -> bool:
        return self.hidden_size**3 < PRODUCT_GRAIN

    def constants_source(self) -> nn.Module:
        """Return the module whose tensors and numbers alone decide the constants."""
        return self

    def _own_constants(self) -> State:
        """Return `constants` in memory of their own: a parameter itself would change later."""
        with alone_if_small(self.hidden_size**3):
            made, tensors = self.constants(), contents(self)[0]
        shared = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        return tuple(c.clone() if c.untyped_storage().data_ptr() in shared else c for c in made)

    @property
    def products(self) -> float:
        """How many products with a hidden × hidden matrix a step costs."""
        numbers = sum(matrix.numel() for matrix in self.recurrent_matrices())
        return numbers / self.hidden_size**2

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        """Return the free square matrices that read the state; only `dense` cells have some."""
        return ()

    def output(self, state: State) -> Tensor:
        """Return what the next layer or the readout sees of a state."""
        return state[0]

    def initial_state(self, batch: int, like: Tensor) -> State:
        """Return the state before the first step: zeros, of the device and type of `like`."""
        return tuple(like.new_zeros(batch, size or 0) for size in self.state_sizes)

    def trimmed(self, state: State) -> State:
        """Drop from a state that grows, (…, batch, …) each, what is empty for every sample."""
        return state

    def inverse(self, projected: Tensor, state: State, constants: State) -> State:
        """Take one step back; only cells that say `invertible` can."""
        raise OptionError(
            f"{type(self).__name__}: expected an invertible cell, got one that is not. "
            "Use unicornn to run a network backwards in time."
        )

    def scans_blocks(self, steps: int, batch: int) -> bool:
        """Say whether `scan_in_block` has a pass for so many steps of so many sequences."""
        return False

    def scan_in_block(
        self,
        e: Tensor,
        state: State,
        lengths: Tensor | None,
        gate: nn.Linear,
        masks: State,
        epsilon: float,
    ) -> tuple[Tensor, State] | None:
        """Scan a whole block around this cell, given e, the block's state and its other parts.

        None where there is no pass of its own for that: then the block goes part by part.
        """
        return None

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Scan (time, batch, input); return all outputs and the state at the end.

        Where `lengths` (batch,) says a sequence is over, its state stays as it is and its
        outputs are zero.
        """
        return loop_scan(self, x, state, lengths)


def _unpickle_parametrized(cell_class: type[Cell], contents: dict[str, Any]) -> Cell:
    cell = cell_class.__new__(cell_class)
    vars(cell).update(contents)
    parametrize_again(cell)
    if isinstance(cell, Watched):
        cell.watch_again()
    return cell


def reference_scan(
    cell: Cell, x: Tensor, state: State, lengths: Tensor | None = None
) -> tuple[Tensor, State]:
    """Scan with a plain loop: the meaning of every faster way."""
    projected, constants = cell.project(x), cell.steady_constants()
    outputs = []
    for t, projected_t in enumerate(projected.unbind(0)):
        advanced = cell.advance(projected_t, state, constants)
        if lengths is None:
            state = advanced
            outputs.append(cell.output(state))
        else:
            running = (t < lengths).unsqueeze(-1)
            state = tuple(
                torch.where(running, new, old) for new, old in zip(advanced, state, strict=True)
            )
            output = cell.output(state)
            outputs.append(torch.where(running, output, torch.zeros_like(output)))
    return torch.stack(outputs), state


def loop_scan(
    cell: Cell, x: Tensor, state: State, lengths: Tensor | None = None
) -> tuple[Tensor, State]:
    """Scan with the plain loop, or with recordings of its steps where the device has such."""
    recorder = recorder_for(x, *state)
    # The replicas of a network on several devices share their recordings, and hold no parameters.
    if recorder is None or cell.state_grows or "_is_replica" in vars(cell):
        return reference_scan(cell, x, state, lengths)
    trained = tuple(parameter for parameter in cell.parameters() if parameter.requires_grad)
    tensors, numbers = contents(cell)
    places = tuple((t.data_ptr(), t.shape, t.requires_grad) for t in tensors)
    recurrence = Recurrence(cell.advance, cell.output, trained, (places, tuple(numbers)))
    projected, constants = cell.project(x), cell.steady_constants()
    return recorded_scan(
        cell._recordings, recorder, recurrence, projected, state, constants, lengths
    )
