"""The contents of a page about models as plain records: settings, scores, curves and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from undamped._base.registry import instruments
from undamped.analysis.core import Layout, Result, Style, Trace
from undamped.analysis.core.figures import NO_MODEL

if TYPE_CHECKING:
    from undamped.lab.report.forecasts import ForecastsOnTest

CURVES = 20
"""Position of the training curves among the instruments."""


@dataclass(frozen=True)
class Remedy:
    """A change that is advised: another value of a setting, or another model.

    Args:
        advice: What to change and why, without a full stop.
        setting: The setting with its new value, such as `train.clip=1`.
        model: Registry name of the other model.
        command: The command that makes the change; `Commands.add_to` fills it in.
    """

    advice: str
    setting: str = ""
    model: str = ""
    command: str = ""


Tone = Literal["good", "bad", "neutral"]


@dataclass(frozen=True)
class Note:
    """A sentence below the verdict, without a full stop, and whether it is good news."""

    text: str
    tone: Tone = "neutral"


@dataclass(frozen=True)
class Score:
    """The test metric of a run, with those of the naive baseline and of a trivial rule."""

    metric: str
    value: float
    chance: float | None = None
    higher_is_better: bool = True
    split: str = "test"
    baseline: tuple[float, str] | None = None
    """The score of the best trivial rule, and the feature that it uses."""

    @property
    def better(self) -> bool:
        """Whether it is better than the naive baseline; true where that is unknown."""
        if self.chance is None:
            return True
        return self.value > self.chance if self.higher_is_better else self.value < self.chance

    @property
    def summary(self) -> str:
        """The score, compared with the naive baseline."""
        score = f"{self.title} {self.text}"
        if self.chance is None:
            return score
        baseline = "naive baseline" if self.better else "no better than the naive baseline"
        rule = ""
        if self.baseline is not None:
            rule = f", {self.baseline[1]} alone {self.format(self.baseline[0])}"
        return f"{score}, {baseline} {self.format(self.chance)}{rule}"

    @property
    def title(self) -> str:
        """The metric and the split in words, such as "test accuracy" or "accuracy (256 steps)"."""
        metric = self.metric.replace("_", " ")
        if self.split in ("test", "validation"):
            return f"{self.split} {metric}"
        return f"{metric} ({self.split})"

    @property
    def text(self) -> str:
        """The value as text."""
        return self.format(self.value)

    def format(self, value: float) -> str:
        """Return a value of this metric as text."""
        return f"{100 * value:.1f} %" if self.metric.endswith("accuracy") else f"{value:.4g}"


@dataclass(frozen=True)
class ModelReport:
    """One model on a page.

    Args:
        name: Name of the model; names on one page should differ.
        verdict: One sentence with numbers; for a trained run its score and the naive baseline.
        tone: Whether the verdict is good, bad or neither.
        notes: Further findings, about the gradients for example.
        remedies: Changes that are advised.
        results: The results by the instrument's name.
        left_out: Why an instrument does not apply to this model, by its name.
        pending: The command that measures an instrument for which there was no time, by its name.
        curve: Rows of the training curve, each with "step" and any of "train_loss",
            "valid_loss" and further numbers.
        score: The result of training.
        options: Settings by name.
        versions: Versions of the libraries.
        command: The command of the run.
        path: Folder of the run.
        findings: What training inferred from the data, in sentences.
        candidates: The models that were compared before one was chosen, from run.json.
        forecasts: The forecasts of the test split, for a model that forecasts recordings.
    """

    name: str
    verdict: str = ""
    tone: Tone = "neutral"
    notes: Sequence[Note] = ()
    remedies: Sequence[Remedy] = ()
    results: Mapping[str, Result] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    pending: Mapping[str, str] = field(default_factory=dict)
    curve: Sequence[Mapping[str, float]] = ()
    score: Score | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    path: str = ""
    findings: Sequence[str] = ()
    candidates: Sequence[Mapping[str, Any]] = ()
    forecasts: ForecastsOnTest | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return verdict, remedies and all results for JSON, each under its instrument's name."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "notes": [note.text for note in self.notes],
            "remedies": [{"advice": r.advice, "command": r.command} for r in self.remedies],
            **dict.fromkeys(self.left_out),
            **{name: result.to_dict() for name, result in self.results.items()},
            "left_out": dict(self.left_out),
        }


def plots(reports: Sequence[ModelReport]) -> list[dict[str, Any]]:
    """Return all plots with data, in the order of the page."""
    figures = [
        (instruments[name].page_order, figure)
        for name in in_order(reports)
        if (figure := _instrument(name, reports)) is not None
    ]
    figures += [(CURVES, figure) for figure in _curves(reports)]
    figures += [(0, figure) for figure in _forecasts(reports)]
    return [figure for _, figure in sorted(figures, key=lambda pair: pair[0])]


def in_order(reports: Sequence[ModelReport]) -> list[str]:
    """Return the names of the instruments with results, in the order of the page."""
    names = dict.fromkeys(name for report in reports for name in report.results)
    return sorted(names, key=lambda name: instruments[name].page_order)


def _instrument(name: str, reports: Sequence[ModelReport]) -> dict[str, Any] | None:
    results = [(i, r, r.results[name]) for i, r in enumerate(reports) if name in r.results]
    traces = [t for i, report, result in results for t in result.traces(Style(i, report.name))]
    if not traces:
        return None
    layout = results[0][2].layout
    if len(results) > 1 and {trace["meta"] for trace in traces} - {NO_MODEL} == {results[0][0]}:
        layout = replace(layout, title=f"{layout.title}: {results[0][1].name}")
    return plot_of(name, layout, traces)


def _forecasts(reports: Sequence[ModelReport]) -> list[dict[str, Any]]:
    tests = [(i, r.name, r.forecasts) for i, r in enumerate(reports) if r.forecasts is not None]
    if not tests:
        return []
    from undamped.lab.report.forecasts import figures

    single = len(reports) == 1
    styled = [(Style(i, "" if single else name), test) for i, name, test in tests]
    return [plot_of(*figure) for figure in figures(styled)]


def _curves(reports: Sequence[ModelReport]) -> list[dict[str, Any]]:
    """Return a plot of every validation metric; that of the loss contains the training loss."""
    figures = []
    if all(len(report.curve) < 2 for report in reports):
        return figures  # fitted in closed form: there is no curve
    names = dict.fromkeys(name for report in reports for row in report.curve for name in row)
    for index, column in enumerate(name for name in names if name.startswith("valid_")):
        traces = _curve(reports, column)
        loss = column == "valid_loss"
        if loss:
            traces += _curve(reports, "train_loss", faint=True)
        metric = column.removeprefix("valid_").replace("_", " ")
        caption = "Dotted: on the training batches." if loss else "On the validation split."
        layout = Layout(f"Training: {metric}", "step", metric, caption, log_y=loss)
        figures.append(plot_of(f"curve-{index}", layout, traces))
    return figures


def _curve(reports: Sequence[ModelReport], column: str, faint: bool = False) -> list[Trace]:
    traces = []
    for index, report in enumerate(reports):
        rows = [row for row in report.curve if column in row and "step" in row]
        if not rows:
            continue
        style = Style(index, f"{report.name}, {column.replace('_', ' ')}")
        more: dict[str, Any] = {}
        if faint:
            more = {"line": {"dash": "dot", "width": 1}, "opacity": 0.7}
        if len(rows) == 1:
            more["mode"] = "markers"
        steps, values = [int(row["step"]) for row in rows], [row[column] for row in rows]
        traces.append(style.line(steps, values, column, **more))
    return traces


def plot_of(key: str, layout: Layout, traces: list[Trace]) -> dict[str, Any]:
    """Return a plot as the script of a page draws it."""
    return {
        "key": key,
        "title": layout.title,
        "caption": layout.caption,
        "traces": [*layout.background, *traces],
        "layout": layout.axes(traces),
    }
