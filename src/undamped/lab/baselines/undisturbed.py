"""Calls of libraries that change what belongs to the whole process."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def undisturbed() -> Iterator[None]:
    """Give back the random numbers of NumPy and torch, and torch's number of threads.

    aeon seeds the global generators of both, Hydra sets the number of threads, and Numba warns of
    casts inside aeon's loops when it compiles them.
    """
    state, threads = np.random.get_state(), torch.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*unsafe cast")
            yield
    finally:
        np.random.set_state(state)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
