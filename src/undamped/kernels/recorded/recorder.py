"""Recorders of loops: CUDA graphs on a GPU, none on other devices.

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
    """The interface of recorders, which record work on fixed memory for replay."""

    steps: int
    """Steps of a recording."""

    def record(self, work: Work) -> Work:
        """Run `work`, perhaps several times, and return a function that repeats it."""
        ...


class CUDAGraphs:
    """Record work as one CUDA graph. Experimental: not tested on a GPU.

    Args:
        device: The GPU.
    """

    steps = 32

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def record(self, work: Work) -> Work:
        """Warm up on another stream, as torch requires, then record."""
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
"""The recorder on the CPU; set by tests only."""


def recorder_for(*tensors: Tensor) -> Recorder | None:
    """Return the recorder of a loop over these tensors; None if it has to run step by step.

    Nothing is recorded during another recording, while torch traces, in `plain_loops`, or in
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
