"""Processes that begin with everything imported: copies of a server instead of a fresh Python."""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.context import ForkServerContext

_NEEDED = ("undamped.", "lightning.", "optuna.", "torch.", "scipy.", "sklearn.")


def forks() -> ForkServerContext:
    """Return a context of `multiprocessing` whose processes have imported what this one has.

    The server that is copied is started with the first process and does nothing else, so that no
    thread of this process is copied in the middle of something. Not on Windows.
    """
    import lightning.fabric
    import optuna

    from undamped._base.registry import models, tasks

    assert lightning.fabric and optuna and list(tasks) and list(models)  # all of it is loaded
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in sys.modules if name.startswith(_NEEDED)])
    return context
