"""Physics networks beside what a person would otherwise write: seconds, memory, gradients.

Every section builds one network with one set of weights and lets several programs do the same with
it, in one run.

    undamped bench physics
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from undamped._base.registry import benchmarks
from undamped.lab.benchmarks.physics_sections import Section
from undamped.lab.benchmarks.tables import terminal_table


@dataclass(frozen=True)
class PhysicsBenchmark:
    """All sections of one run.

    Args:
        threads: How many torch had.
        sections: What was compared.
    """

    threads: int
    sections: tuple[Section, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON."""
        return {
            "threads": self.threads,
            "sections": [section.to_dict() for section in self.sections],
        }

    def markdown(self) -> str:
        """Return tables and sentences for a page."""
        parts = [section.markdown() for section in self.sections]
        return "\n\n".join([*parts, f"{self.threads} threads."])

    def summary(self) -> Any:
        """Return the same for a terminal."""
        from rich.console import Group

        shown: list[Any] = []
        for section in self.sections:
            table = terminal_table(section.heads, section.rows, section.title)
            shown += [table, *section.sentences]
        return Group(*shown)

    def figures(self) -> dict[str, Any]:
        """No pictures: there are a few numbers."""
        return {}


@benchmarks.register("physics")
def run(
    *,
    rounds: int = 7,
    only: Sequence[str] = (),
    quick: bool = False,
    tick: Callable[[str], None] | None = None,
) -> PhysicsBenchmark:
    """Physics networks beside autograd: seconds of a step, memory of long trajectories.

    Args:
        rounds: How often each candidate is timed.
        only: Names of sections; all by default.
        quick: Small sizes, to see that everything runs.
        tick: Called with a name after every measurement, for a progress bar.

    Example:
        >>> result = run(quick=True)
    """
    from undamped._base.options import unknown_name
    from undamped.lab.benchmarks.physics_hamiltonian import hamiltonian_gradients, symplectic_memory
    from undamped.lab.benchmarks.physics_lagrangian import lagrangian_accelerations

    known: dict[str, Callable[..., Section]] = {
        "hnn": hamiltonian_gradients,
        "srnn": symplectic_memory,
        "lnn": lagrangian_accelerations,
    }
    for name in only:
        if name not in known:
            raise unknown_name("section of this benchmark", name, list(known))
    chosen = [known[name] for name in only or known]
    sections = [section(rounds=rounds, quick=quick, tick=tick) for section in chosen]
    return PhysicsBenchmark(torch.get_num_threads(), tuple(sections))
