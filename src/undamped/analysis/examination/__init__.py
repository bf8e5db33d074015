"""`doctor`: what is wrong with a sequence model, where, and the smallest change that helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped.analysis.core import Layout, Result, Style, Trace
from undamped.analysis.core.figures import positive
from undamped.analysis.core.result import plain
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.examination.evidence import Evidence, gather
from undamped.analysis.examination.remedies import Trial
from undamped.analysis.examination.rules import RULES, Rule, Symptom


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Args:
        rule: Name of the rule.
        sentence: What is wrong, with its number.
        module: Name of the submodule; "forward" for the model's own code.
        step: The step, if there is one.
        certain: Whether the measurement excludes other explanations.
        remedy: The smallest change that helps.
        trial: What was tried on a copy of the model, with the measurement before and after.
    """

    rule: str
    sentence: str
    module: str
    step: int | None
    certain: bool
    remedy: str
    trial: Trial | None

    def __str__(self) -> str:
        return "\n  ".join([self.heading, self.sentence, *self.advice])

    @property
    def heading(self) -> str:
        """The rule, and where it applies."""
        step = "" if self.step is None else f", step {self.step}"
        return f"{self.rule}{'' if self.certain else ' (likely)'}, in {self.module}{step}"

    @property
    def advice(self) -> list[str]:
        """The remedy, and what came of it on a copy."""
        lines = [f"Remedy: {self.remedy}"]
        if self.trial is not None:
            verdict = "helps" if self.trial.helps else "does not help"
            numbers = f"{self.trial.before:.3g} to {self.trial.after:.3g}"
            lines.append(f"Tried on a copy: {self.trial.change} {verdict} ({numbers}).")
        return lines


@dataclass(frozen=True)
class Diagnosis(Result):
    """All that the doctor says about a model.

    Args:
        findings: What is wrong, in the order of the rules.
        read_as: How the inputs were read.
        gradient: (time,) norm of the gradient of the last output with respect to every step.
        response: Rows of a step, and how much the last output changes with all steps up to it.
    """

    findings: list[Finding]
    read_as: str
    gradient: NDArray[Any]
    response: NDArray[Any]

    columns = ("what", "remedy")
    figure_layout = Layout(
        "What the last output depends on",
        "step",
        "relative to the largest",
        "Points: how much the last output changes if all steps up to there have other values. "
        "Line: its gradient, from which training learns; where it is missing or far below the "
        "points, the network uses what it cannot learn. Vertical lines: steps that are named.",
        log_y=True,
        decades=12,
    )

    def __str__(self) -> str:
        if not self.findings:
            return self.sentence
        return "\n".join([*map(str, self.findings), f"Inputs: {self.read_as}."])

    @property
    def sentence(self) -> str:
        if not self.findings:
            return f"Nothing wrong was measured ({self.read_as})."
        return "; ".join(finding.heading for finding in self.findings) + f" ({self.read_as})."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return [
            (f"{finding.heading}: {finding.sentence}", " ".join(finding.advice))
            for finding in self.findings
        ]

    def traces(self, style: Style) -> list[Trace]:
        """The gradient, the change of the last output, and the steps of findings."""
        gradient, change = (
            positive(values / values.max(initial=1e-300))
            for values in (self.gradient, self.response[:, 1])
        )
        lines = [
            style.line(range(len(gradient)), gradient, "gradient"),
            style.points(self.response[:, 0], change, "change of the last output", 1),
        ]
        low = min((value for value in (*gradient, *change) if value is not None), default=0.1)
        for index, finding in enumerate(f for f in self.findings if f.step is not None):
            step = [finding.step, finding.step]
            lines.append(style.line(step, [low, 1.0], finding.rule, index + 2))
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the findings and the curves for JSON."""
        findings = []
        for finding in self.findings:
            entry = asdict(finding)
            if finding.trial is not None:
                entry["trial"] = finding.trial._asdict()
            findings.append(entry)
        curves = {"gradient": plain(self.gradient), "response": plain(self.response)}
        read_as, healthy = self.read_as, not self.findings
        return {"healthy": healthy, "read_as": read_as, "findings": findings, **curves}


def doctor(
    model: nn.Module,
    inputs: Tensor | tuple[Any, ...],
    loss: Callable[..., Tensor] | None = None,
    *,
    targets: Tensor | None = None,
    lengths: Tensor | None = None,
    causal: bool | None = None,
    batch_first: bool | None = None,
    learning_rate: float | None = None,
    clip: float | None = None,
    rules: tuple[Rule, ...] = RULES,
) -> Diagnosis:
    """Examine any module over sequences, and return what is wrong with it.

    Only copies are changed. Each finding has the module and the step, a sentence with the
    measurement, and the smallest remedy with the result of a trial.

    Args:
        model: Any module; recurrent, convolutional, attention, or with a loop of its own.
        inputs: (batch, time, …) or (time, batch, …), or a tuple of all arguments of `forward`.
        loss: From the output to a scalar, or from output and targets if there are targets; by
            default the cross entropy or mean square that fits the targets.
        targets: Targets of the loss.
        lengths: (batch,) true lengths of padded sequences.
        causal: Whether an output may depend on earlier steps only; by default it must if the
            targets are the inputs, shifted by one step.
        batch_first: Whether inputs are (batch, time, …); detected by default.
        learning_rate: The learning rate of Adam to judge; by default it is not judged.
        clip: The norm at which training clips gradients.
        rules: The rules to apply.

    Example:
        >>> model = nn.GRU(2, 8, batch_first=True)
        >>> print(undamped.doctor(model, torch.randn(4, 20, 2)))
        Nothing wrong was measured (read as 20 steps of 4 sequences).
    """
    if not isinstance(model, nn.Module):
        raise OptionError(f"doctor takes an nn.Module, got {type(model).__name__}.")
    if isinstance(inputs, tuple) and not inputs:
        raise OptionError("doctor needs inputs: a tensor, or a tuple of the arguments of forward.")
    first = inputs[0] if isinstance(inputs, tuple) else inputs
    batch_first = _by_sizes(first, lengths, targets) if batch_first is None else batch_first
    if batch_first is None and isinstance(first, Tensor) and first.dim() == 2:
        batch_first = _inner_layout(model)
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    layout = layout_of(_of_sequences(model, arguments), first, batch_first)
    if causal is None:
        causal = targets is not None and _shifted(first, targets, layout.batch_first)
    with torch.no_grad():
        evidence = gather(
            model,
            inputs,
            loss,
            targets,
            batch_first=layout.batch_first,
            lengths=lengths,
            causal=causal,
            learning_rate=learning_rate,
            clip=clip,
        )
        findings = _apply(rules, evidence)
        read_as = layout.describe(evidence.steps, first.shape[evidence.batch_axis])
        return Diagnosis(findings, read_as, evidence.gradient, evidence.response)


def _of_sequences(model: nn.Module, arguments: tuple[Any, ...]) -> nn.Module:
    """Return the model as a module of its first argument, for the trial of the layout."""
    if len(arguments) == 1 or isinstance(getattr(model, "batch_first", None), bool):
        return model
    single: Any = nn.Sequential(model)
    single.forward = lambda x: model(x, *arguments[1:])
    return single


def _by_sizes(x: Any, *per_sequence: Any) -> bool | None:
    """Return whether lengths, or targets of one axis, have the size of the first axis only."""
    vectors = [v for v in per_sequence if isinstance(v, Tensor) and v.dim() == 1]
    if not vectors or not isinstance(x, Tensor) or x.dim() < 2 or x.shape[0] == x.shape[1]:
        return None
    sizes = {len(vector) for vector in vectors}
    return next((axis == 0 for axis in (0, 1) if sizes == {x.shape[axis]}), None)


def _inner_layout(model: nn.Module) -> bool:
    inner = [getattr(part, "batch_first", None) for part in model.modules()]
    return next((value for value in inner if isinstance(value, bool)), True)


def _shifted(x: Tensor, targets: Tensor, batch_first: bool) -> bool:
    """Return whether targets are the inputs of the next step."""
    if not isinstance(targets, Tensor) or targets.shape != x.shape:
        return False
    axis = 1 if batch_first else 0
    steps = x.shape[axis]
    return torch.equal(x.narrow(axis, 1, steps - 1), targets.narrow(axis, 0, steps - 1).to(x.dtype))


def _apply(rules: tuple[Rule, ...], evidence: Evidence) -> list[Finding]:
    findings: list[Finding] = []
    explained: set[str] = set()
    for rule in rules:
        if rule.name in explained:
            continue
        symptom = rule.check(evidence)
        if symptom is None:
            continue
        explained.update(rule.explains)
        findings.append(_finding(rule, symptom, evidence))
        if rule.name == "not finite":
            break
    return findings


def _finding(rule: Rule, symptom: Symptom, evidence: Evidence) -> Finding:
    trial = None
    if rule.trial is not None:
        try:
            trial = rule.trial(evidence, symptom)
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
            trial = None  # the change does not fit this model
    module = symptom.module if symptom.module else "forward"
    return Finding(
        rule.name, symptom.sentence, module, symptom.step, symptom.certain, rule.remedy, trial
    )
