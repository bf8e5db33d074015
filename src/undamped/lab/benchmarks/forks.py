"""Processes that start with all modules imported: forks of a server instead of a new Python."""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import ForkServerContext

_PRELOADED = ("undamped.", "lightning.", "optuna.", "torch.", "scipy.", "sklearn.")


def forks() -> ForkServerContext:
    """Return a `multiprocessing` context whose processes have imported the modules of this one.

    The server that is forked is started with the first process and does nothing else, so that no
    running thread of this process is copied. Not on Windows.
    """
    import lightning.fabric
    import optuna

    from undamped._base.registry import models, tasks

    assert lightning.fabric and optuna and list(tasks) and list(models)  # imports all members
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in sys.modules if name.startswith(_PRELOADED)])
    return context
