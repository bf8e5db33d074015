"""Time to the first gradient of a neural ODE in a new process, compilation included.

A field of one hidden layer is solved and its gradient taken, for the first and the second time, by
this library and by those of torchdiffeq and diffrax that are installed. Seconds are CPU seconds of
the process, which other programs change little; modules that a library imports at its first call
count as part of that call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec

from undamped.lab.benchmarks.timing import benchmark
from undamped.lab.report.charts import bar_chart
from undamped.lab.report.table import Progress, Report, Table, silent

TORCH = """
import json, time, torch
from {library} import odeint
torch.manual_seed(0)
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(2, 50), torch.nn.Tanh(), torch.nn.Linear(50, 2))
y0, t = torch.randn(20, 2), torch.linspace(0.0, 1.0, 10)
def gradient():
    odeint(lambda t, y: net(y ** 3), y0, t, rtol=1e-5, atol=1e-6).square().sum().backward()
"""
JAX = """
import json, time, jax, jax.numpy as jnp, diffrax
keys = jax.random.split(jax.random.PRNGKey(0), 3)
weights = (jax.random.normal(keys[0], (2, 50)) * 0.4, jax.random.normal(keys[1], (50, 2)) * 0.1)
y0, t = jax.random.normal(keys[2], (20, 2)), jnp.linspace(0.0, 1.0, 10)
def loss(weights):
    field = diffrax.ODETerm(lambda t, y, w: jnp.tanh(y ** 3 @ w[0]) @ w[1])
    solution = diffrax.diffeqsolve(
        field, diffrax.Dopri5(), 0.0, 1.0, 0.01, y0, weights, saveat=diffrax.SaveAt(ts=t),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-6))
    return jnp.square(solution.ys).sum()
compiled = jax.jit(jax.grad(loss))
def gradient():
    jax.block_until_ready(compiled(weights))
"""
MEASURE = """
times = []
for _ in range(5):
    start = time.process_time()
    gradient()
    times.append(time.process_time() - start)
    total = time.process_time() if len(times) == 1 else total
print(json.dumps([total, times[0], min(times[1:])]))
"""
PROGRAMS = {
    "undamped": TORCH.replace("{library}", "undamped"),
    "torchdiffeq": TORCH.replace("{library}", "torchdiffeq"),
    "diffrax": JAX,
}


@dataclass(frozen=True)
class FirstGradient:
    """One library.

    Args:
        library: Its name.
        total: Seconds from the start of the process to the first gradient, with all imports.
        first: Seconds of the call for the first gradient.
        later: Seconds of a later gradient, the shortest of four.
    """

    library: str
    total: float
    first: float
    later: float


@benchmark("first-gradient")
def run(*, rounds: int = 3, quick: bool = False, progress: Progress = silent) -> Report:
    """Time to the first gradient of a neural ODE in a new process, compilation included.

    Args:
        rounds: How many processes are started for each library; the fastest counts.
        quick: One process of this library.
        progress: Called with a name after every process.

    Example:
        >>> result = run(rounds=1)
    """
    names = ["undamped"] if quick else [name for name in PROGRAMS if find_spec(name)]
    times: dict[str, list[list[float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(1 if quick else rounds):
            for name in names:
                times[name].append(_seconds(PROGRAMS[name], folder))
                progress(name)
    records = [
        FirstGradient(name, *(min(column) for column in zip(*pairs, strict=True)))
        for name, pairs in times.items()
    ]
    rows = [
        (r.library, f"{r.total:.2f}", f"{r.first:.2f}", f"{1000 * r.later:.1f}") for r in records
    ]
    title = (
        "dopri5, 20 samples of 2 numbers, 50 hidden units, 10 output times, one thread, float32."
    )
    header = ("library", "from the start, s", "first gradient, s", "later gradients, ms")
    bars = {"from the start": {r.library: r.total for r in records}}
    return Report(
        records,
        [Table(header, rows, title)],
        {"first_gradient": lambda: bar_chart(bars, "seconds to the first gradient", log=True)},
    )


def _seconds(program: str, folder: str) -> list[float]:
    """Return seconds to the first gradient, of its call, and of a later one in a new process."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_CACHE_DIR": folder}
    variables["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    done = subprocess.run(
        [sys.executable, "-c", program + MEASURE],
        capture_output=True,
        text=True,
        env=variables,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
