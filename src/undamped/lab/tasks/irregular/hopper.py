"""A hopping robot that falls, simulated by MuJoCo and observed at a few times."""

from __future__ import annotations

from importlib import import_module
from importlib.resources import files
from typing import Annotated, Any, ClassVar, Unpack

import numpy as np
import torch

from undamped._base.checked import checked
from undamped._base.options import Default, PositiveInt
from undamped._base.packages import require
from undamped._base.registry import tasks
from undamped.lab.tasks.irregular.curves import CurveOptions, CurveTask, Data
from undamped.lab.tasks.task import Split

STEP = 0.005
"""Seconds between two points."""
SUBSTEPS = 2
"""Steps of the simulation from point to point."""


class HopperOptions(CurveOptions, total=False):
    """Options of the hopper."""

    series: Annotated[PositiveInt, Default(2000, "Falls of the training split.")]
    points: Annotated[PositiveInt, Default(200, "Points of a fall, one every 0.005 s.")]
    observed: Annotated[
        PositiveInt,
        Default(
            10,
            'How many points a model receives; with query="second-half" all are in the first half.',
        ),
    ]


@tasks.register("hopper")
class Hopper(CurveTask):
    """Predict the fall of a one-legged robot from a few of its states.

    The hopper of Gymnasium, simulated by MuJoCo without control from random positions and
    velocities: six positions and angles and their velocities every 0.005 s, standardised with mean
    and deviation of the training split. It falls freely, hits the ground and rolls over.

    Example:
        >>> build("hopper", observed=10)

    Reference:
        Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations for
        irregularly-sampled time series. NeurIPS, 2019. They use the hopper of the DeepMind control
        suite, which has one joint more; starts are drawn as in their program (the trunk up to
        0.5 m from its position, angles up to 2, velocities up to 5), angles of joints within their
        limits.
    """

    input_size = 12
    output_size = 12
    span = 1.0
    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 64}, "train": {"batch_size": 50, "minutes": 10}},
        "latent-ode": {"model": {"latent_size": 24, "field_size": 128}},
    }

    @checked
    def __init__(self, **options: Unpack[HopperOptions]) -> None:
        require("task hopper", "mujoco", "gymnasium")
        complete: Any = options  # `checked` fills in the defaults
        self.span = complete["points"] * STEP
        super().__init__(complete)
        self._units: Data = ()

    def simulate_split(self, split: Split, random: np.random.Generator) -> Data:
        """Return times (falls, points) and standardised states (falls, points, 12)."""
        count = self.sequences(split)
        values = torch.from_numpy(falls(count, self.points, random).astype(np.float32))
        times = np.tile(STEP * np.arange(self.points), (count, 1))
        if split == "train":
            self._units = values.mean((0, 1)), values.std((0, 1))
        else:
            self.data("train")
        mean, deviation = self._units
        return torch.from_numpy(times), (values - mean) / deviation


def falls(count: int, points: int, random: np.random.Generator) -> np.ndarray:
    """Return positions and velocities (count, points, 12) of falling hoppers.

    Args:
        count: How many falls.
        points: Points of each, one every 0.005 s; the first is the start.
        random: The random number generator of the starts.
    """
    simulator: Any = import_module("mujoco")
    rollout: Any = import_module("mujoco.rollout")
    file = files("gymnasium") / "envs" / "mujoco" / "assets" / "hopper.xml"
    model = simulator.MjModel.from_xml_path(str(file))
    model.opt.timestep = STEP / SUBSTEPS
    model.opt.integrator = simulator.mjtIntegrator.mjINT_EULER  # as in the control suite
    low, high = np.full(model.nq, -2.0), np.full(model.nq, 2.0)
    low[:2], high[:2] = 0.0, 0.5
    limited = model.jnt_limited.astype(bool)
    low[limited] = np.maximum(low, model.jnt_range[:, 0])[limited]
    high[limited] = np.minimum(high, model.jnt_range[:, 1])[limited]
    positions = model.qpos0 + random.uniform(low, high, (count, model.nq))
    velocities = random.uniform(-5, 5, (count, model.nv))
    start = np.concatenate([np.zeros((count, 1)), positions, velocities], 1)  # time is first
    steps = SUBSTEPS * (points - 1)
    if not steps:
        return start[:, None, 1:]
    workers = [simulator.MjData(model) for _ in range(torch.get_num_threads())]
    later, _ = rollout.rollout(model, workers, start, nstep=steps)
    return np.concatenate([start[:, None], later[:, SUBSTEPS - 1 :: SUBSTEPS]], 1)[..., 1:]
