"""Keeping Lightning's notes about hardware and data loaders off the screen."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

LOGGERS = ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero")


def hush() -> None:
    """Silence Lightning in this process for good: for processes that only train."""
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*")


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """Silence Lightning for a while."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        with warnings.catch_warnings():
            hush()
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
