"""The score of a model whose matrices have 8 bits, measured in PyTorch on validation data.

Only weights are rounded, with a scale per row; the state, the samples and all sums stay in single
precision. So no range of activations has to be known.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, RunError
from undamped._base.torch_internals import TorchDispatchMode, tree_leaves, tree_map
from undamped.kernels.dispatch import plain_loops
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
from undamped.lab.export.c.integer_model import IntegerStep, integer_model, integer_step
from undamped.lab.export.c.lower import quantise
from undamped.lab.export.subject import Subject
from undamped.lab.streams import StepStream
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.run import Run
from undamped.models.task_model import TaskModel

_MARK = "undamped_constant"
_BATCHES = 8  # of validation data, whose values determine the ranges of integers
_RECURRENT = ("lstm", "gru", "rnn_tanh")


@dataclass(frozen=True)
class Int8Scores:
    """Scores on validation data.

    Args:
        metric: The name of the metric.
        single: The score in single precision.
        int8: The score with weights of 8 bits.
        loss: What is lost: points of accuracy, or percent of any other score; negative for a gain.
        integer: Whether the state is in integers, too.
    """

    metric: str
    single: float
    int8: float
    loss: float
    integer: bool = False

    @property
    def sentence(self) -> str:
        """A description of the scores."""
        unit = "points" if self.metric == "accuracy" else "%"
        change = f"{abs(self.loss):.2g} {unit} {'lost' if self.loss > 0 else 'gained'}"
        form = "in integers" if self.integer else "with 8-bit weights"
        return (
            f"validation {self.metric} {self.single:.4g} in single precision, {self.int8:.4g} "
            f"{form}: {change if self.loss else 'nothing lost'}"
        )


def calibrated(run: Run, subject: Subject) -> IntegerStep:
    """Return the step of a run in integers, for the ranges of values on validation data."""
    task, size = run.task(), run.train_options().batch_size
    count = task.count("valid", size)
    assert count is not None
    batches = (task.batch("valid", index, size) for index in range(min(count, _BATCHES)))
    return integer_step(subject, batches)


def check_int8(
    run: Run, subject: Subject, most: float, integer: IntegerStep | None = None
) -> Int8Scores:
    """Return the scores of a run on validation data; refuse it if more is lost than `most`.

    Args:
        run: The run.
        subject: Its model.
        most: Points of accuracy, or percent of any other score.
        integer: The step in integers, if that is to be scored.
    """
    if not most >= 0:
        raise OptionError(f"--lose must be at least 0, got {most:g}.")
    task, model = run.task(), run.model().float()
    size = run.train_options().batch_size
    single = evaluate(model, task, "valid", size).metric
    integers = None if integer is None else nullcontext(integer_model(subject, integer))
    with integers or int8_weights(model) as copied:
        rounded = evaluate(copied, task, "valid", size).metric
    sign = 1 if task.higher_is_better else -1
    loss = 100 * sign * (single - rounded)
    if task.metric != "accuracy":
        loss /= max(abs(single), 1e-12)
    scores = Int8Scores(task.metric, single, rounded, loss, integer is not None)
    if not loss <= most:
        raise RunError(
            f"The C code was not written: {scores.sentence}, more than --lose {most:g}. Allow "
            f"more, or export without {'--int8' if integer is None else '--integer'}."
        )
    return scores


@contextmanager
def int8_weights(model: TaskModel) -> Iterator[TaskModel]:
    """Enter a context in which the copy of a model has matrices of 8 bits.

    The copy predicts in plain loops, and streams step by step.
    """
    copied = copy.deepcopy(model).cpu().float().eval()
    with torch.inference_mode():
        if isinstance(copied, OscillatorBank):
            for weight in (copied.readout.weight, *copied.early.weight):
                weight.data.copy_(_round(weight.data))
            yield copied
            return
        vars(copied)["stream"] = lambda offsets=None: StepStream(copied, offsets)  # type: ignore[arg-type]
        with plain_loops(), Int8Products(copied):
            yield copied


def _round(matrix: Tensor) -> Tensor:
    numbers, scale = quantise(matrix.float())
    return numbers.to(matrix.dtype) * scale.to(matrix.dtype).unsqueeze(1)


class Int8Products(TorchDispatchMode):
    """Rounds constant matrices to 8 bits in every product, as the C code does.

    Args:
        model: The model, whose parameters and everything that is computed from them alone are
            constants.
    """

    def __init__(self, model: TaskModel) -> None:
        super().__init__()
        for tensor in (*model.parameters(), *model.buffers()):
            setattr(tensor, _MARK, True)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        # Tensors that are made without others, such as an identity, are constants too.
        constant = all(hasattr(tensor, _MARK) for tensor in tensors)
        name = func.name().removeprefix("aten::").split(".")[0]
        if name.removesuffix("_cell") in _RECURRENT:  # one call of torch for many products
            args = (*args[:2], *tree_map(_rounded_weight, args[2:]))
        # `linear` also multiplies an initial state, which may be a parameter.
        elif name == "linear" or (not constant and name in ("matmul", "mm", "mv", "addmm")):
            first = 1 if name == "addmm" else 0  # addmm has the addend before the factors
            left, right = args[first : first + 2]
            # The matrix of `linear` is a weight, also one that does not come from a parameter.
            if (name == "linear" or hasattr(right, _MARK)) and right.dim() == 2:
                right = _rounded(right, rows=name == "linear")
            elif hasattr(left, _MARK) and left.dim() == 2:
                left = _rounded(left, rows=True)
            args = (*args[:first], left, right, *args[first + 2 :])
        result = func(*args, **kwargs)
        if constant:
            for tensor in tree_leaves(result):
                if isinstance(tensor, Tensor):
                    setattr(tensor, _MARK, True)
        return result


def _rounded_weight(value: Any) -> Any:
    is_weight = isinstance(value, Tensor) and value.dim() == 2 and hasattr(value, _MARK)
    return _rounded(value, rows=True) if is_weight else value


def _rounded(matrix: Tensor, *, rows: bool) -> Tensor:
    """Return a matrix whose rows (or columns) were rounded; a single column is not."""
    matrix = matrix if rows else matrix.T
    rounded = _round(matrix) if matrix.shape[1] > 1 else matrix
    return rounded if rows else rounded.T
