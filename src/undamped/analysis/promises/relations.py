"""Promises of models that answer from relations alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.functional import jacobian

from undamped._base.promises import HasRelations
from undamped.analysis.promises.result import Result

TRIALS, LENGTH, ITERATIONS = 2, 5, 60
AGREED, LIMIT = 1e-7, 1e-5
"""How closely the relations of the exchanged codes agree, and how closely the answers must."""
FLAT = 1e-12
"""The share of the largest slope, squared, below which a direction counts as flat."""


def measure_relations_alone(model: HasRelations, generator: torch.Generator) -> Result:
    """Exchange the codes of all inputs for others with the same relations; compare the answers."""
    steps = model.length or LENGTH
    # With few features that vary, similarities are not so large that a softmax saturates.
    varying = min(model.features, steps + 2)
    worst = 0.0

    def whole(part: Tensor) -> Tensor:
        return torch.nn.functional.pad(part, (0, model.features - varying))

    for _ in range(TRIALS):
        codes = torch.randn(steps, 1, varying, generator=generator, dtype=torch.float64)
        others = _with_the_same(lambda part: model.relations(whole(part)), codes, generator)
        with torch.no_grad():
            change = model.decide(whole(others)) - model.decide(whole(codes))
        worst = max(worst, change.abs().max().item())
    return worst, LIMIT, "largest change of an answer when all inputs are exchanged"


def _with_the_same(
    relations: Callable[[Tensor], Tensor], codes: Tensor, generator: torch.Generator
) -> Tensor:
    """Walk away from codes, and back to where relations are what they were.

    There are more numbers in codes than in relations, so that one comes back to another place.
    Steps are those of Levenberg and Marquardt: shorter, by the damping, where they fail.
    """
    wanted = relations(codes).detach()
    away = torch.randn(codes.shape, generator=generator, dtype=codes.dtype)
    for distance in (1.0, 0.3, 0.1, 0.01, 0.001):
        others, damping = codes + distance * away, 1e-3
        missed = (relations(others).detach() - wanted).flatten()
        for _ in range(ITERATIONS):
            if missed.abs().max() <= AGREED:
                return others
            slope = jacobian(relations, others).reshape(len(missed), -1)
            # Relations depend on each other (a row of a softmax sums to one), so that some
            # directions have no slope at all; there is nothing to be missed along them either.
            power, directions = torch.linalg.eigh(slope @ slope.T)
            inverse = torch.where(power > FLAT * power[-1], 1 / (power + damping * power[-1]), 0)
            step = slope.T @ (directions @ (inverse * (directions.T @ missed)))
            tried = others - step.reshape(codes.shape)
            left = (relations(tried).detach() - wanted).flatten()
            better = bool(left.norm() < missed.norm())
            if better:
                others, missed = tried, left
            damping = damping / 10 if better else damping * 10
    raise ArithmeticError("no other codes with the same relations were found")
