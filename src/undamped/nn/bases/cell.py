"""The Cell contract: one step in time, split so that most of the work is outside the loop.

`project` transforms the input of all steps at once; it is not recurrent, so it is one large
product. `constants` computes what is the same at every step (an orthogonal matrix, an effective
time step). `advance` makes one step. `scan` runs over time with these three; a cell with a faster
implementation overrides `scan`, which must agree with this one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.nn.utils import parametrize

from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.promises import Promise
from undamped._base.torch_internals import parametrize_again
from undamped.kernels.dispatch import use_plain_loops
from undamped.kernels.recorded.recorder import recorder_for
from undamped.kernels.recorded.scan import Inputs, Recordings, Recurrence, recorded_scan
from undamped.kernels.reference import State as State
from undamped.kernels.reference import freeze_finished, step_by_step
from undamped.kernels.shared.threads import PRODUCT_GRAIN, single_threaded_if_small
from undamped.nn.bases.constant_cache import ModuleCache, contents, may_cache, on_one_thread
from undamped.nn.bases.updates import UpdateHooks

States = list[State]
ScanResult = tuple[Tensor, State]
"""All outputs (time, batch, features), and the final state."""
BlockScan = Callable[[Tensor, State, Tensor | None, nn.Linear, State, float], ScanResult | None]
"""Scans a block: e, state, lengths, gate, dropout masks and ε to outputs and final state.
The result is None if the kernel cannot process these tensors."""


@dataclass(frozen=True)
class MemoryPlan:
    """How much memory a pass over a sequence needs.

    Args:
        saved_sequences: About how many sequences as wide as a layer a pass saves for its backward
            pass, with the block around the cell.
        chunked: Whether long sequences are processed in chunks, since `scan` leaves much to
            autograd. Networks with a block always are.
        state_grows: Whether the state grows with every step. Such a cell defines `_trim_state`, and
            cannot be exported to ONNX.
    """

    saved_sequences: int = 7
    chunked: bool = False
    state_grows: bool = False


class Cell(nn.Module, ABC):
    """One recurrent layer in one direction.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
    """

    promises: ClassVar[tuple[Promise, ...]] = ()
    state_names: tuple[str, ...] = ("hidden",)
    memory_plan: ClassVar[MemoryPlan] = MemoryPlan()
    independent_units: ClassVar[bool] = False
    """Whether units of a layer do not read each other; such networks have the option `block`."""
    costly_constants: ClassVar[bool] = False
    """Whether computing the constants costs more than comparing all parameters with a copy."""
    needs_full_precision: ClassVar[bool] = False
    """Whether half precision is refused, because it cannot represent a constrained matrix or a
    state that changes little at every step."""

    def __init__(self, input_size: PositiveInt, hidden_size: PositiveInt) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self._constant_cache: ModuleCache[State] = ModuleCache()
        self._recordings = Recordings()

    # Sizes and layers

    @classmethod
    def sources(cls, layer: PositiveInt, options: Mapping[str, Any]) -> tuple[NonNegativeInt, ...]:
        """Return the layers that feed layer `layer` (1, 2, …); 0 is the input of the network."""
        return (layer - 1,)

    @classmethod
    def layer_options(cls, options: Mapping[str, Any], layer: int, layers: int) -> dict[str, Any]:
        """Return the options of layer `layer` (1, 2, …), given those of the network."""
        return dict(options)

    @property
    def state_sizes(self) -> tuple[int | None, ...]:
        """Number of features of every tensor of the state; None where it grows with time."""
        return (self.hidden_size,) * len(self.state_names)

    @property
    def output_size(self) -> int:
        """Number of features of the output."""
        return self.hidden_size

    def _draw_sources(self, sizes: tuple[int, ...]) -> None:
        """Redraw the input weights for an input that is several layers concatenated."""

    # One step

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """Return the part of all steps that depends on the input alone, (…, projected)."""

    def _projector(self) -> Callable[[Tensor], Tensor]:
        """Return `project` as a function that assumes constant parameters."""
        return self.project

    @abstractmethod
    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make one step: (batch, projected) and the state to the next state."""

    def _step(self, x: Tensor, state: State) -> State:
        """Make one step from an input (batch, input); a cell may have a faster way."""
        return self.advance(self.project(x), state, self.cached_constants())

    def _stepper(self) -> Callable[[Tensor, State], State]:
        """Return `_step` as a function that assumes constant parameters."""
        project, constants = self._projector(), self.constants()
        return lambda x, state: self.advance(project(x), state, constants)

    def output(self, state: State) -> Tensor:
        """Return the output that belongs to a state, for the next layer or the readout."""
        return state[0]

    def initial_state(self, batch: int, like: Tensor) -> State:
        """Return the state before the first step: zeros, of the device and type of `like`."""
        return tuple(like.new_zeros(batch, size or 0) for size in self.state_sizes)

    def _trim_state(self, state: State) -> State:
        """Return a state that grows, (…, batch, …) each, without what is empty in all samples."""
        return state

    def _freeze_finished(self, new: State, old: State, running: Tensor) -> State:
        """Return the new state where `running` (batch, 1) is true, the old one elsewhere."""
        return freeze_finished(new, old, running)

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        """Return the unconstrained square matrices that multiply the state.

        Networks of cells that override it have the option `orthogonality_penalty`.
        """
        return ()

    # Constants

    def constants(self) -> State:
        """Compute what is the same at every step of a pass."""
        return ()

    def cached_constants(self) -> State:
        """Return `constants()`, cached while gradients are off and no parameter changes.

        So a costly matrix is computed once for a stream, and not once a sample. The cache compares
        every byte of the parameters with a copy, so that it notices any kind of change.
        """
        # The replicas of a network on several devices share one cache, and hold no parameters.
        if not self.costly_constants or "_is_replica" in vars(self):
            return self.constants()
        if may_cache():
            return self._constant_cache.get(self._constants_source(), self._detached_constants)
        if self._constants_are_small and not use_plain_loops() and not is_compiling():
            return on_one_thread(self.constants, tuple(contents(self._constants_source())[0]))
        return self.constants()

    @property
    def _constants_are_small(self) -> bool:
        return self.hidden_size**3 < PRODUCT_GRAIN

    def _constants_source(self) -> nn.Module:
        """Return the module whose tensors and numbers determine the constants."""
        return self

    def _detached_constants(self) -> State:
        """Return `constants()` as tensors that share no memory with a parameter."""
        with single_threaded_if_small(self.hidden_size**3):
            constants, tensors = self.constants(), contents(self)[0]
        shared = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        return tuple(
            c.clone() if c.untyped_storage().data_ptr() in shared else c for c in constants
        )

    # Sequences

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan (time, batch, input); return all outputs and the final state.

        Beyond the length (batch,) of a sequence its state is constant and its outputs are zero.
        """
        return loop_scan(self, x, state, lengths)

    def _block_scan(self, steps: int, batch: int) -> BlockScan | None:
        """Return a function that scans a block around this cell in one pass, if there is one."""
        return None

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a cell with parametrised matrices too, as spawned processes need it.

        torch creates a class for such a module, which no other process can import, and refuses to
        pickle it. Here the original class is pickled, and the new one is created when unpickling.
        """
        if not parametrize.is_parametrized(self):
            return super().__reduce_ex__(protocol)
        return _unpickle_parametrized, (type(self).__bases__[0], self.__dict__.copy())


def _unpickle_parametrized(cell_class: type[Cell], attributes: dict[str, Any]) -> Cell:
    cell = cell_class.__new__(cell_class)
    vars(cell).update(attributes)
    parametrize_again(cell)
    if isinstance(cell, UpdateHooks):
        cell.restore_update_hooks()
    return cell


def reference_scan(
    cell: Cell, x: Tensor, state: State, lengths: Tensor | None = None
) -> ScanResult:
    """Scan with a plain loop, which defines the result of every faster implementation."""
    projected, constants = cell.project(x), cell.cached_constants()

    def advance(projected_t: Tensor, state: State) -> State:
        return cell.advance(projected_t, state, constants)

    functions: Any = {"output": cell.output, "freeze": cell._freeze_finished}
    return step_by_step(advance, projected, state, lengths, **functions)


def loop_scan(cell: Cell, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
    """Scan with the plain loop, or on a GPU with recordings (CUDA graphs) of its steps."""
    recorder = recorder_for(x, *state)
    # The replicas of a network on several devices share their recordings, and hold no parameters.
    if recorder is None or cell.memory_plan.state_grows or "_is_replica" in vars(cell):
        return reference_scan(cell, x, state, lengths)
    trained = tuple(parameter for parameter in cell.parameters() if parameter.requires_grad)
    tensors, numbers = contents(cell)
    layouts = tuple((t.data_ptr(), t.shape, t.requires_grad) for t in tensors)
    recurrence = Recurrence(cell.advance, cell.output, trained, (layouts, tuple(numbers)))
    inputs = Inputs(cell.project(x), state, cell.cached_constants(), lengths)
    return recorded_scan(cell._recordings, recorder, recurrence, inputs)
