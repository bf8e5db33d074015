"""Parameters of which a few belong to the fast subset of the tests."""

import pytest

NETWORKS = ("unicornn", "lstm", "linoss", "exprnn", "indrnn", "relrnn")
"""One network for every family of kernels."""


def few_fast(names, fast=NETWORKS):
    """Return the names as parameters; all but the fast ones are marked as slow."""
    return [n if n in fast else pytest.param(n, marks=pytest.mark.slow) for n in names]
