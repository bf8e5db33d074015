"""`doctor`: what is wrong with a sequence model, where, and the smallest change that helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
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
        step = "" if self.step is None else f", step {self.step}"
        likely = "" if self.certain else " (likely)"
        lines = [f"{self.rule}{likely}, in {self.module}{step}", f"  {self.sentence}"]
        lines.append(f"  Remedy: {self.remedy}")
        if self.trial is not None:
            verdict = "helps" if self.trial.helps else "does not help"
            numbers = f"{self.trial.before:.3g} to {self.trial.after:.3g}"
            lines.append(f"  Tried on a copy: {self.trial.change} {verdict} ({numbers}).")
        return "\n".join(lines)


@dataclass(frozen=True)
class Diagnosis:
    """All that the doctor says about a model.

    Args:
        findings: What is wrong, in the order of the rules.
        read_as: How the inputs were read.
    """

    findings: list[Finding]
    read_as: str

    def __str__(self) -> str:
        if not self.findings:
            return f"Nothing wrong was measured ({self.read_as})."
        return "\n".join([*map(str, self.findings), f"Inputs: {self.read_as}."])

    def to_dict(self) -> dict[str, Any]:
        """Return the findings for JSON."""
        findings = []
        for finding in self.findings:
            entry = asdict(finding)
            if finding.trial is not None:
                entry["trial"] = finding.trial._asdict()
            findings.append(entry)
        return {"healthy": not self.findings, "read_as": self.read_as, "findings": findings}


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
    if batch_first is None and isinstance(first, Tensor) and first.dim() == 2:
        batch_first = _inner_layout(model)
    layout = layout_of(model, first, batch_first)
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
    return Diagnosis(findings, layout.describe(evidence.steps, first.shape[evidence.batch_axis]))


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
