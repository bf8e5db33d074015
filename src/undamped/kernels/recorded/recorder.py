"""Who records: CUDA's graphs on a GPU, and nobody elsewhere.

A step of a coupled cell is a handful of small kernels, and starting one from Python takes longer
than the kernel. A graph of many steps is started by a single call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol

import torch
from torch import Tensor

from undamped.kernels.dispatch import use_plain_loops

Work = Callable[[], None]


class Recorder(Protocol):
    """Something that turns work on fixed memory into a replay of it."""

    steps: int
    """Steps of a recording."""

    def record(self, work: Work) -> Work:
        """Run `work`, perhaps several times, and return what does the same from then on."""
        ...


class CUDAGraphs:
    """Work becomes one CUDA graph. Experimental: no GPU was at hand.

    Args:
        device: The card.
    """

    steps = 32

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def record(self, work: Work) -> Work:
        """Warm up beside the current stream, as torch asks, then record."""
        with torch.cuda.device(self.device):
            side_stream = torch.cuda.Stream()
            side_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side_stream):
                for _ in range(2):
                    work()
            torch.cuda.current_stream().wait_stream(side_stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                work()
        return graph.replay


CPU_RECORDER: ContextVar[Recorder | None] = ContextVar("CPU_RECORDER", default=None)
"""What records loops on the CPU; only tests set one."""


def recorder_for(*tensors: Tensor) -> Recorder | None:
    """Return who records a loop over these tensors; None if it has to run step by step.

    Nothing is recorded while somebody else records, traces or wants to see every step, nor in
    sixteen bits.
    """
    first = tensors[0]
    if torch.compiler.is_compiling() or first.is_meta or use_plain_loops():
        return None
    if any(t.device != first.device or t.dtype != first.dtype for t in tensors):
        return None
    if first.dtype not in (torch.float32, torch.float64):
        return None
    if not first.is_cuda:
        return CPU_RECORDER.get()
    if not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
        return None
    return CUDAGraphs(first.device)
