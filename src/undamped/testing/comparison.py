"""What all checks share: comparisons of tensors, and messages that name what differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from undamped.analysis.promises import measure


def run_checks(subject: str, checks: Mapping[str, Callable[..., None]], *arguments: Any) -> None:
    """Run checks one after the other; an `AssertionError` begins with the subject and the check.

    Args:
        subject: Name of what is checked.
        checks: The checks by name.
        arguments: Arguments of every check.
    """
    for name, check in checks.items():
        try:
            check(*arguments)
        except AssertionError as error:
            raise AssertionError(f"{subject}, {name}: {error}") from error


def tensors_of(state: Any) -> tuple[Tensor, ...]:
    """Return the tensors of a state, which is a tensor or a tuple of them."""
    return (state,) if isinstance(state, Tensor) else tuple(state)


def assert_same(actual: Any, expected: Any, what: str, tolerance: float = 1e-11) -> None:
    """Raise an `AssertionError` that begins with `what` if tensors or states differ.

    Args:
        actual: A tensor, or a tuple of tensors.
        expected: The same.
        what: What is compared.
        tolerance: The absolute and relative tolerance.
    """
    for part, expected_part in zip(tensors_of(actual), tensors_of(expected), strict=True):
        torch.testing.assert_close(
            part, expected_part, atol=tolerance, rtol=tolerance, msg=lambda text: f"{what}: {text}"
        )


def assert_promises(subject: Any) -> None:
    """Measure every promise of a cell, a model or a solver, and require that all hold."""
    for result in measure(subject):
        assert result.holds, f"{result.promise.kind.value} does not hold: {result.to_dict()}"
