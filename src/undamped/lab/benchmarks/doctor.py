"""How many planted defects the doctor names, with their place, and how often it is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from undamped.analysis import Diagnosis
from undamped.analysis import doctor as examine
from undamped.lab.benchmarks.planted import Case, healthy, late, planted
from undamped.lab.benchmarks.planted_later import later_defects, later_healthy
from undamped.lab.benchmarks.timing import benchmark
from undamped.lab.report.table import Progress, Report, Table, silent

SETS = {
    "planted before the rules were fixed": planted,
    "planted after that": late,
    "in other styles of code, later": later_defects,
    "healthy": healthy,
    "healthy, in other styles of code": later_healthy,
}


@dataclass(frozen=True)
class Outcome:
    """What the doctor said about one model.

    Args:
        name: What was planted; for a healthy model its description.
        architecture: The kind of model.
        rule: Name of the rule that must fire; empty for a healthy model.
        split: Which of the sets the model is from.
        named: Whether the rule fired.
        located: Whether the module is right, too.
        helps: Whether the remedy helped on a copy; None if none was tried.
        reported: Names of all rules that fired.
        seconds: Duration.
    """

    name: str
    architecture: str
    rule: str
    split: str
    named: bool
    located: bool
    helps: bool | None
    reported: list[str]
    seconds: float


@benchmark("doctor")
def run(*, quick: bool = False, progress: Progress = silent) -> Report:
    """How many planted defects the doctor names, with their place, and how often it is wrong.

    Args:
        quick: Every tenth model only.
        progress: Called with a name after every model.

    Example:
        >>> result = run(quick=True)
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        stride = 10 if quick else 1
        outcomes = [
            _examine(case, split, progress)
            for split, cases in SETS.items()
            for case in list(cases())[::stride]
        ]
    return _report(outcomes)


def _report(outcomes: list[Outcome]) -> Report:
    defects = [outcome for outcome in outcomes if outcome.rule]
    rows = [
        (split, *_counts(group))
        for split in SETS
        if (group := [outcome for outcome in defects if outcome.split == split])
    ]
    models = [outcome for outcome in outcomes if not outcome.rule]
    alarms = sum(bool(outcome.reported) for outcome in models)
    longest = max(outcome.seconds for outcome in outcomes)
    note = (
        f"Healthy models: {alarms} of {len(models)} have a finding. "
        f"The longest examination took {longest:.1f} s."
    )
    header = ("set", "defects", "kinds", "named", "with the place", "remedies tried", "that help")
    misses = [
        (o.name, o.architecture, o.rule or "none", ", ".join(o.reported) or "none")
        for o in outcomes
        if (not o.located if o.rule else o.reported)
    ]
    tables = [
        Table(header, rows, "The doctor on planted defects.", [note]),
        Table(("model", "architecture", "expected", "reported"), misses, "What is wrong.", (), 4),
    ]
    return Report(outcomes, tables)


def _examine(case: Case, split: str, progress: Progress) -> Outcome:
    start = time.perf_counter()
    diagnosis: Diagnosis = examine(case.model, case.inputs, **case.options)
    seconds = time.perf_counter() - start
    finding = next((f for f in diagnosis.findings if f.rule == case.rule), None)
    progress(f"{case.architecture}: {case.name}")
    return Outcome(
        case.name,
        case.architecture,
        case.rule,
        split,
        finding is not None,
        finding is not None and finding.module in case.modules,
        None if finding is None or finding.trial is None else finding.trial.helps,
        [f.rule for f in diagnosis.findings],
        seconds,
    )


def _counts(outcomes: Iterable[Outcome]) -> tuple[str, ...]:
    group = list(outcomes)
    tried = [o.helps for o in group if o.helps is not None]
    numbers = (
        len(group),
        len({o.name for o in group}),
        sum(o.named for o in group),
        sum(o.located for o in group),
        len(tried),
        sum(tried),
    )
    return tuple(map(str, numbers))
