"""The base class of all results: small frozen records that describe and draw themselves.

A result has a figure (`layout` and `traces`), one `sentence`, a table (`columns` and `rows`) and
`to_dict` for JSON. Page, plotly figure, image file and terminal are made from these and do not know
any instrument by name.
"""

from __future__ import annotations

import html
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch

from undamped._base.options import Option, options_of
from undamped._base.registry import instruments
from undamped.analysis.core.figures import Layout, Style, Trace, new_figure

if TYPE_CHECKING:
    from undamped.analysis.core.probe import Probe


@dataclass(frozen=True)
class Record:
    """A dataclass that can be written as JSON."""

    derived: ClassVar[tuple[str, ...]] = ()
    """Properties that the JSON contains in addition to the fields."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as plain numbers, lists and strings, ready for JSON."""
        names = (*(field.name for field in fields(self)), *self.derived)
        return {name: plain(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class Judgement:
    """A verdict on a model: one sentence without a full stop, and whether it is good news.

    A page starts with the verdict of gradient flow, or else with the first judgement of a result.
    """

    verdict: str
    tone: Literal["good", "bad", "neutral"] = "neutral"


@dataclass(frozen=True)
class Result(Record, ABC):
    """Base class of the instruments' results.

    A subclass in the registry of instruments sets `question`, implements `measure`, and declares
    its figure: a `figure_layout`, or the property `layout` where it depends on the numbers, and
    `traces`. Command line, page, JSON, help and documentation then include it.
    """

    question: ClassVar[str] = ""
    """The question that the instrument answers."""
    page_order: ClassVar[int] = 50
    """Position on a page; results with small numbers come first."""
    function: ClassVar[str] = ""
    """The function in the same file that measures, if its name is not that of the instrument."""
    on_request: ClassVar[bool] = False
    """Whether the instrument is only used when it is requested by name."""
    slow: ClassVar[bool] = False
    """Whether a measurement can take seconds; a page with a time limit measures it last."""
    of_motion: ClassVar[bool] = False
    """Whether the instrument applies to models of dynamical systems."""
    of_answers: ClassVar[bool] = False
    """Whether the instrument applies to models that are not trained by gradients, because it only
    uses their predictions or promises."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Column headings of `rows`."""
    figure_layout: ClassVar[Layout]
    """Title, axes and caption, where they do not depend on the numbers."""

    @classmethod
    def declared_options(cls) -> dict[str, Option]:
        """Return the options of the measuring function, if there is one beside the class."""
        name = cls.function or instruments.name_of(cls) or ""
        function = getattr(sys.modules[cls.__module__], name, None)
        return {} if function is None else options_of(function)

    @classmethod
    def measure(cls, probe: Probe) -> Result:
        """Measure a model; raise `InapplicableError` with the reason where that is impossible.

        Every registered instrument implements it.

        Args:
            probe: The model, its inputs and its task.
        """
        raise NotImplementedError

    @property
    def layout(self) -> Layout:
        """Title, axes and caption of the figure."""
        return self.figure_layout

    @abstractmethod
    def traces(self, style: Style) -> list[Trace]:
        """Return the lines of the figure.

        Args:
            style: Colours and names for this result.
        """

    @property
    def sentence(self) -> str:
        """The finding in one sentence; empty if there is only the figure."""
        return ""

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The result as a table, one string for each of `columns`; empty if there is none."""
        return []

    @property
    def judgement(self) -> Judgement | None:
        """The verdict on the whole model, if the instrument gives one; see `Judgement`."""
        return None

    def plot(self) -> Any:
        """Return the result as a plotly figure."""
        return new_figure(*layout_and_traces({getattr(self, "name", ""): self}))

    def _repr_html_(self) -> str:
        """Return the sentence, the table and, if matplotlib is installed, the figure."""
        parts = [f"<p>{html.escape(self.sentence)}</p>"] if self.sentence else []
        if self.rows:
            cells = [f"<th>{html.escape(name)}</th>" for name in self.columns]
            lines = [cells, *([f"<td>{html.escape(c)}</td>" for c in row] for row in self.rows)]
            body = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
            parts.append(f"<table>{body}</table>")
        if find_spec("matplotlib") is not None:
            with TemporaryDirectory() as folder:
                path = Path(folder) / "figure.svg"
                self.save_figure(path)
                svg = path.read_text(encoding="utf-8")
            parts.append(svg[svg.index("<svg") :])
        return "".join(parts)

    def save_figure(self, path: str | Path) -> None:
        """Draw the result into a .png, .svg or .pdf file.

        Args:
            path: The file to write.
        """
        from undamped.analysis.core.image_file import draw

        draw({getattr(self, "name", ""): self}, Path(path))


def layout_and_traces(results: Mapping[str, Result]) -> tuple[Layout, list[Trace]]:
    """Return the figure of one model in detail, or of several models for comparison."""
    name, first = next(iter(results.items()))
    layout = first.layout
    if len(results) > 1:
        traces = [
            trace
            for index, (model, result) in enumerate(results.items())
            for trace in result.traces(Style(index, model))
        ]
    else:
        traces = first.traces(Style())
        title = f"{layout.title}: {name}" if name else layout.title
        layout = replace(layout, title=title, caption=first.sentence or layout.caption)
    return layout, [*layout.background, *traces]


def plain(value: Any) -> Any:
    """Return a value in the types of JSON.

    Complex numbers become [real, imaginary]; numbers that are not finite become None.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        if np.iscomplexobj(value):
            value = np.stack([value.real, value.imag], axis=-1)
        value = value.tolist()
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value
