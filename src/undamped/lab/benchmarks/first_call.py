"""The cost of the first call of a network: CPU seconds in a new process, cold and warm.

Cold means that nothing is compiled (an empty cache), warm that an earlier process has stored its
compiled kernels. CPU seconds are those of the process, which other programs on the machine change
little. Importing torch and building the network are not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass

from undamped.lab.benchmarks.timing import benchmark, recurrent_networks
from undamped.lab.report.charts import bar_chart
from undamped.lab.report.table import Progress, Report, Table, silent

COLD, WARM = 3.0, 1.0
"""Largest seconds, forward and backward together."""
QUICK = "unicornn,indrnn"
HEADER = ("network", "cold: forward", "with backward", "warm: forward", "with backward", "target")
PROGRAM = """
import json, sys, time, torch, undamped
torch.manual_seed(0)
network = undamped.build(sys.argv[1], input_size=3, hidden_size=16)
x = torch.randn(20, 4, 3)
start = time.process_time()
output, _ = network(x)
forward = time.process_time() - start
output.sum().backward()
print(json.dumps([forward, time.process_time() - start]))
"""


@dataclass(frozen=True)
class FirstCall:
    """One network.

    Args:
        network: Its name.
        cold: Seconds of the forward pass, and of both passes, with nothing compiled.
        warm: The same with kernels of an earlier process.
    """

    network: str
    cold: tuple[float, float]
    warm: tuple[float, float]

    def row(self) -> tuple[str, ...]:
        """Return the row of the table."""
        missed = [] if self.cold[1] <= COLD else [f"cold above {COLD:g} s"]
        missed += [] if self.warm[1] <= WARM else [f"warm above {WARM:g} s"]
        numbers = [f"{seconds:.2f}" for seconds in (*self.cold, *self.warm)]
        return self.network, *numbers, ", ".join(missed) or "met"


@benchmark("first-call")
def run(*, networks: str = "", quick: bool = False, progress: Progress = silent) -> Report:
    """The cost of the first call of a network: CPU seconds in a new process, cold and warm.

    Args:
        networks: Names separated by commas; all recurrent networks by default.
        quick: Two networks.
        progress: Called with a name after every network.

    Example:
        >>> result = run(networks="lstm")
    """
    calls = []
    for name in recurrent_networks(networks or (QUICK if quick else "")):
        with tempfile.TemporaryDirectory() as folder:
            cold, warm = _seconds(name, folder), _seconds(name, folder)
        calls.append(FirstCall(name, cold, warm))
        progress(name)
    bars = {
        "cold": {call.network: call.cold[1] for call in calls},
        "warm": {call.network: call.warm[1] for call in calls},
    }
    unit = "CPU seconds of the first forward and backward pass"
    return Report(
        calls,
        [Table(HEADER, [call.row() for call in calls])],
        {"first_call": lambda: bar_chart(bars, unit)},
    )


def _seconds(name: str, folder: str) -> tuple[float, float]:
    """Return the CPU seconds of a process that stores its compiled code in a folder."""
    environment = os.environ | {"NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    forward, both = json.loads(process.stdout.splitlines()[-1])
    return forward, both
