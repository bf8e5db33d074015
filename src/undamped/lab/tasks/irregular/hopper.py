"""A hopping robot that is let go, simulated by MuJoCo, and measured now and then."""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.packages import require
from undamped._base.registry import tasks
from undamped.lab.tasks.irregular.curves import Ask, CurveTask
from undamped.lab.tasks.task import Split

APART = 0.005
"""Seconds between two points."""
SUBSTEPS = 2
"""Steps of the simulation from point to point."""


@tasks.register("hopper")
class Hopper(CurveTask):
    """Say how a one-legged robot falls, from a few moments of it.

    The hopper of Gymnasium, simulated by MuJoCo without any control from random positions and
    velocities: six positions and angles and their velocities every 0.005 s, each in units of its
    deviation over the training part. It falls freely, hits the ground and rolls over.

    Args:
        series: How many falls there are to learn from.
        points: Points of a fall, 0.005 s apart.
        seen: How many of them a model sees; with `ask="second-half"` all of them lie in the
            first half.
        ask: Whether all points are asked for, those that were seen too, or the second half.
        seed: Where all random numbers come from.

    Example:
        >>> build("hopper", seen=10)

    Reference:
        Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations for
        irregularly-sampled time series. NeurIPS, 2019. Theirs is the hopper of the DeepMind
        control suite, which has one joint more; starts are drawn as they draw them (the trunk up
        to 0.5 m from its place, angles up to 2, velocities up to 5), angles of joints within
        their limits.
    """

    input_size = 12
    output_size = 12
    span = 1.0
    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 64}, "train": {"batch_size": 50, "minutes": 10}},
        "latent-ode": {"model": {"latent_size": 24, "field_size": 128}},
    }

    @checked
    def __init__(
        self,
        *,
        series: PositiveInt = 2000,
        points: PositiveInt = 200,
        seen: PositiveInt = 10,
        ask: Ask = "all",
        seed: NonNegativeInt = 0,
    ) -> None:
        require("task hopper", "mujoco", "gymnasium")
        self.span = points * APART
        super().__init__(series=series, points=points, seen=seen, ask=ask, seed=seed)
        self._units: tuple[Tensor, Tensor] | None = None

    def of(self, split: Split) -> tuple[Tensor, Tensor]:
        """Return times (falls, points) and states (falls, points, 12), in units of training's."""
        if split in self._curves:
            return self._curves[split]
        times, values = super().of(split)
        if split == "train":
            self._units = values.mean((0, 1)), values.std((0, 1))
        elif self._units is None:
            self.of("train")
        assert self._units is not None
        mean, deviation = self._units
        self._curves[split] = times, (values - mean) / deviation
        return self._curves[split]

    def curves(self, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Let robots go and watch them."""
        times = np.tile(APART * np.arange(self.points), (count, 1))
        return times, falls(count, self.points, random)


def falls(count: int, points: int, random: np.random.Generator) -> np.ndarray:
    """Return positions and velocities (count, points, 12) of hoppers that are let go.

    Args:
        count: How many.
        points: Points of each, 0.005 s apart; the first is the start.
        random: Where the starts come from.
    """
    simulator: Any = import_module("mujoco")
    rollout: Any = import_module("mujoco.rollout")
    file = files("gymnasium") / "envs" / "mujoco" / "assets" / "hopper.xml"
    model = simulator.MjModel.from_xml_path(str(file))
    model.opt.timestep = APART / SUBSTEPS
    model.opt.integrator = simulator.mjtIntegrator.mjINT_EULER  # as in the control suite
    low, high = np.full(model.nq, -2.0), np.full(model.nq, 2.0)
    low[:2], high[:2] = 0.0, 0.5
    limited = model.jnt_limited.astype(bool)
    low[limited] = np.maximum(low, model.jnt_range[:, 0])[limited]
    high[limited] = np.minimum(high, model.jnt_range[:, 1])[limited]
    positions = model.qpos0 + random.uniform(low, high, (count, model.nq))
    velocities = random.uniform(-5, 5, (count, model.nv))
    start = np.concatenate([np.zeros((count, 1)), positions, velocities], 1)  # time comes first
    steps = SUBSTEPS * (points - 1)
    if not steps:
        return start[:, None, 1:]
    workers = [simulator.MjData(model) for _ in range(torch.get_num_threads())]
    later, _ = rollout.rollout(model, workers, start, nstep=steps)
    return np.concatenate([start[:, None], later[:, SUBSTEPS - 1 :: SUBSTEPS]], 1)[..., 1:]
