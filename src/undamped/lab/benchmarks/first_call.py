"""What the first call of a network costs: CPU seconds in a fresh process, cold and warm.

Cold means that nothing is compiled yet (an empty cache), warm that an earlier process has left its
compiled kernels. CPU seconds are those of the process, which other programs on the machine change
little. Importing torch and building the network come before and are not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from undamped._base.registry import benchmarks
from undamped.lab.benchmarks.candidates import recurrent_networks
from undamped.lab.benchmarks.tables import markdown_table, terminal_table

COLD, WARM = 3.0, 1.0
"""Seconds that are wanted at most, forward and backward together."""
QUICK = "unicornn,indrnn"
HEADER = ("network", "cold: forward", "with backward", "warm: forward", "with backward", "wanted")
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
        """Return the line of a table."""
        missed = [] if self.cold[1] <= COLD else [f"cold above {COLD:g} s"]
        missed += [] if self.warm[1] <= WARM else [f"warm above {WARM:g} s"]
        numbers = [f"{seconds:.2f}" for seconds in (*self.cold, *self.warm)]
        return self.network, *numbers, ", ".join(missed) or "met"


@dataclass(frozen=True)
class FirstCalls:
    """All networks.

    Args:
        calls: One for each.
    """

    calls: tuple[FirstCall, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)

    def markdown(self) -> str:
        """Return the table for a document."""
        return markdown_table(HEADER, [call.row() for call in self.calls])

    def summary(self) -> Any:
        """Return a table for the terminal."""
        title = "bench first-call, CPU seconds in a fresh process"
        return terminal_table(HEADER, [call.row() for call in self.calls], title)

    def figures(self) -> dict[str, Any]:
        """Return a picture: both passes, cold and warm."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 0.6 + 0.22 * len(self.calls)), layout="constrained")
        axis, places = figure.subplots(), range(len(self.calls))
        axis.barh(places, [call.cold[1] for call in self.calls], label="cold", color="#bbbbbb")
        axis.barh(places, [call.warm[1] for call in self.calls], label="warm", color="#0072b2")
        axis.set_yticks(list(places), [call.network for call in self.calls], fontsize=7)
        axis.set_xlabel("CPU seconds of the first forward and backward pass")
        axis.legend(fontsize=8)
        return {"first_call": figure}


@benchmarks.register("first-call")
def run(
    *, networks: str = "", quick: bool = False, tick: Callable[[str], None] | None = None
) -> FirstCalls:
    """What the first call of a network costs: CPU seconds in a fresh process, cold and warm.

    Args:
        networks: Names with commas between them; all recurrent networks by default.
        quick: Two networks, for a look.
        tick: Called with a name after every single run, for a progress bar.

    Example:
        >>> result = run(networks="lstm")
    """
    found = []
    for name in recurrent_networks(networks or (QUICK if quick else "")):
        with tempfile.TemporaryDirectory() as folder:
            cold, warm = _seconds(name, folder), _seconds(name, folder)
        found.append(FirstCall(name, cold, warm))
        if tick is not None:
            tick(name)
    return FirstCalls(tuple(found))


def _seconds(name: str, folder: str) -> tuple[float, float]:
    """Return the CPU seconds of a process that keeps its compiled code in a folder."""
    environment = os.environ | {"NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    forward, both = json.loads(done.stdout.splitlines()[-1])
    return forward, both
